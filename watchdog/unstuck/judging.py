"""Judging: which leases are stuck, and which of them have been seen so for long enough to be reclaimed.

A pure function of a snapshot, the watcher's memory and a clock: no I/O. Ages of our own protocol are server TIME minus a
stored server time; of a foreign system only *observed change* counts: how long, on our monotonic clock, we have watched its
sign of life not change. A verdict is confirmed (S5) only by two observations of the same token and heartbeat at least
`confirm_after` apart, with an open gate and no gap between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from unstuck.model import GateState, Lease, Lock, Presence, QueueSnapshot, Reason, Standing, Verdict


@dataclass(frozen=True, slots=True)
class Rules:
    """The times of one queue that judging needs; seconds."""

    gone_after: float = 2.0
    confirm_after: float = 2.0
    deadline_grace: float = 0.0


@dataclass(frozen=True, slots=True)
class Watched:
    """What the watcher remembers of one attempt; monotonic seconds."""

    token: str
    heartbeat: str
    owner_beat: str
    progress: str
    first_seen: float
    changed_at: float  # the sign of life was last seen to change (or first seen)
    progressed_at: float
    connection_seen: bool = False  # we have seen its owner's connection ourselves
    connection_absent_since: float | None = None
    record_absent_since: float | None = None
    stuck_since: float | None = None  # first of the two observations
    stuck_by_deadline: bool = False  # that one was made of a missed deadline, and of nothing else


Memory = Mapping[str, Watched]


def watch(lease: Lease, before: Watched | None, now: float) -> Watched:
    """The memory of one attempt after one more look."""
    if before is None or before.token != lease.token:
        before = Watched(
            token=lease.token,
            heartbeat=lease.heartbeat,
            owner_beat=lease.owner_beat,
            progress=lease.progress,
            first_seen=now,
            changed_at=now,
            progressed_at=now,
        )
    beaten = before.heartbeat != lease.heartbeat
    owner_beaten = before.owner_beat != lease.owner_beat
    absent_since = before.connection_absent_since
    if lease.connection is not Presence.ABSENT:
        absent_since = None
    elif absent_since is None or beaten or owner_beaten:
        absent_since = now
    record_since = before.record_absent_since
    if lease.record is not Presence.ABSENT:
        record_since = None
    elif record_since is None or beaten or owner_beaten:
        record_since = now
    return replace(
        before,
        heartbeat=lease.heartbeat,
        owner_beat=lease.owner_beat,
        progress=lease.progress,
        changed_at=now if beaten else before.changed_at,
        progressed_at=now if before.progress != lease.progress else before.progressed_at,
        connection_seen=before.connection_seen or lease.connection is Presence.PRESENT,
        connection_absent_since=absent_since,
        record_absent_since=record_since,
        stuck_since=None if beaten else before.stuck_since,
    )


def accuse(lease: Lease, seen: Watched, rules: Rules, now: float) -> tuple[Standing, Reason | None, str]:
    """What speaks against one lease, whatever the gate says: (standing, reason, sentence)."""
    unchanged = silence(lease, seen, now)
    recorded = lease.connection_recorded or seen.connection_seen
    gone_for = now - seen.connection_absent_since if seen.connection_absent_since is not None else -1.0
    if recorded and gone_for >= rules.gone_after:
        return Standing.STUCK, Reason.WORKER_GONE, f"the worker's connection has been gone for {gone_for:.1f} s"
    never = not lease.heartbeat and lease.lock is not Lock.HELD
    if unchanged >= lease.threshold:
        if never:
            return Standing.STUCK, Reason.NEVER_STARTED, f"in flight for {unchanged:.0f} s without lock or heartbeat"
        if lease.lock is Lock.HELD:
            return Standing.STUCK, Reason.LOCK_WITHOUT_HEARTBEAT, f"locked, but no heartbeat for {unchanged:.0f} s"
        return Standing.STUCK, Reason.LOCK_EXPIRED, f"no lock and no heartbeat for {unchanged:.0f} s"
    dead_for = now - seen.record_absent_since if seen.record_absent_since is not None else -1.0
    if lease.worker and lease.beat_interval is not None and dead_for >= 2 * lease.beat_interval:
        return Standing.STUCK, Reason.WORKER_DEAD, f"the worker's record has been gone for {dead_for:.0f} s"
    if lease.overdue is not None and lease.overdue > rules.deadline_grace:
        still = now - seen.progressed_at
        told = f"expected to end {lease.overdue:.0f} s ago"
        if still >= (lease.beat_interval or 0.0) * 2 and unchanged < lease.threshold:
            told += f"; heartbeats without progress for {still:.0f} s"
        return Standing.STUCK, Reason.DEADLINE_PASSED, told
    if recorded and gone_for >= 0:
        return Standing.SUSPECT, Reason.WORKER_GONE, "the worker's connection has just gone"
    if dead_for >= 0 and lease.worker:
        return Standing.SUSPECT, Reason.WORKER_DEAD, "the worker's record is gone"
    if lease.beat_interval is not None and unchanged >= 3 * lease.beat_interval:
        held = lease.lock is Lock.HELD
        reason = Reason.LOCK_WITHOUT_HEARTBEAT if held else Reason.LOCK_EXPIRED
        return Standing.SUSPECT, reason, f"no heartbeat for {unchanged:.0f} s of {lease.threshold:.0f} s"
    return Standing.HEALTHY, None, ""


def silence(lease: Lease, seen: Watched, now: float) -> float:
    """Seconds without a sign of life: by the server's own times where it stores them, else as we watched."""
    return lease.heartbeat_age if lease.heartbeat_age is not None else now - seen.changed_at


