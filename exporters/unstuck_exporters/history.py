"""The last half hour of one queue, small enough to be kept for a thousand of them (about 4 kB each)."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import Final

STEP: Final = 15.0
"""Seconds between two points."""
POINTS: Final = 120
FIELDS: Final = ("waiting", "running", "stuck", "oldest_waiting", "throughput")


@dataclass(frozen=True, slots=True)
class Point:
    """One moment of a queue."""

    at: float  # Unix time, seconds
    waiting: int
    running: int
    stuck: int
    oldest_waiting: float | None  # seconds
    throughput: float | None  # jobs finished per second since the point before; None: the system does not tell


class History:
    """A ring of points. Not thread-safe: the board's lock guards it."""

    __slots__ = ("_last", "_times", "_values")

    def __init__(self) -> None:
        self._times = array("d")
        self._values = array("f")
        self._last: tuple[float, int | None] | None = None

    def due(self, now: float) -> bool:
        """Whether a step has passed since the last point; ``now`` is monotonic."""
        return self._last is None or now - self._last[0] >= STEP

    def add(
        self, now: float, at: float, *, waiting: int, running: int, stuck: int, oldest: float | None, done: int | None
    ) -> None:
        """Remember a point. ``now`` is monotonic, ``at`` Unix time; ``done`` counts all jobs that ever finished."""
        rate = math.nan
        if self._last is not None and done is not None and self._last[1] is not None:
            rate = max(0, done - self._last[1]) / max(now - self._last[0], 0.001)
        self._last = (now, done)
        self._times.append(at)
        self._values.extend((waiting, running, stuck, math.nan if oldest is None else oldest, rate))
        if len(self._times) > POINTS:
            del self._times[0]
            del self._values[: len(FIELDS)]

    def points(self) -> tuple[Point, ...]:
        """All points, oldest first."""
        width = len(FIELDS)
        out = []
        for i, at in enumerate(self._times):
            waiting, running, stuck, oldest, rate = self._values[i * width : (i + 1) * width]
            out.append(
                Point(
                    at,
                    int(waiting),
                    int(running),
                    int(stuck),
                    None if math.isnan(oldest) else oldest,
                    None if math.isnan(rate) else rate,
                )
            )
        return tuple(out)
