"""Proving: what two looks, a few seconds apart, can say about a lease without having watched it for its whole threshold.

Pure. `stuck` only where what is stored proves it: no heartbeat for the threshold by the server's own times, a lease long
over, the owner's record or connection gone at both looks, and nothing of it changed between. Where only longer watching
could tell, the verdict is `suspect` and says for how long. What may go wrong: on a replica nobody's connection is seen, so
a missing one is no evidence there; and while Redis refuses writes, every healthy job looks dead: then `inconclusive`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from unstuck.gate import CAUSES, present_causes
from unstuck.gate import changes as changes_of
from unstuck.judging import Rules, judge
from unstuck.model import (
    GateState,
    Lease,
    Lock,
    Presence,
    QueueSnapshot,
    Reason,
    ServerSnapshot,
    SideFinding,
    Standing,
    Verdict,
)

_OPEN = GateState(open=True)
_BY_CONNECTION = frozenset({"no_worker", "lost_worker"})


@dataclass(frozen=True, slots=True)
class Looks:
    """What is known about the two looks as a whole. `between`: seconds from the end of the first to the second."""

    between: float
    causes: Collection[str] = ()  # of the gate, as they are now
    primary: bool = True

    @property
    def doubts(self) -> list[str]:
        """Causes that make silence no evidence. To look at a replica is no such cause: its primary may be well."""
        return sorted(cause for cause in self.causes if cause != "readonly" or self.primary)


def gate_now(first: ServerSnapshot, second: ServerSnapshot, elapsed: float) -> GateState:
    """The gate by what is there now and what changed between the looks, without a window."""
    causes = present_causes(second) | changes_of(first, second, elapsed)
    return GateState(open=not causes, reasons=tuple(sorted(causes)))


def conclude(first: QueueSnapshot | None, second: QueueSnapshot, rules: Rules, looks: Looks) -> tuple[Verdict, ...]:
    """Verdicts on the leases of the second look; `first` is None where the queue was not there yet."""
    if not looks.primary:
        first, second = first and blind(first), blind(second)
    before = {lease.job: lease for lease in first.leases} if first else {}
    memory = judge(first, {}, _OPEN, rules, 0.0)[1] if first else {}
    verdicts, _ = judge(second, memory, _OPEN, rules, looks.between)
    return tuple(_doubted(_weighed(one, before.get(one.lease.job)), looks) for one in verdicts)


def blind(snapshot: QueueSnapshot) -> QueueSnapshot:
    """The snapshot as a replica can know it: connections are seen at the primary only."""
    leases = tuple(
        replace(lease, connection=Presence.UNKNOWN, proven=_proven_blind(lease)) for lease in snapshot.leases
    )
    kept: tuple[SideFinding, ...] = tuple(one for one in snapshot.side_findings if one.kind not in _BY_CONNECTION)
    workers = {"known": sum(snapshot.workers.values())} if snapshot.workers else snapshot.workers
    return replace(snapshot, leases=leases, side_findings=kept, workers=workers)


def _proven_blind(lease: Lease) -> str:
    """A proof that holds without connections: the record is gone and the lease is over."""
    return lease.proven if lease.record is Presence.ABSENT and lease.lock is Lock.MISSING else ""


def _weighed(verdict: Verdict, before: Lease | None) -> Verdict:
    lease = verdict.lease
    if verdict.standing is Standing.STUCK:
        return verdict
    still = before is not None and (before.token, before.heartbeat, before.owner_beat) == (
        lease.token,
        lease.heartbeat,
        lease.owner_beat,
    )
    proof = _proof(lease, before) if still and before is not None else ""
    if proof:
        standing, detail = (Standing.SUSPECT, f"{proof} {lease.exempt}") if lease.exempt else (Standing.STUCK, proof)
        return replace(verdict, standing=standing, reason=_reason(lease), detail=detail)
    doubt = verdict.detail or _doubt(lease)
    if not doubt:
        return verdict
    if lease.exempt:
        detail = f"{doubt}; {lease.exempt}"
    else:
        detail = f"{doubt}; only watching it for {lease.threshold:.0f} s could tell (unstuck sweep)"
    return replace(verdict, standing=Standing.SUSPECT, reason=verdict.reason or _reason(lease), detail=detail)


def _proof(lease: Lease, before: Lease) -> str:
    """The sentence that proves it, for a lease of which nothing changed between the looks."""
    if lease.proven and before.proven:
        return lease.proven
    gone = lease.record is Presence.ABSENT and before.record is Presence.ABSENT and lease.worker != ""
    silent = lease.heartbeat_age is not None and lease.beat_interval is not None
    if gone and silent and (lease.heartbeat_age or 0.0) >= 2 * (lease.beat_interval or 0.0):
        return f"the worker's record is gone and neither it nor the job has beaten for {lease.heartbeat_age:.0f} s"
    return ""


def _doubt(lease: Lease) -> str:
    """What speaks against a lease that judging has nothing against yet."""
    if not lease.heartbeat and lease.lock is not Lock.HELD:
        return "in flight with neither lock nor heartbeat"
    if lease.heartbeat_age is not None:
        return ""  # the server's own times say that it beats
    if lease.worker and lease.record is Presence.ABSENT:
        return "the worker's record is gone"
    if lease.lock is Lock.MISSING:
        return "its lease is over"
    if lease.connection is Presence.ABSENT:
        return "the worker's connection is not there"
    return ""


def _reason(lease: Lease) -> Reason:
    if lease.worker and lease.record is Presence.ABSENT:
        return Reason.WORKER_DEAD
    if lease.connection is Presence.ABSENT:
        return Reason.WORKER_GONE
    if not lease.heartbeat and lease.lock is not Lock.HELD:
        return Reason.NEVER_STARTED
    return Reason.LOCK_WITHOUT_HEARTBEAT if lease.lock is Lock.HELD else Reason.LOCK_EXPIRED


def _doubted(verdict: Verdict, looks: Looks) -> Verdict:
    if verdict.standing is Standing.HEALTHY or not looks.doubts:
        return verdict
    why = "; ".join(CAUSES.get(cause, cause) for cause in looks.doubts)
    return replace(verdict, standing=Standing.INCONCLUSIVE, detail=f"{verdict.detail}; but {why}")