def too_soon(lease: Lease, reason: Reason | None, steady: float) -> str:
    """Why a stored age proves nothing yet, '' if it does.

    An outage shorter than a job's own threshold may be the whole cause of its silence, so a silence by stored times counts
    only after a steady watch of that job's threshold; the gate's window is often shorter. Watched silences include it.
    """
    silent = reason in (Reason.LOCK_WITHOUT_HEARTBEAT, Reason.LOCK_EXPIRED)
    if silent and lease.heartbeat_age is not None and steady < lease.threshold:
        return f"watched without trouble for {steady:.0f} s of {lease.threshold:.0f} s only"
    return ""


def judge(
    snapshot: QueueSnapshot,
    memory: Memory,
    gate: GateState,
    rules: Rules,
    now: float,
    *,
    memory_holds: bool = True,
    steady: float = math.inf,
) -> tuple[tuple[Verdict, ...], dict[str, Watched]]:
    """Verdicts on every lease of a snapshot, and the memory for the next look.

    `memory_holds` False: the watch had a gap (see `Gate.trustworthy_memory`), so what was remembered is forgotten.
    `steady`: seconds of watch without a gap and without trouble (`Gate.steady`).
    """
    verdicts: list[Verdict] = []
    after: dict[str, Watched] = {}
    for lease in snapshot.leases:
        seen = watch(lease, memory.get(lease.job) if memory_holds else None, now)
        standing, reason, detail = accuse(lease, seen, rules, now)
        if lease.exempt and standing is Standing.STUCK and reason is not Reason.DEADLINE_PASSED:
            standing, detail = Standing.SUSPECT, f"{detail}; {lease.exempt}"
        confirmed = False
        since = 0.0
        trusted = gate.open
        if standing is Standing.STUCK and (early := too_soon(lease, reason, steady)):
            trusted, detail = False, f"{detail}; {early}"
        late = reason is Reason.DEADLINE_PASSED
        if standing is not Standing.STUCK or not trusted:
            seen = replace(seen, stuck_since=None)
        elif seen.stuck_since is None or late is not seen.stuck_by_deadline:
            # A late job may be in the best of health: that it was late is no observation of its worker's death.
            seen = replace(seen, stuck_since=now, stuck_by_deadline=late)
        else:
            since = now - seen.stuck_since
            confirmed = since >= rules.confirm_after
        if not trusted and standing is not Standing.HEALTHY:
            standing = Standing.INCONCLUSIVE
            detail = detail if gate.open else f"{detail}; the gate is closed ({', '.join(gate.reasons)})"
        after[lease.job] = seen
        verdicts.append(
            Verdict(
                backend=snapshot.backend,
                queue=snapshot.queue,
                lease=lease,
                standing=standing,
                reason=reason,
                unchanged=max(0.0, silence(lease, seen, now)),
                since=since,
                confirmed=confirmed,
                detail=detail,
            )
        )
    return tuple(verdicts), after
