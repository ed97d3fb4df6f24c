"""Publishing: measure each queue's load and publish the polling interval that follows from it.

The value carries a TTL of three publications, so that a dead agent leaves no old interval behind: workers then use their own
base. So does a queue that cannot be looked at any more: what is not measured is not published. A deposed leader is
refused by the queue's fence. One more value is made for the whole Redis, over all queues as if they were one, with the
settings of the top level: for a worker that serves many queues, and for people. It is exported, not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from unstuck import pacing
from unstuck.config import OWN, QueueSettings
from unstuck.duties.measuring import Trend, drain_seconds, follow, hit_ratio, memory_share, over_limit, whole_delay
from unstuck.duties.sweeping import Judged, Place
from unstuck.model import QueueSnapshot, ServerSnapshot
from unstuck.policies import POLICIES
from unstuck.protocol import keys, scripts

if TYPE_CHECKING:
    from redis import Redis

LEAST_TTL_MS = 15_000
LEAST_PATIENCE_SECONDS = 15.0  # as long a look may be the last one before its queue counts as not measured


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of a queue from one publication to the next."""

    snapshot: QueueSnapshot
    looked_at: float  # monotonic seconds at which that snapshot was new
    trend: Trend = field(default_factory=Trend)
    held: pacing.Held | None = None
    over: bool = False  # memory use is over the limit


@dataclass(frozen=True, slots=True)
class Published:
    """One publication, for the board."""

    place: Place
    decision: pacing.Decision
    trend: Trend
    drain: float | None = None  # seconds until the backlog is gone at the present throughput
    memory_share: float | None = None  # of the limit
    changed: str = ""  # why the interval changed, one sentence; empty if it did not
    drained: bool = False  # it went back to the base
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Whole:
    """The value for all queues of this Redis together."""

    decision: pacing.Decision
    pollers: int
    pending: int
    keyspace_hit_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass published. `unmeasured` are queues whose interval lapses now, because nothing is known of them."""

    published: tuple[Published, ...] = ()
    unmeasured: tuple[Place, ...] = ()
    whole: Whole | None = None


class Publisher:
    """Publishes for every queue of the last sweep. `every` is the time between two publications, in seconds."""

    def __init__(self, client: Redis, every: float, settings: QueueSettings) -> None:
        self._client = client
        self._every = every
        self._settings = settings
        self._known: dict[Place, Known] = {}
        self._whole: pacing.Held | None = None
        self._over = False
        self._server: ServerSnapshot | None = None
        self._keyspace: float | None = None

    def publish(self, queues: Sequence[Judged], server: ServerSnapshot, epoch: int, now: float) -> Pass:
        """One pass. A refusal stands in `Published.error`; a broken connection raises."""
        measured = [judged for judged in queues if self._measure(judged, server, now)]
        lapsed = self._forget({judged.place for judged in queues}, {judged.place for judged in measured})
        fleet = sum(pollers_of(judged.snapshot) for judged in measured if judged.settings.pacing.policy == "fleet")
        made, calls = [], []
        for judged in measured:
            published = self._decide(judged, server, fleet)
            made.append(published)
            calls.append(self._call(judged, published, epoch))
        answers = scripts.run_many(self._client, calls) if calls else []
        told = tuple(
            replace(published, error=answer) if isinstance(answer, Exception) else published
            for published, answer in zip(made, answers, strict=True)
        )
        return Pass(told, lapsed, self._for_all(measured, server))

    def _forget(self, there: set[Place], measured: set[Place]) -> tuple[Place, ...]:
        """Forget queues that are gone, and the flow of those that are not measured; the latter are returned, once."""
        self._known = {place: known for place, known in self._known.items() if place in there}
        lapsed = tuple(place for place, known in self._known.items() if place not in measured and known.held)
        for place in lapsed:
            self._known[place] = replace(self._known[place], held=None, trend=Trend())
        return lapsed

    def _measure(self, judged: Judged, server: ServerSnapshot, now: float) -> bool:
        """Follow the queue's counters if this look is a new one. False: nothing is known of its load."""
        place, snapshot = judged.place, judged.snapshot
        known = self._known.get(place)
        if snapshot.error:
            return False
        if known is not None and known.snapshot is snapshot:
            return now - known.looked_at <= max(LEAST_PATIENCE_SECONDS, 3 * judged.settings.sweep_interval)
        at = snapshot.server_ms / 1000 if snapshot.server_ms else now
        known = known or Known(snapshot, now)
        self._known[place] = replace(
            known,
            snapshot=snapshot,
            looked_at=now,
            trend=follow(known.trend, snapshot.totals, at, waiting=snapshot.waiting),
            over=over_limit(judged.settings.pacing, server, before=known.over),
        )
        return True

    def _decide(self, judged: Judged, server: ServerSnapshot, fleet: int) -> Published:
        known, snapshot, settings = self._known[judged.place], judged.snapshot, judged.settings.pacing
        delay = known.trend.average_delay if snapshot.totals else snapshot.oldest_waiting
        load = pacing.Load(delay, snapshot.waiting, known.over, fleet)
        rules = rules_of(judged.settings)
        held = pacing.steady(known.held, POLICIES[settings.policy].decide(load, rules), rules)
        self._known[judged.place] = replace(known, held=held)
        decision, share = held.decision, memory_share(settings, server)
        return Published(
            judged.place,
            decision,
            known.trend,
            drain_seconds(known.trend, snapshot.waiting),
            share,
            changed=told(held.before, decision, load, rules, share) if held.before is not None else "",
            drained=held.before is not None and decision.interval <= decision.base * (1 + pacing.IDLE_SCORE),
        )

    def _call(self, judged: Judged, published: Published, epoch: int) -> scripts.Call:
        snapshot, settings, decision = judged.snapshot, judged.settings, published.decision
        own = snapshot.backend == OWN
        tag = snapshot.queue if own else keys.tag(snapshot.backend, snapshot.queue)
        ttl = max(LEAST_TTL_MS, round(3 * self._every * 1000))
        growth, drain = published.trend.growth, published.drain
        fields: dict[str, Any] = {
            "interval_ms": max(1, round(decision.interval * 1000)),
            "base_ms": max(1, round(decision.base * 1000)),
            "min_ms": max(1, round(decision.base * 1000)),
            "max_ms": max(1, round(decision.max_interval * 1000)),
            "score": f"{decision.score:.4f}",
            "score_raw": f"{min(decision.score_raw, 1e6):.4f}",
            "reason": decision.reason,
            "jitter": f"{settings.pacing.jitter:.3f}",
            "backlog": snapshot.waiting,
            "oldest_age_ms": round((snapshot.oldest_waiting or 0.0) * 1000),
            "growth_ratio": "" if growth is None else f"{growth:.3f}",
            "eta_drain_ms": "" if drain is None else round(min(drain, 1e9) * 1000),
        }
        flat: list[scripts.Argument] = [epoch, ttl, round(settings.stuck_after * 1000) if own else ""]
        for name, value in fields.items():
            flat += [name, value]
        return scripts.Call("publish_pacing", keys.meta(tag), tuple(flat))

    def _for_all(self, measured: Sequence[Judged], server: ServerSnapshot) -> Whole | None:
        """The value for the whole Redis."""
        if self._server is not server:
            self._keyspace = hit_ratio(self._keyspace, self._server, server)
            self._over = over_limit(self._settings.pacing, server, before=self._over)
            self._server = server
        if not measured:
            self._whole = None
            return None
        pending = sum(judged.snapshot.waiting for judged in measured)
        pollers = sum(pollers_of(judged.snapshot) for judged in measured)
        delay = whole_delay(self._known[judged.place].trend for judged in measured)
        load, rules = pacing.Load(delay, pending, self._over, pollers), rules_of(self._settings)
        fresh = POLICIES[self._settings.pacing.policy].decide(load, rules)
        self._whole = pacing.steady(self._whole, fresh, rules)
        return Whole(self._whole.decision, pollers, pending, self._keyspace)


