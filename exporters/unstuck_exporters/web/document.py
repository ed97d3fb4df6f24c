"""The status as JSON: the document of `unstuck inspect --json`, made from the board, and the agent's own part."""

from __future__ import annotations

import time
from typing import Any, Final

from unstuck.model import SideFinding, Verdict
from unstuck_exporters.ledger import QueueLedger
from unstuck_exporters.view import View

MOST_FINDINGS: Final = 1000
"""Findings in one document; the counts are of all."""

Document = dict[str, Any]


def status_document(view: View) -> Document:
    """Redis, queues and findings. Queues whose last look is too old are left out, not frozen."""
    shown = [q for q in view.queues if view.exports_queues and q.fresh(view.now)]
    findings = [verdict_document(v) for q in shown for v in q.judgement.verdicts]
    findings += [side_document(q, f) for q in shown if q.look for f in q.look.snapshot.side_findings]
    return {
        "redis": redis_document(view),
        "queues": [queue_document(q) for q in shown],
        "findings": findings[:MOST_FINDINGS],
    }


def redis_document(view: View) -> Document:
    """Redis as it was last seen; nothing is claimed about one that is not reached."""
    server = view.agent.server if view.server_fresh else None
    gate = view.agent.gate
    return {
        "version": server.version if server else None,
        "role": server.role if server else None,
        "used_memory_bytes": server.used_memory if server else None,
        "maxmemory_bytes": server.maxmemory if server else None,
        "up": view.redis_up,
        "gate": {"open": bool(gate and gate.open), "reasons": list(gate.reasons) if gate else []},
    }


def queue_document(ledger: QueueLedger) -> Document:
    """One queue."""
    if ledger.look is None:
        raise ValueError("a queue that was never seen has no document")
    s = ledger.look.snapshot
    document: Document = {
        "backend": ledger.backend,
        "queue": ledger.queue,
        "waiting": s.waiting,
        "scheduled": s.scheduled,
        "running": s.running,
        "dead": s.dead,
        "workers": s.live_workers,
        "stuck": ledger.judgement.stuck_jobs,
        "suspect": ledger.judgement.suspects,
        "oldest_waiting_seconds": _rounded(s.oldest_waiting),
        "oldest_running_seconds": _rounded(s.oldest_running),
        "capability": ledger.capability.value,
        "mode": ledger.setup.mode.value,
        "paused": s.paused,
        "truncated": s.truncated,
        "brake": {"engaged": ledger.brake.engaged, "detail": ledger.brake.detail},
    }
    if s.prefetched is not None:
        document["prefetched"] = s.prefetched
    if ledger.trouble:
        document["error"] = ledger.trouble
    if ledger.paced:
        document["poll_interval_seconds"] = round(ledger.paced.interval, 3)
    return document


def verdict_document(verdict: Verdict) -> Document:
    """A finding about one job."""
    return {
        "backend": verdict.backend,
        "queue": verdict.queue,
        "job": verdict.lease.job,
        "worker": verdict.lease.worker,
        "verdict": verdict.standing.value,
        "reason": verdict.reason.value if verdict.reason else "",
        "unchanged_seconds": round(verdict.unchanged, 3),
        "evidence": dict(verdict.lease.evidence),
        "action": "none",
        "detail": verdict.detail,
    }


def side_document(ledger: QueueLedger, finding: SideFinding) -> Document:
    """A finding about a queue; `job` is null unless it is about one."""
    return {
        "backend": ledger.backend,
        "queue": ledger.queue,
        "job": finding.job,
        "worker": finding.worker,
        "verdict": "suspect",
        "reason": finding.kind,
        "unchanged_seconds": 0.0,
        "evidence": {"count": finding.count, **finding.evidence},
        "action": "none",
        "detail": finding.detail,
    }


def agent_document(view: View) -> Document:
    """The agent itself: its part among the others, its duties, its latest events (never payloads)."""
    agent = view.agent
    return {
        "version": agent.version,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(agent.started_at)),
        "role": agent.role.value,
        "epoch": agent.epoch,
        "leader": agent.leader,
        "ready": not view.not_ready(),
        "not_ready_because": view.not_ready(),
        "redis_trouble": "" if view.redis_up else agent.redis_trouble,
        "queues_dropped": view.queues_dropped,
        "queues_not_fresh": [
            {"backend": q.backend, "queue": q.queue, "error": q.trouble}
            for q in view.queues
            if view.exports_queues and not q.fresh(view.now)
        ],
        "duties": [
            {
                "duty": duty.name,
                "ok": duty.ok,
                "passes": duty.passes,
                "missed": duty.missed,
                "seconds": round(duty.seconds, 6),
                "last_success": duty.ok_at,
                "overdue_seconds": round(duty.overdue(view.now), 1),
                "detail": duty.detail,
            }
            for duty in agent.duties.values()
        ],
        "events": [
            {
                "kind": event.kind,
                "at": event.at,
                "backend": event.backend,
                "queue": event.queue,
                "job": event.job,
                "worker": event.worker,
                "reason": event.reason,
                "detail": event.detail,
            }
            for event in view.events[-100:]
        ],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
