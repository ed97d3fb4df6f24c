"""Measuring: what is known of a queue's flow between two looks at its counters, and of Redis' memory and keyspace.

Pure. Rates are per second of Redis' own time between two looks, smoothed; a counter that fell starts anew. A look that was
counted already must not be counted again (the publisher sees to that), or every rate would be halved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from unstuck import pacing
from unstuck.config import Pacing
from unstuck.model import ServerSnapshot, Totals

MOST_GROWTH = 1000.0  # enqueued / completed where (almost) nothing is completed
LEAST_RATE = 1e-3  # per second; a slower flow counts as none


@dataclass(frozen=True, slots=True)
class Trend:
    """What is known of a queue's flow. Rates are jobs per second, smoothed; None: not known (yet)."""

    totals: Totals | None = None
    at: float = 0.0  # seconds
    average_delay: float | None = None  # seconds from ready to claimed, of the jobs started, smoothed
    arrivals: float | None = None
    throughput: float | None = None
    cache_hit_ratio: float | None = None  # of the workers' own reads; stale entries count as misses

    @property
    def growth(self) -> float | None:
        """Enqueued / completed: above 1 the backlog grows. None where nothing flows."""
        if self.arrivals is None or self.throughput is None or max(self.arrivals, self.throughput) < LEAST_RATE:
            return None
        return min(MOST_GROWTH, self.arrivals / max(self.throughput, LEAST_RATE / MOST_GROWTH))


def follow(before: Trend, totals: Totals | None, now: float, *, waiting: int = 0) -> Trend:
    """The trend after one more look at the counters (`now`: seconds at that look); a counter that fell starts anew."""
    if totals is None:
        return Trend()
    earlier, elapsed = before.totals, now - before.at
    if earlier is None or elapsed <= 0 or _fell(earlier, totals):
        return replace(before, totals=totals, at=now)
    begun, ended = totals.started - earlier.started, totals.completed - earlier.completed
    delay = (totals.delay_ms - earlier.delay_ms) / begun / 1000 if begun else None
    if not begun and not waiting and before.average_delay is not None:
        delay = 0.0  # nothing was to be started: let an old delay fade
    hits = totals.cache_hits - earlier.cache_hits
    reads = hits + totals.cache_misses - earlier.cache_misses + totals.cache_stale - earlier.cache_stale
    return Trend(
        totals=totals,
        at=now,
        average_delay=pacing.smooth(before.average_delay, delay),
        arrivals=pacing.smooth(before.arrivals, (totals.enqueued - earlier.enqueued) / elapsed),
        throughput=pacing.smooth(before.throughput, ended / elapsed),
        cache_hit_ratio=pacing.smooth(before.cache_hit_ratio, hits / reads if reads > 0 else None),
    )


def _fell(earlier: Totals, later: Totals) -> bool:
    return any(
        getattr(later, name) < getattr(earlier, name)
        for name in ("enqueued", "started", "completed", "delay_ms", "cache_hits", "cache_misses", "cache_stale")
    )


def drain_seconds(trend: Trend, waiting: int) -> float | None:
    """How long the backlog lasts at the present throughput (Little's law); None where nothing is completed."""
    if not waiting:
        return 0.0
    return waiting / trend.throughput if trend.throughput is not None and trend.throughput >= LEAST_RATE else None


def whole_delay(trends: Iterable[Trend]) -> float | None:
    """The average delay over all started jobs of several queues: each queue's, weighted by its throughput."""
    known = [(one.average_delay, one.throughput or 0.0) for one in trends if one.average_delay is not None]
    weight = sum(rate for _, rate in known)
    if weight < LEAST_RATE:
        return max((delay for delay, _ in known), default=None)
    return sum(delay * rate for delay, rate in known) / weight


def memory_share(settings: Pacing, server: ServerSnapshot) -> float | None:
    """Memory that Redis uses as a share of `cache_limit`; None where there is no limit."""
    limit = settings.cache_limit.of(server.maxmemory)
    return server.used_memory / limit if limit is not None and limit > 0 else None


def over_limit(settings: Pacing, server: ServerSnapshot, *, before: bool = False) -> bool:
    """Whether Redis uses more memory than `cache_limit` allows; once it did, until it is below by the hysteresis."""
    share = memory_share(settings, server)
    return share is not None and share > (1 - settings.hysteresis if before else 1.0)


def hit_ratio(before: float | None, earlier: ServerSnapshot | None, later: ServerSnapshot) -> float | None:
    """The keyspace's hits per look-up between two looks, smoothed; a Redis that began anew starts anew."""
    if earlier is None or earlier.run_id != later.run_id or later.keyspace_hits < earlier.keyspace_hits:
        return None
    hits = later.keyspace_hits - earlier.keyspace_hits
    reads = hits + later.keyspace_misses - earlier.keyspace_misses
    return pacing.smooth(before, hits / reads if reads > 0 else None)