def pollers_of(snapshot: QueueSnapshot) -> int:
    """What polls a queue: the slots of its live workers, or the workers where their slots are not told."""
    return snapshot.pollers.slots if snapshot.pollers else snapshot.live_workers


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
        fleet_rate=chosen.fleet_rate,
        hysteresis=chosen.hysteresis,
    )


def told(
    before: float, decision: pacing.Decision, load: pacing.Load, rules: pacing.PacingRules, share: float | None
) -> str:
    """One sentence: from which interval to which, and why."""
    return (
        f"{before * 1000:.0f} ms → {decision.interval * 1000:.0f} ms: {', '.join(_why(decision, load, rules, share))}"
    )


def _why(decision: pacing.Decision, load: pacing.Load, rules: pacing.PacingRules, share: float | None) -> Iterator[str]:
    match decision.reason:
        case "fixed":
            yield "the policy is fixed"
        case "pollers":
            yield f"{load.pollers} pollers at {rules.fleet_rate:g} polls/s"
        case "idle":
            yield "no load"
        case _:
            if decision.reason == "memory":
                used = "" if share is None else f" ({share:.0%} of the limit)"
                yield f"memory use of Redis{used} x {decision.penalty:g}"
            yield f"average delay {pacing.sane(load.average_delay):.1f} s of {rules.delay_threshold:g} s"
            yield f"{load.pending} waiting of {rules.backlog_threshold:g}"
