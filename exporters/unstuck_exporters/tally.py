"""Counters and histograms that the agent itself counts. Not thread-safe: the board's lock guards them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from unstuck_exporters.labels import OTHER

COMMAND_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
DELIVERY_BUCKETS: Final = (*COMMAND_BUCKETS, 5.0, 10.0)
JOB_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
HEARTBEAT_BUCKETS: Final = (1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0)

Key = tuple[str, ...]
"""The values of a series' own labels, in the order of the catalogue."""

_MOST_KEYS: Final = 128


class Tally(dict[Key, int]):
    """Label values -> count. Beyond 128 different values everything new is counted as `other`."""

    __slots__ = ()

    @classmethod
    def zeros(cls, keys: Sequence[Key]) -> Tally:
        """A tally whose known series start at 0, so that the first increase can be seen by `increase()`."""
        return cls(dict.fromkeys(keys, 0))

    def add(self, *key: str, count: int = 1) -> None:
        """Count; a negative count is a mistake of the caller and is ignored, since counters only grow."""
        if count < 0:
            return
        if key not in self and len(self) >= _MOST_KEYS:
            key = (OTHER,) * len(key)
        self[key] = self.get(key, 0) + count

    def plus(self, *key: str, count: int = 1) -> Tally:
        """The tally after counting, as a new one."""
        new = Tally(self)
        new.add(*key, count=count)
        return new


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One observation that stands for its bucket; `labels` may name a job, which no label may."""

    labels: Mapping[str, str]
    value: float  # seconds
    at: float  # Unix time, seconds


@dataclass(slots=True)
class Histogram:
    """A classic histogram of seconds; `counts` are per bucket, not cumulative, the last one is +Inf."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    exemplars: dict[int, Exemplar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """An empty histogram has a zero in every bucket."""
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float, exemplar: Mapping[str, str] | None = None, at: float = 0.0) -> None:
        """Count one observation. NaN and infinity are refused; a negative one is the skew of two clocks, so 0."""
        if not math.isfinite(seconds):
            return
        seconds = max(0.0, seconds)
        bucket = bisect_left(self.bounds, seconds)
        self.counts[bucket] += 1
        self.total += seconds
        if exemplar:
            self.exemplars[bucket] = Exemplar(dict(exemplar), seconds, at)

    def copy(self) -> Histogram:
        """A copy that later observations do not change."""
        return Histogram(self.bounds, self.counts.copy(), self.total, self.exemplars.copy())
