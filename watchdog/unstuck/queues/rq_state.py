"""From the facts of a look to the snapshot that judging reads. Pure: no Redis, no clock but the server's.

What may go wrong, and who is authoritative: RQ fences nobody, so a job that still runs must never be called stuck. The
sign of life is what RQ renews every 30 s and what does not expire by itself: the lease end in the in-flight registry and
the job's last_heartbeat. (The execution's and the worker's hash carry the same beat, but vanish with their TTL, which
would look like a beat; and a worker that has gone on to another job would keep a forgotten lease alive.) A connection
that is there while the lease is over means a work horse that outlived its killed parent, or a frozen one: exempt.
"""

from __future__ import annotations

from unstuck.model import Capability, Lease, Lock, Presence, QueueSnapshot, SideFinding
from unstuck.queue import Limits
from unstuck.queues.rq_facts import Flight, QueueSeen, Reading, WorkerSeen
from unstuck.queues.rq_keys import lease_end, moment, number, text
from unstuck.spelling import counted

LEAST_STUCK_AFTER = 90.0
"""Seconds: RQ beats every 30 s and gives a lease of 90 s."""
BEAT_INTERVAL = 30.0
"""Seconds between two heartbeats of a busy worker, RQ's default."""
LONG_OVER = 60.0
"""Seconds that a lease must be over before that alone is proof: room for the clocks of two machines."""
LONGEST_LEASE = 7 * 86_400.0
"""Seconds: a longer distance between a beat and its lease end is taken for nonsense."""
ENDED = frozenset({"finished", "failed", "stopped", "canceled", "scheduled", "deferred"})
"""States in which RQ has already taken the job further; a lease that is still there is left over."""
_SURVIVOR = (
    "Its lease is over but its worker's connection is there: the work horse may have outlived its killed parent, or both "
    "are frozen, and RQ could not stop them from finishing the job twice."
)


def snapshot(seen: QueueSeen, reading: Reading, limits: Limits, stranded: int) -> QueueSnapshot:
    """The snapshot of one queue; `stranded` counts popped jobs that have been waiting for a start for a while."""
    leases = tuple(lease(flight, reading.server, limits) for flight in seen.flights)
    started = [one.running for one in leases if one.running is not None]
    ends = [flight.lease_end for flight in seen.flights]
    held = [end for end in ends if reading.server <= end != float("inf")]
    workers = {"busy": 0, "idle": 0, "lost": 0}
    for worker in seen.workers:
        workers[_standing(worker)] += 1
    return QueueSnapshot(
        backend="rq",
        queue=seen.name,
        capability=Capability.RECLAIM,
        server_ms=int(reading.server * 1000),
        waiting=seen.waiting,
        scheduled=seen.scheduled,
        running=seen.running,
        dead=seen.failed,
        failed=seen.failed,
        quarantined=sum(not flight.has_body for flight in seen.flights),
        oldest_waiting=None if seen.head_enqueued is None else max(0.0, reading.server - seen.head_enqueued),
        oldest_running=max(started, default=None),
        workers=workers,
        paused=reading.suspended,
        complete=seen.running <= len(leases) and not seen.error,
        truncated=seen.running > len(leases),
        leases=leases,
        locks_held=sum(end >= reading.server for end in ends),
        locks_without_expiry=sum(end == float("inf") for end in ends),
        soonest_lock_expiry_ms=int(min(held) * 1000) if held else None,
        next_due_ms=None if seen.next_due is None else int(seen.next_due * 1000),
        side_findings=tuple(_findings(seen, reading, workers, stranded)),
        error=seen.error,
    )


def lease(flight: Flight, server: float, limits: Limits) -> Lease:
    """One in-flight job; `server` is Redis' time in Unix seconds."""
    over = server - flight.lease_end  # negative: the lease still runs
    owner = flight.owner
    connection = _connection(flight)
    record = _record(flight)
    evidence: dict[str, str | int | float] = {
        "status": flight.status or "none",
        "lease_over_seconds": round(over, 1) if over > float("-inf") else "never",
        "last_heartbeat": flight.last_heartbeat,
        "execution_heartbeat": flight.run_heartbeat,
        "retries_left": flight.retries_left,
        "timeout": flight.timeout,
    }
    if owner is not None:
        evidence["worker_state"] = owner.state or ("none" if not owner.there else "")
        evidence["worker_heartbeat"] = owner.last_heartbeat
        evidence["listeners"] = owner.listeners if owner.listeners is not None else "unknown"
        if not owner.listeners:
            evidence["client_name"] = {True: "present", False: "absent", None: "unknown"}[owner.named]
    began = moment(flight.started_at) if flight.status == "started" else flight.created_at
    return Lease(
        job=text(flight.job),
        worker=owner.name if owner is not None else "",
        token=text(flight.execution),
        heartbeat=f"{lease_end(flight.lease_end)}|{flight.last_heartbeat}",
        running=None if began is None else max(0.0, server - began),
        lock=Lock.HELD if over <= 0 else Lock.MISSING,
        threshold=max(limits.stuck_after, LEAST_STUCK_AFTER, _lease_length(flight)),
        beat_interval=BEAT_INTERVAL,
        record=record,
        connection=connection,
        exempt=_exempt(flight, over, connection),
        proven=_proven(flight, over, record, connection),
        evidence={name: value for name, value in evidence.items() if value != ""},
    )


def _lease_length(flight: Flight) -> float:
    """Seconds that the owner gave itself at its last beat, both ends by its own clock: RQ's SimpleWorker does not beat
    during a job and takes the job's timeout plus 60 s at once, so only after that its silence means anything.
    """
    beat = number(flight.run_heartbeat) or moment(flight.last_heartbeat)
    if beat is None:
        return 0.0
    length = flight.lease_end - beat
    return length if 0 < length <= LONGEST_LEASE else 0.0


