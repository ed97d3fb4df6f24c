"""The one document about a Redis and its queues: what `inspect --json`, `sweep --json` and the status API say.

Pure: from snapshots, verdicts and outcomes to plain values that JSON can hold, always in the same order. Its schema is
docs/inspect.schema.json, its kinds of findings are explained in docs/findings.md. What may go wrong: names and evidence
come from Redis and are hostile; nothing is escaped here, whoever shows the document does that for the place where it goes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from unstuck.model import (
    Action,
    Capability,
    GateState,
    Mode,
    QueueSnapshot,
    Reason,
    Reclaimed,
    ServerSnapshot,
    SideFinding,
    Standing,
    Verdict,
)
from unstuck.spelling import counted

Document = dict[str, Any]
Attempt = tuple[str, str]  # job, token

UNREADABLE: Final = "unreadable"
"""The kind of the finding that says that a queue, or all queues of a system, could not be read."""

_MOVED: Final = frozenset({"requeued", "dead_lettered", "lock_released"})
_SEVERITY: Final = {"stuck": 0, "inconclusive": 1, "suspect": 2}


@dataclass(frozen=True, slots=True)
class QueueReport:
    """One queue with all that is known of it when the document is made."""

    snapshot: QueueSnapshot
    mode: Mode = Mode.OBSERVE
    verdicts: tuple[Verdict, ...] = ()
    done: Mapping[Attempt, Reclaimed] = field(default_factory=dict)  # what became of an attempt, where it was touched
    rescues: Mapping[str, int] = field(default_factory=dict)  # how often a job was put back before, where known
    max_rescues: int = 3
    deadline_reclaims: bool = False  # deadline.action is reclaim
    brake: str = ""  # the brake's sentence while it is engaged


def document(
    server: ServerSnapshot | None,
    gate: GateState | None,
    queues: Iterable[QueueReport],
    unread: Mapping[str, str] | None = None,
) -> Document:
    """The whole document. `unread`: queue systems that could not be looked for, with the sentence that says why."""
    rows = sorted(queues, key=lambda row: (row.snapshot.backend, row.snapshot.queue))
    findings = [finding for row in rows for finding in findings_of(row)]
    findings += [unreadable(backend, "", why) for backend, why in sorted((unread or {}).items())]
    return {
        "redis": redis_part(server, gate),
        "queues": [queue_part(row) for row in rows],
        "findings": sorted(findings, key=_order),
    }


def _order(finding: Document) -> tuple[Any, ...]:
    of_queue = finding["job"] is None or finding["reason"] not in set(Reason)
    job = finding["job"] or ""
    return of_queue, _SEVERITY[finding["verdict"]], finding["backend"], finding["queue"], finding["reason"], job


def redis_part(server: ServerSnapshot | None, gate: GateState | None) -> Document:
    """Redis itself; nothing is claimed about one that was not reached."""
    return {
        "version": server.version if server else None,
        "role": server.role if server else None,
        "used_memory_bytes": server.used_memory if server else None,
        "maxmemory_bytes": server.maxmemory if server else None,
        "gate": {"open": bool(gate and gate.open), "reasons": list(gate.reasons) if gate else []},
    }


def queue_part(row: QueueReport) -> Document:
    """One queue: the contract's keys, then extras (`suspect`, `paused`, `interval_seconds`, …)."""
    seen = row.snapshot
    standings = [one.standing for one in row.verdicts]
    part: Document = {
        "backend": seen.backend,
        "queue": seen.queue,
        "waiting": seen.waiting,
        "scheduled": seen.scheduled,
        "running": seen.running,
        "dead": seen.dead,
        "workers": seen.live_workers,
        "stuck": standings.count(Standing.STUCK),
        "oldest_waiting_seconds": rounded(seen.oldest_waiting),
        "oldest_running_seconds": rounded(seen.oldest_running),
        "capability": seen.capability.value,
        "mode": row.mode.value,
        "suspect": standings.count(Standing.SUSPECT),
        "inconclusive": standings.count(Standing.INCONCLUSIVE),
        "quarantined": seen.quarantined,
        "paused": seen.paused,
        "truncated": seen.truncated,
        "interval_seconds": rounded(seen.pacing.interval, 3) if seen.pacing else None,
        "interval_reason": seen.pacing.reason if seen.pacing else None,
    }
    if seen.prefetched is not None:
        part["prefetched"] = seen.prefetched
    if seen.error:
        part["error"] = seen.error
    if row.brake:
        part["brake"] = row.brake
    return part


def findings_of(row: QueueReport) -> list[Document]:
    """Everything that is wrong with one queue: its accused leases, then what else was found."""
    seen = row.snapshot
    found = [verdict_part(row, one) for one in row.verdicts if one.standing is not Standing.HEALTHY]
    found += [side_part(seen.backend, seen.queue, one) for one in seen.side_findings]
    if seen.error:
        found.append(unreadable(seen.backend, seen.queue, seen.error))
    return found


def verdict_part(row: QueueReport, verdict: Verdict) -> Document:
    """A finding about one lease."""
    lease = verdict.lease
    done = row.done.get((lease.job, lease.token))
    evidence = {"threshold_seconds": lease.threshold, **lease.evidence}
    if lease.job in row.rescues:
        evidence["rescues"] = row.rescues[lease.job]
    return {
        "backend": verdict.backend,
        "queue": verdict.queue,
        "job": lease.job,
        "worker": lease.worker,
        "verdict": verdict.standing.value,
        "reason": verdict.reason.value if verdict.reason else "",
        "unchanged_seconds": rounded(verdict.unchanged),
        "evidence": plain(evidence),
        "action": done.action.value if done else Action.NONE.value,
        "detail": f"{verdict.detail}; {told(done)}" if done else verdict.detail,
        "would": "" if done else would(row, verdict),
    }


