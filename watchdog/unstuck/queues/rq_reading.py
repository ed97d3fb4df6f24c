"""Three rounds of reading that turn RQ's keys into plain facts about each queue. Nothing is written.

What may go wrong: jobs move between the rounds, so a look may see a lease in the first and its finished job in the
second: whatever looks wrong is read again in the third round and dropped where it has gone. Keys may have another type:
that is a fact of the one queue and never stops the others. CLIENT LIST may be forbidden or long: it is asked for only
when a lease's owner is not subscribed, and a refusal means "unknown", never "gone".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from unstuck.queues.rq_facts import (
    Flight,
    QueueSeen,
    Reading,
    Round,
    WorkerSeen,
    client_names,
    odd,
    pairs,
    refused,
)
from unstuck.queues.rq_keys import Layout, moment, number, text

if TYPE_CHECKING:
    from redis import Redis

WIP_MOST = 10_000
"""Leases read per look; with more the snapshot is truncated (the oldest lease ends come first)."""

_JOB = (
    "status",
    "worker_name",
    "last_heartbeat",
    "started_at",
    "rate_limit_key",
    "retries_left",
    "timeout",
    "ended_at",
)
_EXECUTION = ("last_heartbeat", "worker_name", "created_at")
_WORKER = ("state", "birth", "death", "last_heartbeat")


def read(client: Redis, layout: Layout, names: Iterable[str]) -> Reading:
    """Look at the named queues in at most three round trips."""
    reading = Reading(queues=[QueueSeen(name) for name in names])
    _first(client, layout, reading)
    if reading.queues:
        workers = _second(client, layout, reading)
        _third(client, layout, reading, workers)
    return reading


def _first(client: Redis, layout: Layout, reading: Reading) -> None:
    ask = Round(client)
    ask.ask("time", "TIME")
    ask.ask("suspended", "EXISTS", layout.suspended)
    for seen in reading.queues:
        name = seen.name
        ask.ask((name, "waiting"), "LLEN", layout.queue(name))
        ask.ask((name, "head"), "LINDEX", layout.queue(name), 0)
        ask.ask((name, "scheduled"), "ZCARD", layout.scheduled(name))
        ask.ask((name, "due"), "ZRANGE", layout.scheduled(name), 0, 0, "WITHSCORES")
        ask.ask((name, "running"), "ZCARD", layout.wip(name))
        ask.ask((name, "wip"), "ZRANGE", layout.wip(name), 0, WIP_MOST - 1, "WITHSCORES")
        ask.ask((name, "failed"), "ZCARD", layout.failed(name))
        ask.ask((name, "workers"), "SMEMBERS", layout.workers(name))
        ask.ask((name, "popped"), "LRANGE", layout.intermediate(name), 0, 99)
    ask.run()
    clock = ask.get("time")
    if isinstance(clock, Exception):
        raise clock
    reading.server = int(clock[0]) + int(clock[1]) / 1e6
    reading.suspended = ask.get("suspended") == 1
    for seen in reading.queues:
        _take_first(layout, seen, ask)


def _take_first(layout: Layout, seen: QueueSeen, ask: Round) -> None:
    name = seen.name
    places = {
        "waiting": layout.queue(name),
        "head": layout.queue(name),
        "scheduled": layout.scheduled(name),
        "due": layout.scheduled(name),
        "running": layout.wip(name),
        "wip": layout.wip(name),
        "failed": layout.failed(name),
        "workers": layout.workers(name),
        "popped": layout.intermediate(name),
    }

    def got(what: str) -> Any:
        answer = ask.get((name, what))
        if isinstance(answer, Exception):
            refused(seen, answer, places[what])
            return None
        return answer

    seen.waiting, seen.head = got("waiting") or 0, got("head")
    seen.scheduled, seen.running, seen.failed = got("scheduled") or 0, got("running") or 0, got("failed") or 0
    for _, score in pairs(got("due")):
        seen.next_due = score
    for member, score in pairs(got("wip")):
        job, _, execution = member.rpartition(b":")
        seen.flights.append(Flight(member, job or execution, execution if job else b"", score))
    known = sorted(filter(None, (layout.name_of(key, "worker") for key in got("workers") or ())))
    seen.workers = [WorkerSeen(worker) for worker in known]
    in_flight = {flight.job for flight in seen.flights}
    seen.stranded = [job for job in got("popped") or () if job not in in_flight]


def _second(client: Redis, layout: Layout, reading: Reading) -> dict[str, WorkerSeen]:
    ask = Round(client)
    workers: dict[str, WorkerSeen] = {}
    for seen in reading.queues:
        if seen.head is not None:
            ask.ask(("head", seen.head), "HMGET", layout.job(seen.head), "enqueued_at", "status")
        for flight in seen.flights:
            ask.ask(("job", flight.job), "HMGET", layout.job(flight.job), *_JOB)
            ask.ask(("run", flight.member), "HMGET", layout.execution(flight.member), *_EXECUTION)
        for job in seen.stranded:
            ask.ask(("job", job), "HMGET", layout.job(job), *_JOB)
        seen.workers = [workers.setdefault(worker.name, worker) for worker in seen.workers]
    for worker in workers.values():
        _ask_worker(ask, layout, worker.name)
        ask.ask(("runs", worker.name), "SMEMBERS", layout.worker_executions(worker.name))
    _ask_listeners(ask, layout, list(workers))
    ask.run()
    for worker in workers.values():
        _take_worker(worker, ask)
    _take_listeners(layout, ask, workers)
    for seen in reading.queues:
        _take_second(layout, seen, ask)
    _suspect_orphans(reading, ask)
    return workers


def _take_second(layout: Layout, seen: QueueSeen, ask: Round) -> None:
    if seen.head is not None:
        head = ask.get(("head", seen.head))
        if isinstance(head, Exception):
            refused(seen, head, layout.job(seen.head))
        else:
            seen.head_enqueued, seen.head_has_body = moment(head[0]), any(part is not None for part in head)
    jobs: dict[bytes, int] = {}
    for flight in seen.flights:
        jobs[flight.job] = jobs.get(flight.job, 0) + 1
        body, run = ask.get(("job", flight.job)), ask.get(("run", flight.member))
        if isinstance(body, Exception):
            refused(seen, body, layout.job(flight.job))
            body = [None] * len(_JOB)
        if isinstance(run, Exception):
            refused(seen, run, layout.execution(flight.member))
            run = [None] * len(_EXECUTION)
        flight.has_body = any(part is not None for part in body)
        (flight.status, flight.job_worker, flight.last_heartbeat, flight.started_at, flight.rate_limit_key,
         flight.retries_left, flight.timeout) = map(text, body[:7])  # fmt: skip
        flight.run_heartbeat, flight.created_at = text(run[0]), number(run[2])
        if text(run[1]):
            flight.owner = WorkerSeen(text(run[1]))
    for flight in seen.flights:
        flight.twice = jobs[flight.job] > 1
        if flight.owner is None and flight.job_worker and not flight.twice:
            flight.owner = WorkerSeen(flight.job_worker)
    seen.stranded = [
        job for job in seen.stranded if isinstance(body := ask.get(("job", job)), list) and text(body[0]) == "queued"
    ]


def _suspect_orphans(reading: Reading, ask: Round) -> None:
    """Jobs that a worker's index names but no registry holds; the third round asks again."""
    held = {flight.member for seen in reading.queues for flight in seen.flights}
    listed: set[bytes] = set()
    for seen in reading.queues:
        for worker in seen.workers:
            runs = ask.get(("runs", worker.name))
            for member in sorted(runs) if isinstance(runs, list | set) else ():
                if member not in held and member not in listed and b":" in member:
                    listed.add(member)
                    seen.orphans.append((member, worker.name))