def elsewhere(flight: Flight) -> bool:
    """A live worker bears the owner's name but provably does not run this attempt: it was born after the last beat (names are
    reused), or it is idle. Its record and its connection are then no signs of life of the attempt.
    """
    owner = flight.owner
    if owner is None or not owner.alive:
        return False
    return successor(flight) or owner.state == "idle"


def successor(flight: Flight) -> bool:
    """Whether the record under the owner's name belongs to a worker that was born after this attempt's last beat (both by
    workers' clocks; RQ refuses a second worker of a name until the first one's record has expired, a minute at least).
    """
    owner = flight.owner
    return bool(
        owner is not None
        and owner.birth
        and flight.last_heartbeat
        and flight.job_worker == owner.name
        and owner.birth > flight.last_heartbeat
    )


def _record(flight: Flight) -> Presence:
    if flight.owner is None:
        return Presence.UNKNOWN
    return Presence.PRESENT if flight.owner.alive and not successor(flight) else Presence.ABSENT


def _connection(flight: Flight) -> Presence:
    owner = flight.owner
    if owner is None or owner.listeners is None:
        return Presence.UNKNOWN
    if elsewhere(flight):  # one subscription is the other one's; absence was never seen happening, so it is not claimed
        return Presence.PRESENT if owner.listeners > 1 else Presence.UNKNOWN
    if owner.listeners > 0 or owner.named:
        return Presence.PRESENT
    return Presence.ABSENT if owner.named is False else Presence.UNKNOWN


def _exempt(flight: Flight, over: float, connection: Presence) -> str:
    ended = flight.status in ENDED
    rules = (
        (not flight.execution, "It has no execution id: RQ before 2.0 wrote it, and nothing tells its attempts apart."),
        ("\ufffd" in text(flight.member), "Its id is not UTF-8 text, so it cannot be named safely."),
        (not flight.has_body, "Its job hash is gone: there is nothing to requeue."),
        (bool(flight.rate_limit_key) and not ended, "It has a rate limit: only RQ itself can give its slot back."),
        (
            not ended and flight.status not in ("started", "queued"),
            f"Its status is {flight.status or 'missing'}, which RQ does not give to a job in flight.",
        ),
        (
            not ended and over > 0 and connection is Presence.PRESENT,
            _SURVIVOR,
        ),
    )
    return next((sentence for holds, sentence in rules if holds), "")


def _proven(flight: Flight, over: float, record: Presence, connection: Presence) -> str:
    if connection is Presence.PRESENT or not flight.has_body or flight.status in ENDED:
        return ""
    owner = flight.owner
    if record is Presence.ABSENT and (over > 0 or connection is Presence.ABSENT):
        ended = f"its lease ended {over:.0f} s ago" if over > 0 else "nobody listens on its channel"
        return f"The record of worker {owner.name if owner else '?'} is gone and {ended}."
    if over > LONG_OVER:
        return f"Its lease ended {over:.0f} s ago by the server's clock and nobody has renewed it."
    if connection is Presence.ABSENT and owner is not None and owner.state == "busy":
        return (
            f"Worker {owner.name} is recorded as busy, but nobody listens on its channel and no client bears its name."
        )
    return ""


def _standing(worker: WorkerSeen) -> str:
    if not worker.alive or (worker.listeners == 0 and not worker.named):
        return "lost"
    return "busy" if worker.state == "busy" else "idle"


def _findings(seen: QueueSeen, reading: Reading, workers: dict[str, int], stranded: int) -> list[SideFinding]:
    found = [
        SideFinding("wrong_type", f"{text(key)} has another type than RQ gives it.", evidence={"key": text(key)})
        for key in seen.wrong_types
    ]
    for flight in seen.flights:
        job, worker = text(flight.job), flight.owner.name if flight.owner else ""
        if not flight.has_body:
            found.append(SideFinding("quarantined", "In flight, but its job hash is gone.", job, worker))
        elif flight.status in ENDED and reading.server > flight.lease_end:
            told = f"Its lease was left over: RQ has recorded the job as {flight.status}."
            found.append(SideFinding("debris", told, job, worker))
        if flight.has_body and (flight.pending or flight.twice):
            where = "is also waiting" if flight.pending else "has two executions in flight"
            found.append(SideFinding("duplicate", f"The job is in flight and {where}.", job, worker))
    found += [
        SideFinding(
            "orphan_body", "Recorded as started, but in flight nowhere: RQ will never run it again.", text(job), name
        )
        for job, name in seen.orphans
    ]
    if seen.head is not None and not seen.head_has_body:
        found.append(
            SideFinding("quarantined", "The next waiting id has no job hash; RQ will drop it.", text(seen.head))
        )
    if stranded:
        found.append(
            SideFinding("intermediate", "Taken from the queue but never started; RQ fails such jobs.", count=stranded)
        )
    lost = [worker for worker in seen.workers if _standing(worker) == "lost"]
    if lost:
        gone = sum(not worker.alive for worker in lost)
        told = counted(len(lost), "registered worker is gone", "registered workers are gone")
        found.append(
            SideFinding(
                "lost_worker",
                f"{told}: {gone} without a record, {len(lost) - gone} without a connection.",
                worker=lost[0].name if len(lost) == 1 else "",
                count=len(lost),
            )
        )
    if seen.waiting and not reading.suspended and not workers["busy"] + workers["idle"]:
        told = counted(seen.waiting, "job waits", "jobs wait")
        found.append(SideFinding("no_worker", f"{told} and no live worker listens to this queue."))
    return found
