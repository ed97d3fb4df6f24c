"""What the board knows of one queue: values that are never changed, only replaced by newer ones.

So a reader's copy of a thousand queues costs nothing, and what did not change need not be written out anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from unstuck.model import Action, Capability, Mode, QueueSnapshot, Reason, Reclaimed, Standing, Verdict
from unstuck_exporters import labels
from unstuck_exporters.history import History
from unstuck_exporters.tally import JOB_BUCKETS, Histogram, Tally

MOST_VERDICTS: Final = 500
"""Verdicts kept per queue for people to read; the counts are of all."""

_NO_REASONS: Final = Tally.zeros([(reason,) for reason in labels.REASONS])
_NO_RECLAIMS: Final = Tally.zeros([(action, reason) for action in labels.ACTIONS for reason in labels.REASONS])
_NO_FAILURES: Final = Tally.zeros([(kind,) for kind in labels.USUAL_FAILURES])
_NO_RESETS: Final = Tally.zeros([(cause,) for cause in labels.USUAL_RESETS])
_NO_SKIPS: Final = Tally.zeros([(cause,) for cause in labels.USUAL_SKIPS])


@dataclass(frozen=True, slots=True)
class Paced:
    """A polling interval that was published, with the parts that led to it."""

    interval: float  # seconds
    base: float  # seconds
    score: float  # 0..1
    delay_part: float  # before the clamp
    backlog_part: float  # before the clamp
    penalty: float = 1.0  # multiplier of the memory limit in force, 1 = none
    average_delay: float | None = None  # seconds; None: the system does not tell
    reason: str = ""
    at: float = 0.0  # Unix time of the publication, seconds; the board fills it in
    growth: float | None = None  # enqueued / completed, smoothed; None: nothing flows
    drain: float | None = None  # seconds until the backlog is gone; None: nothing is completed
    throughput: float | None = None  # jobs completed per second, smoothed
    memory_share: float | None = None  # of the limit; None: there is none
    cache_hit_ratio: float | None = None  # of the workers' own reads, smoothed; None: none
    changed: str = ""  # why the interval last changed, one sentence; the board keeps it


@dataclass(frozen=True, slots=True)
class PacedWhole:
    """The polling interval for all queues of this Redis as if they were one; exported only."""

    interval: float  # seconds
    score: float  # 0..1
    pollers: int  # what polls when nothing is to be done
    reason: str = ""
    keyspace_hit_ratio: float | None = None  # of Redis' look-ups, smoothed
    at: float = 0.0  # Unix time, seconds; the board fills it in


@dataclass(frozen=True, slots=True)
class Brake:
    """Whether reclaiming is held back because too many jobs look stuck at once (S6)."""

    engaged: bool = False
    condemned: int = 0
    in_flight: int = 0
    detail: str = ""  # one sentence


NO_BRAKE: Final = Brake()


@dataclass(frozen=True, slots=True)
class Promises:
    """What the settings of a queue say about when a stuck job is dealt with, and how; for people."""

    gone_after: float = 2.0  # seconds
    confirm_after: float = 2.0  # seconds
    max_rescues: int = 3
    deadline_reclaims: bool = False  # deadline.action is reclaim


@dataclass(frozen=True, slots=True)
class Setup:
    """How a queue is set up."""

    configured: bool = False  # False: only discovered
    mode: Mode = Mode.OBSERVE
    backlog_threshold: int | None = None
    sweep_interval: float = 2.0  # seconds between two looks at this queue
    promises: Promises = Promises()


@dataclass(frozen=True, slots=True)
class Look:
    """The last good look at a queue."""

    snapshot: QueueSnapshot  # without its leases
    at: float  # monotonic


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts on one queue's in-flight jobs."""

    verdicts: tuple[Verdict, ...] = ()  # what is not healthy, the worst first, at most MOST_VERDICTS
    stuck: Tally = field(default_factory=lambda: _NO_REASONS)  # reason -> jobs stuck now
    suspects: int = 0
    since: float | None = None  # Unix time since when the longest stuck one is stuck; None: nothing is stuck
    condemned: frozenset[tuple[str, str]] = frozenset()  # job and token of what is stuck, to tell what is new

    @property
    def stuck_jobs(self) -> int:
        """Jobs judged stuck now, over all reasons."""
        return sum(self.stuck.values())