def _third(client: Redis, layout: Layout, reading: Reading, workers: dict[str, WorkerSeen]) -> None:
    ask = Round(client)
    strangers: dict[str, WorkerSeen] = {}
    for seen in reading.queues:
        _ask_again(ask, layout, seen)
        for flight in seen.flights:
            if flight.owner is not None:
                name = flight.owner.name
                flight.owner = workers.get(name) or strangers.setdefault(name, flight.owner)
    for name in strangers:
        _ask_worker(ask, layout, name)
    _ask_listeners(ask, layout, list(strangers))
    if any(f.owner is not None and not f.owner.listeners for seen in reading.queues for f in seen.flights):
        ask.ask("clients", "CLIENT", "LIST")
    ask.run()
    for stranger in strangers.values():
        _take_worker(stranger, ask)
    _take_listeners(layout, ask, strangers)
    names = client_names(ask.get("clients"))
    if names is not None:
        for worker in {**workers, **strangers}.values():
            worker.named = worker.name in names
    for seen in reading.queues:
        _take_third(seen, ask)


def _ask_again(ask: Round, layout: Layout, seen: QueueSeen) -> None:
    for flight in seen.flights:
        if odd(flight):
            ask.ask(("wip", seen.name, flight.member), "ZSCORE", layout.wip(seen.name), flight.member)
            ask.ask(("body", flight.job), "EXISTS", layout.job(flight.job))
            ask.ask(("status", flight.job), "HGET", layout.job(flight.job), "status")
        if flight.status == "queued":
            ask.ask(("pending", seen.name, flight.job), "LPOS", layout.queue(seen.name), flight.job)
    for member, _ in seen.orphans:
        job = member.rpartition(b":")[0]
        ask.ask(("orphan", job), "HMGET", layout.job(job), "status", "origin")
        ask.ask(("wip", seen.name, member), "ZSCORE", layout.wip(seen.name), member)


