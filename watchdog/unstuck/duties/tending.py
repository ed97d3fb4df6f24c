"""Tending: the small upkeep of our own queues, in both modes: promote due jobs, forget workers that left long ago."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unstuck.connections import text
from unstuck.protocol import keys, scripts

if TYPE_CHECKING:
    from redis import Redis

SILENT_FOR_MS = 600_000
MOST_PER_PASS = 100


def promote(client: Redis, queues: Sequence[str]) -> int:
    """Move due jobs of these queues to pending, at most 100 of each; returns how many were moved."""
    calls = [scripts.Call("promote_jobs", keys.meta(queue), (MOST_PER_PASS,)) for queue in queues]
    answers = scripts.run_many(client, calls) if calls else []
    return sum(int(answer[0]) for answer in answers if not isinstance(answer, Exception))


def forget_workers(client: Redis, queue: str, server_ms: int) -> int:
    """Forget workers of a queue that have been silent for ten minutes and hold nothing; returns how many.

    Their remembered answers are looked for with HSCAN, outside the script, so that nothing blocks.
    """
    silent: Any = client.zrangebyscore(
        keys.workers(queue), "-inf", server_ms - SILENT_FOR_MS, start=0, num=MOST_PER_PASS
    )
    names = [text(name) for name in silent]
    if not names:
        return 0
    wanted = set(names)
    fields = [text(field) for field, _ in client.hscan_iter(keys.ops(queue), count=200)]
    theirs = [field for field in fields if field.rpartition(":")[0] in wanted]
    return int(scripts.run(client, "purge_workers", keys.meta(queue), SILENT_FOR_MS, len(names), *names, *theirs))