@dataclass(frozen=True, slots=True)
class Counts:
    """What this agent has counted about one queue since it started."""

    detected: Tally = field(default_factory=lambda: _NO_REASONS)  # reason
    reclaims: Tally = field(default_factory=lambda: _NO_RECLAIMS)  # action, reason
    failures: Tally = field(default_factory=lambda: _NO_FAILURES)  # kind
    skipped: Tally = field(default_factory=lambda: _NO_SKIPS)  # cause
    reclaim_delay: Histogram = field(default_factory=lambda: Histogram(JOB_BUCKETS))
    poison: int = 0
    resets: Tally = field(default_factory=lambda: _NO_RESETS)  # cause
    publish_failures: Tally = field(default_factory=lambda: _NO_FAILURES)  # kind
    invalidations: Tally | None = None  # cause; None: this agent invalidates nothing here
    invalidation_failures: int = 0

    def found(self, reasons: Mapping[str, int]) -> Counts:
        """After jobs were newly judged stuck."""
        detected = self.detected
        for reason, count in reasons.items():
            detected = detected.plus(reason, count=count)
        return replace(self, detected=detected)

    def outcome(self, reason: Reason, outcome: Reclaimed, delay: float | None, wall: float) -> Counts:
        """After a reclaim was tried."""
        if outcome.action is Action.LOST_RACE:
            return replace(self, skipped=self.skipped.plus("lost_race"))
        if outcome.action in (Action.SKIPPED, Action.NONE):
            return replace(self, skipped=self.skipped.plus(labels.known(outcome.cause, labels.SKIP_CAUSES)))
        delays = self.reclaim_delay
        if delay is not None:
            delays = delays.copy()
            delays.observe(delay, {"job_id": outcome.job}, wall)
        return replace(
            self,
            reclaims=self.reclaims.plus(outcome.action.value, reason.value),
            reclaim_delay=delays,
            poison=self.poison + (outcome.action is Action.DEAD_LETTERED),
        )


_NOTHING: Final = Counts()


@dataclass(frozen=True, slots=True)
class QueueLedger:
    """One queue: how it is set up, how it looked last, and what the agent has counted about it."""

    backend: str
    queue: str
    last_seen: float  # monotonic; when a look last spoke of it
    setup: Setup = Setup()
    look: Look | None = None
    trouble: str = ""  # one sentence: why the last look could not read this queue
    judgement: Judgement = Judgement()
    counts: Counts = _NOTHING
    brake: Brake = NO_BRAKE
    paced: Paced | None = None
    history: History = field(default_factory=History)  # the one thing here that does change: read it under the lock

    @property
    def capability(self) -> Capability:
        """What the layout allows; `observe` until the first look says more."""
        return self.look.snapshot.capability if self.look else Capability.OBSERVE

    @property
    def reclaims_allowed(self) -> bool:
        """Whether a stuck job of this queue would be reclaimed."""
        return self.setup.mode is Mode.RECLAIM and self.capability is Capability.RECLAIM

    def fresh(self, now: float) -> bool:
        """Whether the last good look is young enough to be shown as the present."""
        return self.look is not None and now - self.look.at <= max_age(self.setup.sweep_interval)

    def looked(self, snapshot: QueueSnapshot, now: float, wall: float) -> QueueLedger:
        """After a look. One that failed keeps the look before, which then ages."""
        if snapshot.error:
            return replace(self, trouble=snapshot.error, last_seen=now)
        if self.history.due(now):
            totals = snapshot.totals
            self.history.add(
                now,
                wall,
                waiting=snapshot.waiting,
                running=snapshot.running,
                stuck=self.judgement.stuck_jobs,
                oldest=snapshot.oldest_waiting,
                done=None if totals is None else totals.completed + totals.failed,
            )
        kept = replace(snapshot, leases=()) if snapshot.leases else snapshot
        return replace(self, look=Look(kept, now), trouble="", last_seen=now)

    def judged(self, verdicts: Sequence[Verdict], wall: float) -> QueueLedger:
        """After judging all in-flight jobs (healthy ones may be left out)."""
        if not verdicts:
            return replace(self, judgement=_ALL_WELL) if self.judgement is not _ALL_WELL else self
        stuck = [v for v in verdicts if v.standing is Standing.STUCK]
        unsure = {(v.lease.job, v.lease.token) for v in verdicts if v.standing is Standing.INCONCLUSIVE}
        counts, news = Tally(_NO_REASONS), Tally()
        for verdict in stuck:
            reason = verdict.reason.value if verdict.reason else labels.OTHER
            counts.add(reason)
            if (verdict.lease.job, verdict.lease.token) not in self.judgement.condemned:
                news.add(reason)
        rank = {Standing.STUCK: 0, Standing.SUSPECT: 1, Standing.INCONCLUSIVE: 2}
        unwell = [v for v in verdicts if v.standing in rank]
        unwell.sort(key=lambda v: (rank[v.standing], -v.unchanged, v.lease.job))
        judgement = Judgement(
            verdicts=tuple(unwell[:MOST_VERDICTS]),
            stuck=counts,
            suspects=sum(1 for v in verdicts if v.standing is Standing.SUSPECT),
            since=wall - max(map(stuck_for, stuck)) if stuck else None,
            # What was stuck before the gate closed is no news when it opens again.
            condemned=frozenset((v.lease.job, v.lease.token) for v in stuck) | (self.judgement.condemned & unsure),
        )
        counted = self.counts.found({reason: count for (reason,), count in news.items()}) if news else self.counts
        return replace(self, judgement=judgement, counts=counted)


_ALL_WELL: Final = Judgement()


def max_age(sweep_interval: float) -> float:
    """Seconds after which data of a look is absent rather than frozen."""
    return max(3 * sweep_interval, 15.0)


def stuck_for(verdict: Verdict) -> float:
    """Seconds a stuck job has been stuck: since its threshold passed, or since we first said so if that is longer."""
    return max(verdict.since, verdict.unchanged - verdict.lease.threshold, 0.0)