def _take_third(seen: QueueSeen, ask: Round) -> None:
    kept: list[Flight] = []
    for flight in seen.flights:
        if odd(flight):
            score = ask.get(("wip", seen.name, flight.member))
            if score is None or (not isinstance(score, Exception) and number(score) != flight.lease_end):
                seen.running = max(0, seen.running - (score is None))
                continue  # it has moved on meanwhile: the next look will see it whole
            flight.has_body = ask.get(("body", flight.job)) == 1
            status = ask.get(("status", flight.job))
            flight.status = flight.status if isinstance(status, Exception) else text(status)
        place = ask.get(("pending", seen.name, flight.job))
        flight.pending = isinstance(place, int)
        kept.append(flight)
    seen.flights = kept
    orphans = []
    for member, worker in seen.orphans:
        job = member.rpartition(b":")[0]
        body = ask.get(("orphan", job))
        if not isinstance(body, list) or ask.get(("wip", seen.name, member)) is not None:
            continue
        if text(body[0]) == "started" and text(body[1]) == seen.name:
            orphans.append((job, worker))
    seen.orphans = orphans


def _ask_worker(ask: Round, layout: Layout, name: str) -> None:
    ask.ask(("worker", name), "HMGET", layout.worker(name), *_WORKER)


def _ask_listeners(ask: Round, layout: Layout, names: list[str]) -> None:
    if names:
        ask.ask("listeners", "PUBSUB", "NUMSUB", *(layout.channel(name) for name in names))


def _take_worker(worker: WorkerSeen, ask: Round) -> None:
    record = ask.get(("worker", worker.name))
    if isinstance(record, list):
        worker.there = any(part is not None for part in record)
        worker.state, worker.birth, worker.death, worker.last_heartbeat = map(text, record)


def _take_listeners(layout: Layout, ask: Round, workers: dict[str, WorkerSeen]) -> None:
    answer = ask.get("listeners")
    if not isinstance(answer, list):
        return
    counts = (
        dict(answer) if answer and isinstance(answer[0], tuple) else dict(zip(answer[::2], answer[1::2], strict=True))
    )
    for worker in workers.values():
        count = counts.get(layout.channel(worker.name))
        worker.listeners = int(count) if count is not None else None
