"""Accounting: what a chaos run did to its jobs, judged from the streams, the ledger and the lives of the processes.

healthy reclaimed: the rescue of an attempt whose process the harness had neither killed nor stopped for long enough; an outage
of Redis is no excuse. lost: acknowledged, and in the end neither done nor dead nor in quarantine. Detection runs from the
signal to the reading of the event; L1 counts only the seconds with an open gate, a free brake and a fit Redis.
"""

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.stage import Member, Stage, Times
from chaos.watching import Seen, Span, length_within
from unstuck.model import Reason
from unstuck.protocol import keys

REASONS = frozenset(reason.value for reason in Reason)
ENDINGS = frozenset({"completed", "released", "failed", "requeued", "dead_lettered", "quarantined"})
READING_SECONDS = 0.25  # an event is read so much later than it happened, at most, on a busy machine


@dataclass
class Tally:
    """The counts of one run; `violations` is empty when every promise held."""

    jobs: int = 0
    done: int = 0
    dead: int = 0
    lost: list[str] = field(default_factory=list)
    lost_to_replication: list[str] = field(default_factory=list)
    healthy_reclaimed: list[str] = field(default_factory=list)
    stale_accepted: list[str] = field(default_factory=list)
    stale_refused: int = 0
    refused_by_redis: int = 0
    starts: int = 0
    started_again: int = 0  # effects begun more than once: at-least-once, allowed
    committed_again: int = 0  # committed under two tokens, each current when it committed
    committed_twice: list[str] = field(default_factory=list)  # under one token: never
    rescues: Counter[str] = field(default_factory=Counter)
    promotions: int = 0
    events_lost: int = 0  # of the streams: what a promoted replica had not got
    reruns: int = 0  # rescued because a failover had lost the end of the attempt
    detection: dict[str, dict[str, float]] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    found: list[dict[str, Any]] = field(default_factory=list)  # each rescue
    more: dict[str, Any] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


GIVEN_UP_BEFORE_SECONDS = 0.05  # a worker that hears of the rescue itself says "lost" afterwards: that excuses nothing


def history(events: Sequence[Seen]) -> Mapping[tuple[str, str], list[Seen]]:
    """Events by queue and job, in the order of the stream."""
    jobs: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for event in events:
        if event.job:
            jobs[event.queue, event.job].append(event)
    return jobs


def follow_tokens(events: Sequence[Seen], tally: Tally) -> None:
    """S1 and S2 by the stream: one attempt at a time, and no end of an attempt that is not current."""
    for (_, job), told in history(events).items():
        current = ""
        for event in told:
            if event.event == "acquired":
                if current:
                    tally.violations.append(f"S1: {job} acquired as {event.token} while {current} was current")
                current = event.token
            elif event.event in ENDINGS and event.token:
                if event.token != current:
                    line = f"{job}: {event.event} under {event.token}, current was {current or 'none'}"
                    (tally.stale_accepted if event.event == "completed" else tally.violations).append(line)
                current = ""