def side_part(backend: str, queue: str, found: SideFinding) -> Document:
    """A finding about a queue; `job` is null unless it is about one."""
    return {
        "backend": backend,
        "queue": queue,
        "job": found.job,
        "worker": found.worker,
        "verdict": Standing.SUSPECT.value,
        "reason": found.kind,
        "unchanged_seconds": 0.0,
        "evidence": plain({"count": found.count, **found.evidence}),
        "action": Action.NONE.value,
        "detail": found.detail,
        "would": "",
    }


def unreadable(backend: str, queue: str, why: str) -> Document:
    """The finding that a queue, or with an empty `queue` every queue of a system, could not be read."""
    finding = side_part(backend, queue, SideFinding(UNREADABLE, why))
    return {**finding, "verdict": Standing.INCONCLUSIVE.value, "evidence": {}}


def would(row: QueueReport, verdict: Verdict) -> str:
    """What an agent in reclaim mode would do about a stuck lease, to go after "would"; empty if it is not stuck."""
    if verdict.standing is not Standing.STUCK:
        return ""
    if verdict.reason is Reason.DEADLINE_PASSED and not row.deadline_reclaims:
        return "be told of only (deadline.action is alert)"
    if row.snapshot.capability is Capability.OBSERVE:
        return "be told of only (this system's layout leaves no safe way to move it)"
    if row.snapshot.paused:
        return "be left alone (the queue is paused)"
    if row.brake:
        return f"be held back by the brake ({row.brake})"
    rescues = row.rescues.get(verdict.lease.job)
    if rescues is None:
        return f"be put back into its queue, or dead-lettered after {counted(row.max_rescues, 'rescue')}"
    if rescues >= row.max_rescues:
        return f"be dead-lettered (rescued {counted(rescues, 'time')}, max_rescues is {row.max_rescues})"
    return f"be put back into its queue (rescue {rescues + 1} of {row.max_rescues})"


def told(done: Reclaimed) -> str:
    """What was done about a job, for the end of a sentence."""
    match done.action:
        case Action.REQUEUED:
            return f"put back (rescue {done.rescues})" + (", after a delay" if done.cause == "backoff" else "")
        case Action.DEAD_LETTERED:
            return f"dead-lettered ({done.cause or 'max_rescues'})"
        case Action.LOCK_RELEASED:
            return f"its left-over lease was removed ({done.cause})"
        case Action.LOST_RACE:
            return f"somebody else was faster ({done.cause} had changed)"
        case Action.SKIPPED:
            return f"skipped ({done.cause})"
        case Action.NONE:
            return "left alone"


def headline(doc: Document) -> str:
    """One line that says whether anything is wrong."""
    queues, findings = doc["queues"], doc["findings"]
    accused = [one for one in findings if one["reason"] in set(Reason) or one["reason"] == ""]
    others = len(findings) - len(accused)
    per = {verdict: [one for one in accused if one["verdict"] == verdict] for verdict in _SEVERITY}
    tail = [f"{len(per['suspect'])} suspect"] if per["suspect"] else []
    tail += [f"{len(per['inconclusive'])} inconclusive"] if per["inconclusive"] else []
    tail += [counted(others, "other finding")] if others else []
    stuck = [one for one in per["stuck"] if one["action"] not in _MOVED]
    if moved := [one["action"] for one in per["stuck"] if one["action"] in _MOVED]:
        kinds = ", ".join(f"{moved.count(kind)} {kind}" for kind in sorted(set(moved)))
        tail.insert(0, f"moved {counted(len(moved), 'stuck job')} ({kinds})")
    if stuck:
        where = len({(one["backend"], one["queue"]) for one in stuck})
        line = f"{counted(len(stuck), 'stuck job')} in {where} of {counted(len(queues), 'queue')}"
        return ", ".join([line, *tail])
    if moved:
        return "; ".join([f"M{tail[0][1:]}, nothing else is stuck", *tail[1:]])
    if not queues:
        return "; ".join(["No queues known to unstuck found", *tail])
    if per["inconclusive"] or per["suspect"]:
        known = f"{counted(len(queues), 'queue')}, {sum(one['running'] for one in queues)} running"
        return "; ".join([f"Nothing is proven stuck: {known}", ", ".join(tail)])
    waiting, running = (sum(one[what] for one in queues) for what in ("waiting", "running"))
    line = f"Nothing is stuck: {counted(len(queues), 'queue')}, {waiting} waiting, {running} running"
    return "; ".join([line, *tail])


def failing(doc: Document, least: str | None) -> bool:
    """Whether the findings are such that `--fail-on` (`stuck`, `suspect` or `any`) asks for exit status 1."""
    if least is None:
        return False
    if least == "any":
        return bool(doc["findings"])
    accused = [one for one in doc["findings"] if one["reason"] in set(Reason)]
    counted: Sequence[str] = ("stuck",) if least == "stuck" else ("stuck", "suspect", "inconclusive")
    return any(one["verdict"] in counted for one in accused)


def rounded(number: float | None, digits: int = 1) -> float | None:
    """Rounded; None for None and for what JSON has no number for."""
    return round(float(number), digits) if number is not None and math.isfinite(number) else None


def plain(evidence: Mapping[str, str | int | float]) -> dict[str, str | int | float]:
    """Evidence as JSON can hold it, in the order of its names."""
    made: dict[str, str | int | float] = {}
    for name in sorted(evidence):
        value = evidence[name]
        if isinstance(value, float):
            value = round(value, 3) if math.isfinite(value) else str(value)
        made[name] = value
    return made
