"""Our own queue as an adapter: one script per queue looks, one script moves.

The look costs O(log n + candidates), never anything that grows with the healthy leases: only leases that are silent for
stuck_after, past their deadline, or held by a worker whose control subscription has vanished are read one by one. Ages are
server TIME minus stored server times. What may go wrong: a key of the wrong type makes that queue's snapshot carry `error`,
the others are still seen.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unstuck.connections import text
from unstuck.errors import UnstuckError, classify, explain
from unstuck.model import (
    Action,
    Authority,
    Capability,
    Condemned,
    Lease,
    Lock,
    Pacing,
    Pollers,
    Presence,
    QueueSnapshot,
    Reclaimed,
    SideFinding,
    Totals,
)
from unstuck.protocol import keys, scripts
from unstuck.queue import Limits
from unstuck.spelling import counted

if TYPE_CHECKING:
    from redis import Redis

BEAT_BOUNDS = ("1", "2.5", "5", "10", "15", "30", "60", "120", "300", "900")
_ACTIONS = {
    "requeued": Action.REQUEUED,
    "scheduled": Action.REQUEUED,
    "dead_lettered": Action.DEAD_LETTERED,
    "quarantined": Action.DEAD_LETTERED,
    "debris": Action.LOCK_RELEASED,
    "lost_race": Action.LOST_RACE,
}


class UnstuckAdapter:
    """Queues of protocol version 1."""

    backend = "unstuck"
    capability = Capability.RECLAIM
    least_stuck_after = 0.0
    least_gone_after = 0.0

    def __init__(self, reading: Redis, scripting: Redis) -> None:
        self._reading = reading
        self._scripting = scripting

    def discover(self) -> Sequence[str]:
        names: Any = self._reading.smembers(keys.QUEUES)
        return sorted(name for name in map(text, names) if keys.is_queue(name))

    def look(self, queues: Mapping[str, Limits]) -> Sequence[QueueSnapshot]:
        asked = [(name, limits, 0) for name, limits in queues.items()]
        calls = [_read(name, limits, 0) for name, limits, _ in asked]
        snapshots = []
        for (name, limits, _), answer in zip(asked, scripts.run_many(self._reading, calls), strict=True):
            if isinstance(answer, Exception):
                known = answer if isinstance(answer, UnstuckError) else explain(answer)
                if known is not answer and classify(answer) != "noperm":
                    raise answer
                snapshots.append(QueueSnapshot(self.backend, name, self.capability, error=str(known)))
                continue
            told = _table(answer)
            rows = {row[0]: row for row in told["candidates"]}  # what is past its deadline may be silent as well
            more, skip = int(told["more"]), limits.page
            while more:  # more silent leases than one page: exempt ones must not hide a stuck one
                page = _table(scripts.run(self._reading, *_flat(_read(name, limits, skip))))
                rows.update((row[0], row) for row in page["candidates"])
                more, skip = int(page["more"]), skip + limits.page
            snapshots.append(_snapshot(name, told, list(rows.values()), limits))
        return snapshots

    def reclaim(
        self, queue: str, condemned: Sequence[Condemned], limits: Limits, authority: Authority
    ) -> Sequence[Reclaimed]:
        if not condemned:
            return []
        if len(condemned) > 100:
            raise ValueError(f"{len(condemned)} jobs at once; a script moves at most 100")
        args: list[scripts.Argument] = [
            authority.owner,
            authority.epoch,
            scripts.operation(),
            authority.run_id,
            authority.replication_id,
            limits.max_rescues,
            round(limits.retry_delay * 1000),
            random.randint(800, 1200),  # noqa: S311  spreads load, no secret
            limits.dead_max,
            round(limits.dead_ttl * 1000),
            round(limits.deadline_grace * 1000),
        ]
        for one in condemned:
            evidence = " ".join(f"{name}={value}" for name, value in one.evidence.items())
            args += [
                one.job,
                one.token,
                one.heartbeat,
                one.lock.value,
                one.reason.value,
                round(one.threshold * 1000),
                one.worker,
                one.owner_beat,
                evidence,
            ]
        answers = scripts.run(self._scripting, "reclaim_jobs", keys.meta(queue), *args)
        done = []
        for one, answer in zip(condemned, map(text, answers), strict=True):
            word, cause, rescues = answer.split(":")
            done.append(Reclaimed(one.job, _ACTIONS[word], cause if word != "scheduled" else "backoff", int(rescues)))
        return done


def _read(name: str, limits: Limits, offset: int) -> scripts.Call:
    grace = round(limits.deadline_grace * 1000)
    return scripts.Call("read_queue", keys.meta(name), (round(limits.stuck_after * 1000), limits.page, offset, grace))


def _flat(call: scripts.Call) -> tuple[Any, ...]:
    return (call.script, call.key, *call.args)


def _table(answer: Sequence[Any]) -> dict[str, Any]:
    return {text(name): value for name, value in zip(answer[::2], answer[1::2], strict=True)}


def _pairs(flat: Sequence[Any]) -> dict[str, str]:
    return {text(name): text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _score(entry: Sequence[Any]) -> int | None:
    """The score of a `ZRANGE 0 0 WITHSCORES`, None when empty."""
    return int(float(text(entry[1]))) if entry else None


def _whole(value: Any) -> int | None:
    shown = text(value)
    return int(shown) if shown.lstrip("-").isdigit() else None


def _snapshot(name: str, told: dict[str, Any], rows: Sequence[Any], limits: Limits) -> QueueSnapshot:
    now = int(told["now"])
    live, busy, known = (int(count) for count in told["workers"])
    ready = _whole(told["oldest_ready_at"])
    begun = _score(told["oldest_started"])
    running = int(told["active"])
    leases = tuple(_lease(row, now, limits) for row in rows)
    missing = sum(1 for lease in leases if lease.lock is Lock.MISSING)
    return QueueSnapshot(
        backend="unstuck",
        queue=name,
        capability=Capability.RECLAIM,
        server_ms=now,
        waiting=int(told["pending"]),
        scheduled=int(told["scheduled"]),
        running=running,
        dead=int(told["dead"]),
        quarantined=int(told["quarantine"]),
        oldest_waiting=None if ready is None else max(0.0, (now - ready) / 1000),
        oldest_running=None if begun is None else max(0.0, (now - begun) / 1000),
        oldest_dead_ms=_score(told["oldest_dead"]),
        workers={"busy": busy, "idle": max(0, live - busy), "lost": max(0, known - live)},
        leases=leases,
        locks_held=max(0, running - missing),
        oldest_heartbeat_ms=_score(told["oldest_beat"]),
        heartbeats_missing=sum(1 for lease in leases if not lease.heartbeat),
        heartbeat_buckets=dict(zip(BEAT_BOUNDS, (int(count) for count in told["beat_ages"]), strict=True)),
        next_due_ms=_score(told["next_due"]),
        totals=_totals(_pairs(told["stats"])),
        pacing=_pacing(_pairs(told["pacing"])),
        pollers=_pollers([int(number) for number in told["pollers"]], live),
        side_findings=tuple(_findings(told, live)),
        subscribers=int(told["listeners"]),
        brake_release_ms=_whole(told["brake_release"]) or 0,
    )


def _lease(row: Sequence[Any], now: int, limits: Limits) -> Lease:
    """One candidate row of read_queue.lua: index, lock and owner first, then the fields of the job hash."""
    job, indexed = text(row[0]), _whole(row[1])
    lock_ttl, record, control, listening, owner_beat = int(row[2]), int(row[3]), int(row[4]), int(row[5]), text(row[6])
    state, token, worker, beat, begun, lock, every, abort, by, progress, rescues, attempt, cancelled = map(
        text, row[7:20]
    )
    beaten, started, deadline = _whole(beat), _whole(begun), _whole(by)
    interval = (_whole(every) or 0) / 1000
    threshold = max(limits.stuck_after, 3 * interval, (_whole(abort) or 0) / 1000 + interval)
    last = beaten if beaten is not None else indexed
    body = state == "active" and bool(token)
    held = Lock.HELD if lock_ttl != -2 else Lock.MISSING
    connection = {1: Presence.PRESENT, 0: Presence.ABSENT}.get(listening, Presence.UNKNOWN)
    # A beat further ahead than that was written before Redis' clock was set back: only watching tells how old it is.
    datable = last is not None and last < now + threshold * 1000
    age = max(0.0, (now - last) / 1000) if last is not None and datable and body else None
    said = state or ("no state" if any(row[8:20]) else "no body")
    evidence: dict[str, str | int | float] = {"state": said, "lock_pttl_ms": lock_ttl}
    told = (("attempt", attempt), ("rescues", rescues), ("cancelled_at", cancelled))
    evidence |= {field: value for field, value in told if value}
    if last is not None:
        evidence["heartbeat_at_ms"] = last
    proven = ""
    if age is not None and age >= threshold:
        proven = f"no heartbeat for {age:.0f} s by the server's own times"
    elif body and control == 1 and connection is Presence.ABSENT:
        proven = "its worker had a control connection, and that is gone"
    return Lease(
        job=job,
        worker=worker,
        token=token,
        heartbeat=beat,
        owner_beat=owner_beat,
        heartbeat_age=age,
        running=None if started is None else max(0.0, (now - started) / 1000),
        lock=Lock.NONE if lock == "none" else held,
        threshold=threshold,
        beat_interval=interval or None,
        record=(Presence.PRESENT if record else Presence.ABSENT) if worker else Presence.UNKNOWN,
        connection=connection,
        connection_recorded=control == 1,
        overdue=None if not deadline else (now - deadline) / 1000,
        progress=progress,
        proven=proven,
        evidence=evidence,
    )


def _totals(stats: Mapping[str, str]) -> Totals:
    def count(field: str) -> int:
        return _whole(stats.get(field, "0")) or 0

    def buckets(prefix: str) -> dict[str, int]:
        return {field.removeprefix(prefix): count(field) for field in stats if field.startswith(prefix)}

    plain = ("enqueued", "started", "completed", "failed", "retried", "refused", "delay_ms", "run_ms", "cache_hits")
    more = ("cache_misses", "cache_stale", "conflicts", "dead_dropped", "released", "rescued", "bumped", "unheard")
    return Totals(
        **{field: count(field) for field in (*plain, *more)},
        delay_buckets=buckets("delay_le_"),
        run_buckets=buckets("run_le_"),
    )


def _pacing(fields: Mapping[str, str]) -> Pacing | None:
    try:
        return Pacing(
            interval=int(fields["interval_ms"]) / 1000,
            base=int(fields["base_ms"]) / 1000,
            score=float(fields["score"]),
            score_raw=float(fields["score_raw"]),
            reason=fields["reason"],
            seq=int(fields["seq"]),
            epoch=int(fields["epoch"]),
            computed_at_ms=int(fields["computed_at_ms"]),
        )
    except (KeyError, ValueError):
        return None


def _pollers(told: Sequence[int], live: int) -> Pollers | None:
    """The sample of the live workers' records, taken for all of them."""
    known, slots, least, most, total, alone, doubts = told
    if not known:
        return None
    return Pollers(
        slots=round(slots * live / known),
        applied_least=least / 1000,
        applied_mean=total / known / 1000,
        applied_most=most / 1000,
        on_own_base=round(alone * live / known),
        doubts=round(doubts * live / known),
    )


def _findings(told: Mapping[str, Any], live: int) -> list[SideFinding]:
    found = []
    if count := int(told["quarantine"]):
        ids = counted(count, "id without a usable body is", "ids without a usable body are")
        found.append(SideFinding("quarantined", f"{ids} in quarantine", count=count))
    double = map(text, told["in_two_places"])
    found += [SideFinding("in_two_places", f"job {job} is pending and in flight at once", job=job) for job in double]
    if int(told["pending"]) and not live:
        waiting = int(told["pending"])
        jobs = counted(waiting, "job waits", "jobs wait")
        found.append(SideFinding("no_worker", f"{jobs} and no worker is alive", count=waiting))
    return found
