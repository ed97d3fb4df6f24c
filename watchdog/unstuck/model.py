"""The nouns every room of the house shares: plain, frozen, without I/O.

An adapter looks at Redis and returns a `QueueSnapshot`; judging turns its leases into `Verdict`s; reclaiming acts on
the condemned ones and answers with `Reclaimed`; what happened travels on as an `Event`. Durations are seconds as
`float`, stored times are Redis server time in milliseconds as `int`; every attribute says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

_NOTHING: Mapping[str, str | int | float] = MappingProxyType({})
_NO_COUNTS: Mapping[str, int] = MappingProxyType({})


def nothing() -> Mapping[str, str | int | float]:
    """The empty evidence, shared by all who have none."""
    return _NOTHING


def no_counts() -> Mapping[str, int]:
    """The empty table of counts."""
    return _NO_COUNTS


class Mode(StrEnum):
    """What the agent may do about a stuck job."""

    OBSERVE = "observe"
    RECLAIM = "reclaim"


class Capability(StrEnum):
    """What the layout of a queue system allows at all."""

    RECLAIM = "reclaim"
    OBSERVE = "observe"


class Standing(StrEnum):
    """The outcome of judging one lease."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"  # evidence against it, but not yet watched for long enough
    STUCK = "stuck"  # watched for its whole threshold; reclaimable once confirmed
    INCONCLUSIVE = "inconclusive"  # the gate is closed: Redis or the agent itself was unwell


class Reason(StrEnum):
    """Why a lease is suspected. The rules stand in judging.py."""

    LOCK_WITHOUT_HEARTBEAT = "lock_without_heartbeat"
    LOCK_EXPIRED = "lock_expired"
    NEVER_STARTED = "never_started"
    WORKER_GONE = "worker_gone"
    WORKER_DEAD = "worker_dead"
    DEADLINE_PASSED = "deadline_passed"


class Action(StrEnum):
    """What was done about a finding."""

    NONE = "none"
    REQUEUED = "requeued"
    DEAD_LETTERED = "dead_lettered"
    LOCK_RELEASED = "lock_released"
    LOST_RACE = "lost_race"
    SKIPPED = "skipped"


class Lock(StrEnum):
    """The lock key of a lease: a symptom, never the authority."""

    HELD = "held"
    MISSING = "missing"
    NONE = "none"  # this job or this system has no lock


class Presence(StrEnum):
    """Something of the owner that is there, is not there, or cannot be known."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Lease:
    """One in-flight job as one look saw it."""

    job: str
    worker: str = ""  # empty where the system does not record the owner
    token: str = ""  # what fences the attempt: our token, RQ's execution id, a delivery tag
    heartbeat: str = ""  # opaque sign of life; equal strings mean "has not beaten"; empty: never beat
    owner_beat: str = ""  # opaque sign of life of the owner itself, apart from this job's
    heartbeat_age: float | None = None  # seconds by the server's own times; None: only observed change counts
    running: float | None = None  # seconds since the attempt started; None: not stored
    lock: Lock = Lock.NONE
    threshold: float = 30.0  # seconds without a sign of life after which this lease is stuck
    beat_interval: float | None = None  # seconds between two heartbeats of its owner, where known
    record: Presence = Presence.UNKNOWN  # the owner's record
    connection: Presence = Presence.UNKNOWN  # the owner's control subscription or named connection
    connection_recorded: bool = False  # Redis itself says that the owner once had the connection (control=1)
    overdue: float | None = None  # seconds past expected_by (negative: still to go); None: no deadline
    progress: str = ""  # opaque; unchanged progress with fresh heartbeats means "beats without progress"
    exempt: str = ""  # why this lease is never to be reclaimed (a sentence), empty if it may
    proven: str = ""  # stored proof, for a look without memory (inspect): the sentence that says what proves it
    evidence: Mapping[str, str | int | float] = field(
        default_factory=nothing
    )  # further facts for people; never payloads


@dataclass(frozen=True, slots=True)
class SideFinding:
    """Something wrong with a queue that is not a stuck lease."""

    kind: str  # closed set, documented in docs/findings.md: wrong_type, orphan_body, quarantined, no_worker, …
    detail: str  # one sentence for people
    job: str | None = None
    worker: str = ""
    count: int = 1
    evidence: Mapping[str, str | int | float] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters that only grow, as Redis stores them (reset only by deleting the queue)."""

    enqueued: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    refused: int = 0
    delay_ms: int = 0  # sum over started jobs of claim time - ready_at
    run_ms: int = 0  # sum over ended attempts
    cache_hits: int = 0
    cache_misses: int = 0
    cache_stale: int = 0
    conflicts: int = 0
    dead_dropped: int = 0
    delay_buckets: Mapping[str, int] = field(
        default_factory=no_counts
    )  # upper bound in ms ("inf" last) -> count, not cumulative
    run_buckets: Mapping[str, int] = field(default_factory=no_counts)
    released: int = 0
    rescued: int = 0
    bumped: int = 0  # cache stamps raised by hand
    unheard: int = 0  # invalidation events that nobody listened to

    @property
    def invalidations(self) -> int:
        """Events on the invalidation channel: one for each attempt that ended, and each stamp raised by hand."""
        return self.completed + self.failed + self.released + self.rescued + self.bumped


