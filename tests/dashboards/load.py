"""What the workers of the scenario do: take the time that the payload says, and end as it says."""

import time
from typing import Any

from unstuck.worker import Context, PermanentFailure


def work(payload: dict[str, Any], context: Context) -> None:
    """Work for `seconds`; then `end` is `well`, `badly` (it is tried again) or `hopeless` (a dead letter)."""
    ends = time.monotonic() + float(payload["seconds"])
    while (left := ends - time.monotonic()) > 0:
        context.check()
        time.sleep(min(0.1, left))
    if payload["end"] == "badly" and context.attempt == 1:
        raise ValueError("no such recipient")
    if payload["end"] == "hopeless":
        raise PermanentFailure("never")
