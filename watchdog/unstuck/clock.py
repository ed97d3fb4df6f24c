"""Time as a dependency, so that judging and duties can be tested without waiting.

Durations are measured with ``monotonic`` only; ``wall`` is for what people read. What is stored in Redis is Redis
server time and never comes from here.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of time, both in seconds."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""
        ...

    def wall(self) -> float:
        """Unix time in seconds; may jump in both directions."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Seconds of :func:`time.monotonic`."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds of :func:`time.time`."""
        return time.time()


class ManualClock:
    """A clock that stands still until a test moves it; safe to share among threads.

    ``wall_seconds`` is the Unix time at the start, ``monotonic_seconds`` the monotonic reading at the start.
    """

    __slots__ = ("_lock", "_monotonic", "_wall")

    def __init__(self, wall_seconds: float = 1_700_000_000.0, monotonic_seconds: float = 1_000.0) -> None:
        self._wall = wall_seconds
        self._monotonic = monotonic_seconds
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        """The monotonic reading, in seconds."""
        with self._lock:
            return self._monotonic

    def wall(self) -> float:
        """The Unix time, in seconds."""
        with self._lock:
            return self._wall

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass on both clocks. ValueError if negative: time does not go back, use ``jump``."""
        if seconds < 0:
            raise ValueError("advance() takes no negative seconds; jump() moves the wall clock back")
        with self._lock:
            self._monotonic += seconds
            self._wall += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP would; the monotonic one goes on."""
        with self._lock:
            self._wall += seconds
