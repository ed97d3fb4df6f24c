"""The status as JSON: the document of `unstuck inspect --json`, made from the board by the same code, and the agent's part.

Its schema is docs/status.schema.json. What may go wrong: thousands of stuck jobs must not make the document dear, so the
findings are bounded (the counts are of all), the worst of each queue first.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from unstuck.model import Capability, Event, Mode, Reason, Standing, Verdict
from unstuck.report import Document, QueueReport, document, plain, queue_part, rounded
from unstuck_exporters.ledger import QueueLedger
from unstuck_exporters.view import View

MOST_FINDINGS: Final = 500
"""Findings in one document."""


def shown_queues(view: View) -> list[QueueLedger]:
    """The queues whose last look is young enough to be called the present; a follower shows none."""
    return [q for q in view.queues if q.fresh(view.now)] if view.exports_queues else []


_TOLD: Final = attrgetter(
    "waiting", "scheduled", "running", "prefetched", "dead", "quarantined", "oldest_waiting", "oldest_running",
    "workers", "capability", "paused", "truncated", "pacing",
)  # fmt: skip
"""What a queue's part is made of, beside what the board adds."""


class Parts:
    """The queues' parts, kept as long as nothing in them changes: most of many queues stand still between two looks."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[Any, Document]] = {}

    def of(self, ledgers: list[QueueLedger]) -> list[Document]:
        """The part of each queue. Nobody may change them."""
        before, self._kept = self._kept, {}
        made = []
        for ledger in ledgers:
            place = ledger.backend, ledger.queue
            told = _TOLD(ledger.look.snapshot) if ledger.look else ()
            key = (told, ledger.judgement, ledger.setup, ledger.brake, ledger.paced, ledger.trouble)
            kept = before.get(place)
            if kept is None or kept[0] != key:
                kept = key, _part(ledger)
            self._kept[place] = kept
            made.append(kept[1])
        return made


def _part(ledger: QueueLedger) -> Document:
    part = queue_part(_report(ledger, 0))
    if verdicts := ledger.judgement.verdicts:
        part["stuck"] = ledger.judgement.stuck_jobs
        part["suspect"] = ledger.judgement.suspects
        part["inconclusive"] = sum(v.standing is Standing.INCONCLUSIVE for v in verdicts)
    if part["interval_seconds"] is None and ledger.paced is not None:
        part["interval_seconds"] = rounded(ledger.paced.interval, 3)
        part["interval_reason"] = ledger.paced.reason
    return part


def status_document(view: View, ledgers: list[QueueLedger], parts: Parts) -> Document:
    """Redis, queues and findings as `inspect --json` has them, of the given queues: those that are shown."""
    unwell = [q for q in ledgers if q.judgement.verdicts or q.trouble or (q.look and q.look.snapshot.side_findings)]
    room = max(1, MOST_FINDINGS // max(1, len(unwell)))
    rows = [_report(q, room) for q in unwell]
    made = document(view.agent.server if view.server_fresh else None, view.agent.gate, rows)
    made["queues"] = parts.of(ledgers)
    del made["findings"][MOST_FINDINGS:]
    return made


def _report(ledger: QueueLedger, room: int) -> QueueReport:
    if ledger.look is None:
        raise ValueError("a queue that was never seen has no report")
    snapshot = ledger.look.snapshot
    promises = ledger.setup.promises
    verdicts = ledger.judgement.verdicts[:room]
    return QueueReport(
        snapshot=replace(snapshot, error=ledger.trouble) if ledger.trouble else snapshot,
        mode=ledger.setup.mode,
        verdicts=verdicts,
        rescues=_rescues(verdicts) if verdicts else {},
        max_rescues=promises.max_rescues,
        deadline_reclaims=promises.deadline_reclaims,
        brake=(ledger.brake.detail or "engaged") if ledger.brake.engaged else "",
    )


def _rescues(verdicts: tuple[Verdict, ...]) -> dict[str, int]:
    """How often each job was put back before, where the system's own record tells it."""
    known = {}
    for verdict in verdicts:
        count = str(verdict.lease.evidence.get("rescues", ""))
        if count.isdigit():
            known[verdict.lease.job] = int(count)
    return known


def agent_part(view: View, ledgers: list[QueueLedger]) -> Document:
    """What is true of the agent until something happens: its part among the others, gate, brakes, what is not fresh."""
    agent, gate = view.agent, view.agent.gate
    present = {id(q) for q in ledgers}
    return {
        "version": agent.version,
        "started_at": round(agent.started_at, 3),
        "role": agent.role.value,
        "epoch": agent.epoch,
        "leader": agent.leader,
        "ready": not view.not_ready(),
        "not_ready_because": view.not_ready(),
        "redis": {"up": view.redis_up, "trouble": "" if view.redis_up else agent.redis_trouble},
        "gate": {
            "open": bool(gate and gate.open),
            "reasons": list(gate.reasons) if gate else [],
            "opens_in_seconds": rounded(gate.opens_in) if gate else None,
        },
        "brakes": [
            {
                "backend": q.backend,
                "queue": q.queue,
                "condemned": q.brake.condemned,
                "in_flight": q.brake.in_flight,
                "detail": q.brake.detail,
            }
            for q in ledgers
            if q.brake.engaged
        ],
        "queues_dropped": view.queues_dropped,
        "queues_not_fresh": [
            {"backend": q.backend, "queue": q.queue, "error": q.trouble}
            for q in view.queues
            if view.exports_queues and id(q) not in present
        ],
        "outlook": outlooks(view, ledgers),
        "cursor": cursor(view),
    }


