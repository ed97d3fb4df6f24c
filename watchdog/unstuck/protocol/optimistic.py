"""Optimistic changes to the job's own data: WATCH, compute, MULTI/EXEC, and again with jitter when somebody was faster.

What may go wrong: under contention every try can lose, so the number of tries is bounded and the pauses grow and are
spread. A lost reply to EXEC leaves it unknown whether the change was made; then the error is raised, not repeated, unless
`fn` is written so that making the change twice is harmless. docs/optimistic.md says when to use this.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from unstuck.errors import UnstuckError
from unstuck.spelling import counted

if TYPE_CHECKING:
    from redis import Redis
    from redis.client import Pipeline

T = TypeVar("T")
FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.5


class Conflict(UnstuckError):
    """Every try met a change by somebody else; nothing was written. `tries` says how many there were."""

    def __init__(self, message: str, tries: int) -> None:
        self.tries = tries
        super().__init__(message)


def transact(
    client: Redis,
    keys: Sequence[str],
    fn: Callable[[Pipeline], T],
    retries: int = 5,
    *,
    on_conflict: Callable[[int], object] = lambda _: None,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Change `keys` only if nobody else changed them meanwhile; returns what `fn` returned.

    `fn(pipe)` reads through `pipe` (at once), calls `pipe.multi()`, then queues its writes. It is called anew for each
    try; `on_conflict(n)` is told of the n-th lost one. Raises `Conflict` after `retries` + 1 lost tries. In a cluster all
    keys must share one hash tag.
    """
    if not keys:
        raise ValueError("transact: name the keys that fn reads, or nothing is watched")
    for tried in range(1, retries + 2):
        with client.pipeline(transaction=True) as pipe:
            try:
                pipe.watch(*keys)
                value = fn(pipe)
                pipe.execute()
                return value
            except Exception as error:
                if not _lost_the_race(error):
                    raise
        on_conflict(tried)
        if tried <= retries:
            most = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**tried)
            sleep(random.uniform(0, most))  # noqa: S311  spreads load, no secret
    raise Conflict(
        f"{', '.join(keys)}: changed by somebody else in each of {counted(retries + 1, 'try', 'tries')}", retries + 1
    )


def _lost_the_race(error: Any) -> bool:
    from redis.exceptions import WatchError

    return isinstance(error, WatchError)