def read_ledger(path: Path, tally: Tally) -> list[dict[str, Any]]:
    """The ledger's own lines, its fence recomputed."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    newest: dict[str, tuple[int, str]] = {}
    commits: dict[str, list[str]] = defaultdict(list)
    starts: Counter[str] = Counter()
    for said in lines:
        job, token, answer = said["job"], said["token"], said["answer"]
        rank = int(token.partition(".")[0])
        if said["kind"] == "start":
            starts[job] += 1
            if answer == "ok":
                newest[job] = rank, token
        elif answer == "refused":
            tally.stale_refused += 1
        elif answer == "twice":
            tally.committed_twice.append(f"{job} under {token}")
        else:
            if job in newest and newest[job][1] != token and rank <= newest[job][0]:
                tally.stale_accepted.append(f"ledger: {job} under {token}, newest was {newest[job][1]}")
            commits[job].append(token)
    tally.starts = sum(starts.values())
    tally.started_again = sum(count - 1 for count in starts.values())
    tally.committed_again = sum(len(tokens) - 1 for tokens in commits.values())
    return lines


def judge_rescues(
    events: Sequence[Seen],
    stage: Stage,
    open_spans: Sequence[Span],
    cuts: Sequence[Span],
    tally: Tally,
    ended_elsewhere: Mapping[str, float] | None = None,
    given_up: Mapping[str, float] | None = None,
) -> None:
    """Each rescue: was its worker really dead or frozen, and was it found in time?

    `cuts` are the times in which connections were cut by a fault; `ended_elsewhere`: tokens whose end a failover had lost.
    `given_up`: tokens that their worker had said it had lost, and when (Unix time): told so by a primary that was lost itself.
    """
    times = stage.times
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)  # kind -> (seconds, seconds that count for L1)
    for event in events:
        if event.event not in ("requeued", "dead_lettered") or event.cause not in REASONS:
            continue
        tally.rescues[event.cause] += 1
        member = stage.by_worker(event.worker)
        kind, since, why = excuse(member, event, times, cuts)
        if kind == "healthy":
            told = (given_up or {}).get(event.token)
            before = told is not None and told < int(event.entry.partition("-")[0]) / 1000 - GIVEN_UP_BEFORE_SECONDS
            if before or (ended_elsewhere and event.token in ended_elsewhere):
                tally.reruns += 1
                continue
            tally.healthy_reclaimed.append(
                f"{event.job} {event.token} of {member.name if member else event.worker} for {event.cause}: {why}"
            )
            continue
        counted = length_within(open_spans, since, event.at)
        fast = event.cause == Reason.WORKER_GONE
        name = "killed, connection gone" if fast else f"{kind}, silent"
        found[name].append((event.at - since, counted))
        lasted = round(event.at - since, 2), round(counted, 2)
        tally.found.append({"job": event.job, "at": event.at, "kind": kind, "cause": event.cause, "lasted": lasted})
        bound = times.bound_gone if fast else times.bound_stuck
        if counted > bound + READING_SECONDS:
            tally.late.append(
                f"{event.job} of {member.name if member else event.worker} ({kind}, {event.cause}): found after "
                f"{event.at - since:.2f} s, {counted:.2f} s of them with an open gate; the bound is {bound:.2f} s"
            )
    for name, both in sorted(found.items()):
        tally.detection[name] = {
            "count": len(both),
            "bound": times.bound_gone if "gone" in name else times.bound_stuck,
            **spread("wall", [one[0] for one in both]),
            **spread("open", [one[1] for one in both]),
        }


def excuse(member: Member | None, event: Seen, times: Times, cuts: Sequence[Span]) -> tuple[str, float, str]:
    """(killed | stopped | healthy, since when, why) for the worker of a rescued attempt."""
    if member is None:
        return "healthy", 0.0, "no process of this run"
    killed = next((at for at, what in member.life if what in ("killed", "exited")), None)
    if killed is not None and killed <= event.at:
        return "killed", killed, ""
    told = "never stopped"
    stops = [at for at, what in member.life if what == "stopped"]
    for begin in stops:
        end = next((at for at, what in member.life if what == "continued" and at > begin), event.at)
        if not begin <= event.at <= end + 2 * READING_SECONDS:
            continue
        stopped = min(event.at, end) - begin
        if event.cause == Reason.WORKER_GONE:
            cut = any(from_ < end and to > begin for from_, to in cuts)
            least = times.gone + times.confirm if cut else float("inf")
        else:
            least = times.stuck - times.heartbeat - READING_SECONDS  # its last beat came up to a heartbeat before
        if stopped >= least:
            return "stopped", begin, ""
        told = f"stopped for {stopped:.2f} s only"
    return "healthy", 0.0, told


def spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    ordered = sorted(seconds)
    return {
        f"{name}_median": round(statistics.median(ordered), 2),
        f"{name}_p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
        f"{name}_max": round(ordered[-1], 2),
    }


def settle(client: Any, enqueued: Mapping[str, str], events: Sequence[Seen], tally: Tally) -> None:
    """Where every acknowledged job ended, and S3: it is in exactly the place that its state names."""
    completed = {event.job for event in events if event.event == "completed"}
    rescued = Counter(
        event.job for event in events if event.event in ("requeued", "dead_lettered") and event.cause in REASONS
    )
    queues = sorted(set(enqueued.values()))
    places = find_places(client, queues)
    jobs = list(enqueued)
    tally.jobs = len(jobs)
    for start in range(0, len(jobs), 1000):
        part = jobs[start : start + 1000]
        pipe = client.pipeline(transaction=False)
        for job in part:
            pipe.hmget(keys.job(enqueued[job], job), "state", "rescues", "payload")
        for job, (state, rescues, payload) in zip(part, pipe.execute(), strict=True):
            if state == "done" or (state is None and job in completed):
                tally.done += 1
            elif state in ("dead", "quarantine"):
                tally.dead += 1
            else:
                tally.lost.append(f"{job}: state {state}, in {places[job] or 'no place'}")
                continue
            if places[job] != ([state] if state in ("dead", "quarantine") else []):
                tally.violations.append(f"S3: {job} is {state} and lies in {places[job] or 'no place'}")
            if state == "done" and payload is not None:
                tally.violations.append(f"{job} is done and still has its payload")
            if rescues is not None and int(rescues) != rescued[job]:
                tally.violations.append(f"S7: {job} counts {rescues} rescues, the stream tells of {rescued[job]}")
    for queue in queues:
        tally.refused_by_redis += int(client.hget(keys.stats(queue), "refused") or 0)
    strays = [job for job in places if job not in enqueued]
    if strays:
        tally.violations.append(f"S3: ids that nobody enqueued: {strays[:5]}")


def find_places(client: Any, queues: Sequence[str]) -> dict[str, list[str]]:
    """Every structure that holds a job's id, once per occurrence."""
    places: dict[str, list[str]] = defaultdict(list)
    for queue in queues:
        for place in ("pending", "quarantine"):
            for job in client.lrange(f"{keys.stem(queue)}{place}", 0, -1):
                places[job].append(place)
        for place in ("scheduled", "active", "dead"):
            for job in client.zrange(f"{keys.stem(queue)}{place}", 0, -1):
                places[job].append(place)
    return places
