"""Jobs of the unstuck bench, as a user would write them; they run in the worker's process.

A gated job counts its runs and its ends under keys of its own (`ran:<job>`, `ended:<job>`), and runs until `gate:<job>` is there.
"""

import time
from typing import Any

import redis

from unstuck.worker import PermanentFailure


def run(payload: dict[str, Any], context: Any) -> None:
    """Run what the payload names: `gated` (until its gate is there) or `failing`."""
    if payload["kind"] == "failing":
        raise PermanentFailure("on purpose")
    with redis.Redis.from_url(payload["url"]) as client:
        client.incr(f"ran:{context.id}")
        while not client.exists(f"gate:{context.id}"):
            time.sleep(0.02)
        client.incr(f"ended:{context.id}")