@dataclass(frozen=True, slots=True)
class Pacing:
    """A published polling interval, as it stands in Redis."""

    interval: float  # seconds
    base: float  # seconds
    score: float  # 0..1
    score_raw: float  # before the clamp
    reason: str
    seq: int
    epoch: int
    computed_at_ms: int


@dataclass(frozen=True, slots=True)
class Pollers:
    """What polls a queue, by its live workers' own records; of a large fleet a sample stands for all."""

    slots: int  # jobs that they can run at once, each of which polls while it has none
    applied_least: float  # seconds between two empty polls, as the workers apply it
    applied_mean: float
    applied_most: float
    on_own_base: int  # workers that do not use the published interval now
    doubts: int  # looks at the published interval that were not believed, so far


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """One queue as one look saw it. Without `error` every count is exact unless `truncated`."""

    backend: str
    queue: str
    capability: Capability
    server_ms: int = 0  # Redis TIME of the look
    waiting: int = 0
    scheduled: int = 0
    running: int = 0  # held, prefetched included
    prefetched: int | None = None
    dead: int = 0
    failed: int = 0
    quarantined: int = 0
    oldest_waiting: float | None = None  # seconds; None: empty or not stored
    oldest_running: float | None = None  # seconds
    oldest_dead_ms: int | None = None
    workers: Mapping[str, int] = field(default_factory=no_counts)  # state (busy, idle, lost) -> count
    paused: bool = False
    complete: bool = False  # True: `leases` lists every in-flight job; False: only the candidates
    leases: tuple[Lease, ...] = ()
    locks_held: int | None = None
    locks_without_expiry: int | None = None
    soonest_lock_expiry_ms: int | None = None
    oldest_heartbeat_ms: int | None = None
    heartbeats_missing: int | None = None
    heartbeat_buckets: Mapping[str, int] | None = None  # upper bound in seconds -> leases at most that old (cumulative)
    next_due_ms: int | None = None
    totals: Totals | None = None  # None: this system does not tell
    pacing: Pacing | None = None
    pollers: Pollers | None = None  # None: no worker, or this system does not tell
    side_findings: tuple[SideFinding, ...] = ()
    truncated: bool = False
    error: str = ""  # one sentence: this queue could not be read, the rest of the look could
    subscribers: int | None = None  # listeners on the invalidation channel
    brake_release_ms: int = 0  # server time at which a person last released the brake of this queue; 0: never

    @property
    def live_workers(self) -> int:
        """Workers that are not lost."""
        return sum(count for state, count in self.workers.items() if state != "lost")


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """Redis itself, as INFO and TIME told it in one look. Input of the gate."""

    run_id: str
    replication_id: str
    role: str  # master or slave
    version: str
    server_ms: int  # TIME
    uptime: float  # seconds
    loading: bool = False
    used_memory: int = 0  # bytes
    maxmemory: int = 0  # bytes, 0 = none
    policy: str = "noeviction"
    evicted_keys: int = 0
    write_errors: Mapping[str, int] = field(default_factory=no_counts)  # error class (OOM, READONLY, …) -> count so far
    connected_replicas: int = 0
    min_replicas: int = 0  # min-replicas-to-write, 0 where not set or not readable
    good_replicas: int | None = None
    keyspace_hits: int = 0
    keyspace_misses: int = 0
    server_name: str = "redis"


@dataclass(frozen=True, slots=True)
class GateState:
    """Whether verdicts can be trusted now."""

    open: bool
    reasons: tuple[str, ...] = ()  # closed set of causes, see gate.py
    opens_in: float = 0.0  # seconds until it would open if nothing else happens


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement on one lease."""

    backend: str
    queue: str
    lease: Lease
    standing: Standing
    reason: Reason | None = None
    unchanged: float = 0.0  # seconds without a sign of life
    since: float = 0.0  # seconds since this agent first judged it stuck (0 the first time)
    confirmed: bool = False  # S5: two observations at least confirm_after apart, gate open all along
    detail: str = ""  # one sentence


@dataclass(frozen=True, slots=True)
class Condemned:
    """What a reclaim is handed: the evidence that it must find again, unchanged."""

    job: str
    worker: str
    token: str
    heartbeat: str
    lock: Lock
    reason: Reason
    threshold: float  # seconds
    owner_beat: str = ""
    evidence: Mapping[str, str | int | float] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What became of one condemned job."""

    job: str
    action: Action
    cause: str = ""  # for lost_race and skipped: which evidence had changed (state, token, heartbeat, …)
    rescues: int = 0


@dataclass(frozen=True, slots=True)
class Authority:
    """Under which a reclaim or a publication is made: re-checked inside the script."""

    owner: str
    epoch: int
    run_id: str
    replication_id: str


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, for the log, the audit stream, webhooks and the status page."""

    kind: str  # suspected, cleared, stuck, confirmed, requeued, dead_lettered, lost_race, skipped, brake_*, leader_*, gate_*
    at: float  # Unix time of the agent, seconds
    backend: str = ""
    queue: str = ""
    job: str = ""
    worker: str = ""
    token: str = ""
    reason: str = ""
    detail: str = ""
    evidence: Mapping[str, str | int | float] = field(default_factory=dict)
