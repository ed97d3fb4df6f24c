"""How long to wait after an empty poll, and the wait itself.

What may go wrong: the published interval can be missing, old, damaged or absurd, and whoever published it may be dead. At
any doubt the worker takes its own base interval, so a dead agent makes the system no slower. The interval counts only
after an **empty** poll: a worker that got a job polls again at once, otherwise one burst would never drain.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unstuck.connections import Connections, text
from unstuck.errors import classify
from unstuck.protocol import Claim, keys
from unstuck.worker.journal import say

READ_EVERY_SECONDS = 1.0
LONGEST_TTL_MS = 3_600_000
CLOCK_SLACK_MS = 1_000
UNREAD = "unread"
FIELDS = ("interval_ms", "min_ms", "max_ms", "jitter", "computed_at_ms", "ttl_ms")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between two empty polls, the spread as a share, and why the published one was not used ('' if it was)."""

    interval: float
    jitter: float
    doubt: str = ""
    longest: float = math.inf  # the longest wait that was published with it


@dataclass(frozen=True, slots=True)
class OwnPace:
    """What a worker does by itself; seconds, and a share."""

    base: float = 0.2
    longest: float = 10.0
    jitter: float = 0.2


def believe(published: Mapping[str, str], own: OwnPace, now_ms: int) -> Pace:
    """The published pace if nothing about it is doubtful, else the own one with the doubt in one word."""
    doubt = ""
    interval, jitter = own.base, own.jitter
    try:
        least, most = int(published["min_ms"]), int(published["max_ms"])
        told, ttl, at = int(published["interval_ms"]), int(published["ttl_ms"]), int(published["computed_at_ms"])
        spread = float(published["jitter"])
    except KeyError:
        doubt = "incomplete" if published else "missing"
    except ValueError:
        doubt = "unreadable"
    else:
        if not 0 < ttl <= LONGEST_TTL_MS or not -CLOCK_SLACK_MS <= now_ms - at <= ttl:
            doubt = "old"
        elif not 0 < least <= told <= most or told > own.longest * 1000 or not 0 <= spread <= 0.9:
            doubt = "out_of_bounds"
        else:
            return Pace(told / 1000, spread, longest=most / 1000)
    return Pace(interval, jitter, doubt)


class Board:
    """The published pace of one queue, read at most once a second for all slots of a worker."""

    def __init__(self, connections: Connections, queue: str, own: OwnPace) -> None:
        self.own = own
        self.pace = Pace(own.base, own.jitter, UNREAD)
        self.doubts: Counter[str] = Counter()
        self._connections = connections
        self._key = keys.pacing(queue)
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def look(self, now_ms: int) -> Pace:
        """The pace that holds; `now_ms` is server time, as the empty claim gave it."""
        with self._lock:
            if time.monotonic() - self._read_at >= READ_EVERY_SECONDS:
                self.pace = self._read(now_ms)
                self._read_at = time.monotonic()
                if self.pace.doubt:
                    self.doubts[self.pace.doubt] += 1
            return self.pace

    @property
    def doubt(self) -> str:
        """Why the published pace is not used; empty while it is, and before the first empty poll."""
        return "" if self.pace.doubt == UNREAD else self.pace.doubt

    @property
    def applied_ms(self) -> int:
        """The interval in use, for the heartbeat."""
        return round(self.pace.interval * 1000)

    def _read(self, now_ms: int) -> Pace:
        try:
            values: Any = self._connections.reading().hmget(self._key, list(FIELDS))
        except Exception as error:  # noqa: BLE001  no pace is worth an error
            return Pace(self.own.base, self.own.jitter, f"redis_{classify(error)}")
        read = {name: text(value) for name, value in zip(FIELDS, values, strict=True) if value is not None}
        return believe(read, self.own, now_ms)


def seconds_to_wait(pace: Pace, own: OwnPace, misses: int, due_in_ms: int | None, spread: float) -> float:
    """The wait after `misses` empty polls in a row; `spread` from -1 to 1 chooses the place within the jitter."""
    longest = min(own.longest, pace.longest)
    wait = min(longest, pace.interval * 2.0 ** min(misses - 1, 30))
    wait *= 1 + spread * pace.jitter
    if wait > longest:  # mirrored, not cut off: half of a fleet would wait exactly as long, and poll all at once
        wait = max(0.0, 2 * longest - wait)
    if due_in_ms is not None:
        wait = min(wait, due_in_ms / 1000 + 0.001)
    return max(0.001, wait)


class Waiter:
    """One slot's waits. A job or a wake starts the count of empty polls anew."""

    def __init__(
        self, connections: Connections, queue: str, board: Board, stopping: threading.Event, *, wake: bool
    ) -> None:
        self.misses = 0
        self.board = board
        self._connections = connections
        self._key = keys.wake(queue)
        self._stopping = stopping
        self._wake = wake
        self._client: Any = None

    def got_a_job(self) -> None:
        """Poll again at once."""
        self.misses = 0

    def wait(self, empty: Claim) -> None:
        """Wait as the pace says, until woken, or until the worker stops."""
        self.misses += 1
        due = None if empty.next_due_ms is None else empty.next_due_ms - empty.now_ms
        pace = self.board.look(empty.now_ms)
        seconds = seconds_to_wait(pace, self.board.own, self.misses, due, random.uniform(-1, 1))  # noqa: S311
        if not self._wake:
            self._stopping.wait(seconds)
        elif not self._stopping.is_set() and self._blocked(seconds):
            self.misses = 0

    def interrupt(self) -> None:
        """End a wait from another thread, when the worker stops."""
        if self._client is not None:
            sever(self._client)

    def _blocked(self, seconds: float) -> bool:
        """Block on the wake key; True if something came. Without Redis this is a plain sleep."""
        until = time.monotonic() + seconds
        try:
            if self._client is None:
                self._client = self._connections.blocking(self.board.own.longest)
            return self._client.blpop([self._key], timeout=seconds) is not None
        except Exception as error:  # noqa: BLE001  the next claim will say what is wrong
            say(logging.DEBUG, "wait_failed", reason=classify(error))
            self._stopping.wait(max(0.0, until - time.monotonic()))
            return False


def sever(client: Any) -> None:
    """Break a client's connections from another thread, so that a read that blocks in one of them ends."""
    with contextlib.suppress(Exception):
        nodes = client.get_nodes() if hasattr(client, "get_nodes") else ()
        for one in [node.redis_connection for node in nodes] or [client]:
            if one is not None:
                one.connection_pool.disconnect()