def present_part(view: View) -> Document:
    """What changes with every look at the clock: ages and duties."""
    agent = view.agent
    looks = [q.look.at for q in view.queues if q.look is not None] if view.exports_queues else []
    answered = agent.redis_answered_at
    return {
        "at": round(view.wall, 3),
        "ages": {
            "redis_answered_seconds": None if answered is None else rounded(view.now - answered),
            "server_seconds": rounded(view.now - agent.server_at) if agent.server else None,
            "newest_look_seconds": rounded(view.now - max(looks)) if looks else None,
            "oldest_look_seconds": rounded(view.now - min(looks)) if looks else None,
        },
        "duties": [
            {
                "duty": duty.name,
                "ok": duty.ok,
                "passes": duty.passes,
                "missed": duty.missed,
                "seconds": round(duty.seconds, 6),
                "last_success": duty.ok_at,
                "overdue_seconds": rounded(duty.overdue(view.now)),
                "detail": duty.detail,
            }
            for duty in agent.duties.values()
        ],
    }


def outlooks(view: View, ledgers: list[QueueLedger]) -> list[Document]:
    """For every finding about a job: when it will be acted upon at the latest, or what holds that back."""
    unwell = [q for q in ledgers if q.judgement.verdicts]
    room = max(1, MOST_FINDINGS // max(1, len(unwell)))
    gate = view.agent.gate
    closed = not (gate and gate.open)
    made = []
    for ledger in unwell:
        for verdict in ledger.judgement.verdicts[:room]:
            held = _held_by(ledger, verdict, closed)
            made.append({
                "backend": ledger.backend,
                "queue": ledger.queue,
                "job": verdict.lease.job,
                "held_by": held,
                "within_seconds": None if held else _within(ledger, verdict, view.now),
            })  # fmt: skip
    return made[:MOST_FINDINGS]


def _held_by(ledger: QueueLedger, verdict: Verdict, gate_closed: bool) -> str:
    """What holds a reclaim back, in the words of the metric `unstuck_reclaims_skipped_total`; empty: nothing."""
    if verdict.reason is Reason.DEADLINE_PASSED and not ledger.setup.promises.deadline_reclaims:
        return "alert_only"
    if verdict.lease.exempt:
        return "exempt"
    if ledger.capability is Capability.OBSERVE:
        return "observe_only"
    if ledger.setup.mode is Mode.OBSERVE:
        return "dry_run"
    if gate_closed or verdict.standing is Standing.INCONCLUSIVE:
        return "gate_closed"
    if ledger.look is not None and ledger.look.snapshot.paused:
        return "paused"
    return "brake" if ledger.brake.engaged else ""


def _within(ledger: QueueLedger, verdict: Verdict, now: float) -> float | None:
    """Seconds after which a job without a sign of life has been dealt with; None where that cannot be said."""
    promises, interval = ledger.setup.promises, ledger.setup.sweep_interval
    age = now - ledger.look.at if ledger.look is not None else 0.0
    if verdict.standing is Standing.STUCK:
        left = 0.0 if verdict.confirmed else max(0.0, promises.confirm_after - verdict.since)
        return rounded(max(0.0, left + interval - age))
    match verdict.reason:
        case Reason.WORKER_GONE:
            left = promises.gone_after
        case Reason.WORKER_DEAD if verdict.lease.beat_interval is not None:
            left = 2 * verdict.lease.beat_interval
        case Reason.LOCK_EXPIRED | Reason.LOCK_WITHOUT_HEARTBEAT | Reason.NEVER_STARTED:
            left = max(0.0, verdict.lease.threshold - verdict.unchanged)
        case _:
            return None
    return rounded(max(0.0, left + promises.confirm_after + 2 * interval - age))


def cursor(view: View) -> str:
    """Names the newest event: the agent's start and the event's number."""
    return f"{int(view.agent.started_at * 1000)}-{view.events_told}"


def events_document(view: View, since: str, limit: int) -> Document:
    """The events after a cursor, oldest first, at most the newest ``limit``.

    A cursor of another start of the agent, or none, gives all that is kept. ``missed`` counts what was asked for and is
    not in the answer.
    """
    born, _, number = since.partition("-")
    known = born == cursor(view).partition("-")[0] and number.isascii() and number.isdigit()
    seen = min(int(number[:18]), view.events_told) if known else 0
    fresh = view.events_told - seen
    kept = min(fresh, len(view.events), limit)
    first = view.events_told - kept + 1
    newest = view.events[len(view.events) - kept :]
    return {
        "cursor": cursor(view),
        "continues": known,
        "missed": fresh - kept if known else 0,
        "events": [_event(first + place, event) for place, event in enumerate(newest)],
    }


def _event(number: int, event: Event) -> dict[str, Any]:
    return {
        "number": number,
        "kind": event.kind,
        "at": round(event.at, 3),
        "backend": event.backend,
        "queue": event.queue,
        "job": event.job,
        "worker": event.worker,
        "reason": event.reason,
        "detail": event.detail,
        "evidence": plain(event.evidence),
    }
