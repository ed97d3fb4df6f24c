"""Publishing: measure each queue's load and publish the polling interval that follows from it.

The value carries a TTL of three publications, so that a dead agent leaves no old interval behind: workers then use their own
base. A deposed leader is refused by the queue's fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from unstuck import pacing
from unstuck.config import OWN, QueueSettings
from unstuck.duties.sweeping import Judged, Place
from unstuck.model import ServerSnapshot, Totals
from unstuck.protocol import keys, scripts

if TYPE_CHECKING:
    from redis import Redis


@dataclass(frozen=True, slots=True)
class Trend:
    """What is known of a queue's flow between two publications."""

    totals: Totals | None = None
    at: float = 0.0  # monotonic seconds
    average_delay: float | None = None  # seconds, smoothed
    throughput: float | None = None  # completed per second, smoothed
    growth: float | None = None  # enqueued / completed, smoothed


@dataclass(frozen=True, slots=True)
class Published:
    """One publication, for the board."""

    place: Place
    decision: pacing.Decision
    trend: Trend
    error: Exception | None = None


class Publisher:
    """Publishes for every queue of the last sweep. `every` is the time between two publications, in seconds."""

    def __init__(self, client: Redis, every: float) -> None:
        self._client = client
        self._every = every
        self._trends: dict[Place, Trend] = {}

    def publish(self, queues: Sequence[Judged], server: ServerSnapshot, epoch: int, now: float) -> list[Published]:
        """One pass. A refusal stands in `Published.error`; a broken connection raises."""
        calls, made = [], []
        for judged in queues:
            if judged.snapshot.error:
                continue
            trend = follow(self._trends.get(judged.place, Trend()), judged.snapshot.totals, now)
            self._trends[judged.place] = trend
            delay = trend.average_delay if judged.snapshot.totals else judged.snapshot.oldest_waiting
            load = pacing.Load(delay, judged.snapshot.waiting, over_limit(judged.settings, server))
            decision = pacing.decide(load, rules_of(judged.settings))
            made.append(Published(judged.place, decision, trend))
            calls.append(self._call(judged, decision, trend, epoch))
        known = {published.place for published in made}
        self._trends = {place: trend for place, trend in self._trends.items() if place in known}
        answers = scripts.run_many(self._client, calls) if calls else []
        return [
            replace(published, error=answer) if isinstance(answer, Exception) else published
            for published, answer in zip(made, answers, strict=True)
        ]

    def _call(self, judged: Judged, decision: pacing.Decision, trend: Trend, epoch: int) -> scripts.Call:
        snapshot, settings = judged.snapshot, judged.settings
        own = snapshot.backend == OWN
        tag = snapshot.queue if own else keys.tag(snapshot.backend, snapshot.queue)
        ttl = max(15_000, round(3 * self._every * 1000))
        drain = snapshot.waiting / trend.throughput if trend.throughput else None
        fields: dict[str, Any] = {
            "interval_ms": round(decision.interval * 1000),
            "base_ms": round(decision.base * 1000),
            "min_ms": round(decision.base * 1000),
            "max_ms": round(decision.max_interval * 1000),
            "score": f"{decision.score:.4f}",
            "score_raw": f"{min(decision.score_raw, 1e6):.4f}",
            "reason": decision.reason,
            "jitter": f"{settings.pacing.jitter:.3f}",
            "backlog": snapshot.waiting,
            "oldest_age_ms": round((snapshot.oldest_waiting or 0.0) * 1000),
            "growth_ratio": "" if trend.growth is None else f"{trend.growth:.3f}",
            "eta_drain_ms": "" if drain is None else round(min(drain, 1e9) * 1000),
        }
        flat: list[scripts.Argument] = [epoch, ttl, round(settings.stuck_after * 1000) if own else ""]
        for name, value in fields.items():
            flat += [name, value]
        return scripts.Call("publish_pacing", keys.meta(tag), tuple(flat))


def follow(before: Trend, totals: Totals | None, now: float) -> Trend:
    """The trend after one more look at the counters; a counter that fell starts anew."""
    if totals is None:
        return Trend()
    earlier, elapsed = before.totals, now - before.at
    if earlier is None or elapsed <= 0 or totals.started < earlier.started or totals.completed < earlier.completed:
        return replace(before, totals=totals, at=now)
    begun, ended = totals.started - earlier.started, totals.completed - earlier.completed
    delay = (totals.delay_ms - earlier.delay_ms) / begun / 1000 if begun else None
    if not begun and before.average_delay is not None:
        delay = 0.0  # nothing started: let an old delay fade
    arrived = totals.enqueued - earlier.enqueued
    return Trend(
        totals=totals,
        at=now,
        average_delay=pacing.smooth(before.average_delay, delay),
        throughput=pacing.smooth(before.throughput, ended / elapsed),
        growth=pacing.smooth(before.growth, arrived / ended if ended else None),
    )


def over_limit(settings: QueueSettings, server: ServerSnapshot) -> bool:
    """Whether Redis uses more memory than `cache_limit` allows."""
    limit = settings.pacing.cache_limit.of(server.maxmemory)
    return limit is not None and limit > 0 and server.used_memory > limit


def rules_of(settings: QueueSettings) -> pacing.PacingRules:
    """The pacing rules of a queue's settings."""
    chosen = settings.pacing
    return pacing.PacingRules(
        base_interval=chosen.base_interval,
        max_interval=chosen.max_interval,
        delay_threshold=chosen.delay_threshold,
        backlog_threshold=chosen.backlog_threshold,
        penalty_factor=chosen.cache_penalty_factor,
        jitter=chosen.jitter,
    )
