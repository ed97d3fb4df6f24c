"""What the board knows of one queue. Plain state: the board's lock guards it, readers get a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from unstuck.model import Capability, Mode, QueueSnapshot, Standing, Verdict
from unstuck_exporters import labels
from unstuck_exporters.history import History
from unstuck_exporters.tally import JOB_BUCKETS, Histogram, Tally

MOST_VERDICTS: Final = 500
"""Verdicts kept per queue for people to read; the counts are of all."""

_RECLAIM_KEYS: Final = tuple((action, reason) for action in labels.ACTIONS for reason in labels.REASONS)
_REASON_KEYS: Final = tuple((reason,) for reason in labels.REASONS)
_SKIP_KEYS: Final = tuple((cause,) for cause in labels.SKIP_CAUSES)
_FAILURE_KEYS: Final = tuple((kind,) for kind in labels.FAILURE_KINDS)


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

    def published(self, at: float) -> Paced:
        """The same, published at that Unix time."""
        return replace(self, at=at)


@dataclass(frozen=True, slots=True)
class Brake:
    """Whether reclaiming is held back because too many jobs look stuck at once (S6)."""

    engaged: bool = False
    condemned: int = 0
    in_flight: int = 0
    detail: str = ""  # one sentence


NO_BRAKE: Final = Brake()


@dataclass(slots=True)
class QueueLedger:
    """One queue: how it is set up, how it looked last, and what the agent has counted about it."""

    backend: str
    queue: str
    configured: bool = False
    mode: Mode = Mode.OBSERVE
    backlog_threshold: int | None = None
    sweep_interval: float = 2.0  # seconds between two looks at this queue

    snapshot: QueueSnapshot | None = None  # without its leases
    looked_at: float = 0.0  # monotonic
    last_seen: float = 0.0  # monotonic; when anything was last heard of it

    verdicts: tuple[Verdict, ...] = ()  # what is not healthy, the worst first, at most MOST_VERDICTS
    judged_at: float | None = None  # monotonic
    stuck: Tally = field(default_factory=lambda: Tally.zeros(_REASON_KEYS))
    suspects: int = 0
    stuck_since: float | None = None  # Unix time; None: nothing is stuck
    condemned: frozenset[tuple[str, str]] = frozenset()  # job and token of what is stuck, to tell what is new

    detected: Tally = field(default_factory=lambda: Tally.zeros(_REASON_KEYS))
    reclaims: Tally = field(default_factory=lambda: Tally.zeros(_RECLAIM_KEYS))  # action, reason
    failures: Tally = field(default_factory=lambda: Tally.zeros(_FAILURE_KEYS))
    skipped: Tally = field(default_factory=lambda: Tally.zeros(_SKIP_KEYS))
    reclaim_delay: Histogram = field(default_factory=lambda: Histogram(JOB_BUCKETS))
    poison: int = 0
    brake: Brake = NO_BRAKE

    paced: Paced | None = None
    resets: Tally = field(default_factory=Tally)
    invalidations: Tally | None = None  # None: this agent invalidates nothing here
    invalidation_failures: int = 0

    history: History = field(default_factory=History)

    @property
    def capability(self) -> Capability:
        """What the layout allows; `observe` until the first look says more."""
        return self.snapshot.capability if self.snapshot else Capability.OBSERVE

    @property
    def stuck_jobs(self) -> int:
        """Jobs judged stuck now, over all reasons."""
        return sum(self.stuck.values())

    def look(self, snapshot: QueueSnapshot, now: float, wall: float) -> None:
        """Take over a look. A look that failed keeps the one before, which then ages."""
        self.last_seen = now
        if snapshot.error and self.snapshot is not None:
            self.snapshot = replace(self.snapshot, error=snapshot.error)
            return
        self.snapshot = replace(snapshot, leases=())
        self.looked_at = now
        if not snapshot.error and self.history.due(now):
            totals = snapshot.totals
            self.history.add(
                now,
                wall,
                waiting=snapshot.waiting,
                running=snapshot.running,
                stuck=self.stuck_jobs,
                oldest=snapshot.oldest_waiting,
                done=None if totals is None else totals.completed + totals.failed,
            )

    def judge(self, verdicts: Sequence[Verdict], now: float, wall: float) -> None:
        """Take over the verdicts on all in-flight jobs (healthy ones may be left out)."""
        self.judged_at = now
        stuck = [v for v in verdicts if v.standing is Standing.STUCK]
        unsure = {(v.lease.job, v.lease.token) for v in verdicts if v.standing is Standing.INCONCLUSIVE}
        counts = Tally.zeros(_REASON_KEYS)
        for verdict in stuck:
            reason = verdict.reason.value if verdict.reason else labels.OTHER
            counts.add(reason)
            if (verdict.lease.job, verdict.lease.token) not in self.condemned:
                self.detected.add(reason)
        self.stuck = counts
        self.suspects = sum(1 for v in verdicts if v.standing is Standing.SUSPECT)
        # What was stuck before the gate closed is no news when it opens again.
        self.condemned = frozenset((v.lease.job, v.lease.token) for v in stuck) | (self.condemned & unsure)
        self.stuck_since = wall - max(map(stuck_for, stuck)) if stuck else None
        rank = {Standing.STUCK: 0, Standing.SUSPECT: 1, Standing.INCONCLUSIVE: 2}
        unwell = [v for v in verdicts if v.standing in rank]
        unwell.sort(key=lambda v: (rank[v.standing], -v.unchanged, v.lease.job))
        self.verdicts = tuple(unwell[:MOST_VERDICTS])

    def fresh(self, now: float) -> bool:
        """Whether the last good look is young enough to be shown as the present."""
        return self.snapshot is not None and now - self.looked_at <= max_age(self.sweep_interval)

    def copy(self) -> QueueLedger:
        """A copy that later writes do not change; the history is shared, take its points under the lock."""
        return replace(
            self,
            detected=Tally(self.detected),
            reclaims=Tally(self.reclaims),
            failures=Tally(self.failures),
            skipped=Tally(self.skipped),
            reclaim_delay=self.reclaim_delay.copy(),
            resets=Tally(self.resets),
            invalidations=None if self.invalidations is None else Tally(self.invalidations),
        )


def max_age(sweep_interval: float) -> float:
    """Seconds after which data of a look is absent rather than frozen."""
    return max(3 * sweep_interval, 15.0)


def stuck_for(verdict: Verdict) -> float:
    """Seconds a stuck job has been stuck: since its threshold passed, or since we first said so if that is longer."""
    return max(verdict.since, verdict.unchanged - verdict.lease.threshold, 0.0)
