"""Telling: turn what a sweep saw and did into events, each told once, when it begins.

A second sweep over the same stuck job tells nothing new. Events go to the log, the board (status page), and the event
stream of the queue (audit); what a script notes in the stream by itself (requeued, dead-lettered) is not noted there again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from unstuck.config import OWN
from unstuck.duties.reclaiming import Outcome
from unstuck.duties.sweeping import Judged, Place, Sweep
from unstuck.logs import say
from unstuck.model import Action, Event, GateState, Standing, Verdict
from unstuck.protocol import keys

if TYPE_CHECKING:
    from redis import Redis

    from unstuck.clock import Clock

log = logging.getLogger("unstuck.agent")

BY_SCRIPT = frozenset({"requeued", "dead_lettered", "lost_race", "lock_released"})
LOUD = frozenset(
    {"stuck", "requeued", "dead_lettered", "brake_engaged", "gate_closed", "leader_lost", "queue_unreadable"}
)
_KINDS = {
    Action.REQUEUED: "requeued",
    Action.DEAD_LETTERED: "dead_lettered",
    Action.LOST_RACE: "lost_race",
    Action.LOCK_RELEASED: "lock_released",
    Action.SKIPPED: "skipped",
}


class Narrator:
    """Remembers what it has told, so that it tells only what is new."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[Place, dict[tuple[str, str], tuple[str, Verdict]]] = {}
        self._braked: set[Place] = set()
        self._unreadable: dict[Place, str] = {}
        self._gate: GateState | None = None

    def judged(self, sweep: Sweep) -> list[Event]:
        """What one sweep saw that is new."""
        events = self._about_gate(sweep.gate)
        for judged in sweep.queues:
            events += self._about_queue(judged)
        return events

    def reclaimed(self, outcomes: Sequence[Outcome]) -> list[Event]:
        """What became of those that were to be reclaimed."""
        events = []
        for outcome in outcomes:
            told = self._told.get(outcome.judged.place, {})
            for verdict, what in outcome.done:
                detail = f"rescue {what.rescues}: {verdict.detail}" if what.rescues else what.cause
                events.append(self._about(verdict, _KINDS[what.action], detail))
                if what.action is not Action.SKIPPED:
                    told.pop((verdict.lease.job, verdict.lease.token), None)
        return events

    def event(self, kind: str, *, backend: str = "", queue: str = "", reason: str = "", detail: str = "") -> Event:
        """An event of the agent itself or of a whole queue, at the present time."""
        return Event(kind, self._clock.wall(), backend=backend, queue=queue, reason=reason, detail=detail)

    def _about_gate(self, gate: GateState) -> list[Event]:
        before, self._gate = self._gate, gate
        if before is not None and before.open == gate.open and before.reasons == gate.reasons:
            return []
        if gate.open:
            return [self.event("gate_opened", detail="verdicts can be trusted")]
        return [self.event("gate_closed", reason=gate.reasons[0], detail=", ".join(gate.reasons))]

    def _about_queue(self, judged: Judged) -> list[Event]:
        place = judged.place
        backend, queue = place
        events: list[Event] = []
        trouble = judged.snapshot.error
        if trouble != self._unreadable.get(place, ""):
            self._unreadable[place] = trouble
            if trouble:
                events.append(self.event("queue_unreadable", backend=backend, queue=queue, detail=trouble))
        if trouble:
            return events
        before = self._told.get(place, {})
        after: dict[tuple[str, str], tuple[str, Verdict]] = {}
        for verdict in judged.verdicts:
            name = verdict.lease.job, verdict.lease.token
            stage = _stage(verdict)
            if stage == "":
                continue
            after[name] = stage, verdict
            if before.get(name, ("", verdict))[0] != stage:
                events.append(self._about(verdict, stage))
        events += [
            self._about(verdict, "cleared", "it shows life again, or has ended")
            for name, (stage, verdict) in before.items()
            if name not in after and stage != "inconclusive"
        ]
        self._told[place] = after
        return events + self._about_brake(judged)

    def _about_brake(self, judged: Judged) -> list[Event]:
        place = judged.place
        if judged.brake.engaged == (place in self._braked):
            return []
        backend, queue = place
        if judged.brake.engaged:
            self._braked.add(place)
            return [self.event("brake_engaged", backend=backend, queue=queue, detail=judged.brake_detail)]
        self._braked.discard(place)
        return [self.event("brake_released", backend=backend, queue=queue)]

    def _about(self, verdict: Verdict, kind: str, detail: str = "") -> Event:
        lease = verdict.lease
        evidence = {"unchanged_s": round(verdict.unchanged, 1), "threshold_s": lease.threshold, **lease.evidence}
        return Event(
            kind=kind,
            at=self._clock.wall(),
            backend=verdict.backend,
            queue=verdict.queue,
            job=lease.job,
            worker=lease.worker,
            token=lease.token,
            reason=verdict.reason.value if verdict.reason else "",
            detail=detail or verdict.detail,
            evidence=evidence,
        )


def _stage(verdict: Verdict) -> str:
    match verdict.standing:
        case Standing.HEALTHY:
            return ""
        case Standing.SUSPECT:
            return "suspected"
        case Standing.STUCK:
            return "confirmed" if verdict.confirmed else "stuck"
        case Standing.INCONCLUSIVE:
            return "inconclusive"


def write_log(events: Iterable[Event]) -> None:
    """One line per event."""
    for event in events:
        level = logging.WARNING if event.kind in LOUD else logging.INFO
        if event.kind == "inconclusive":
            level = logging.DEBUG
        fields = {
            "backend": event.backend,
            "queue": event.queue,
            "job": event.job,
            "worker": event.worker,
            "token": event.token,
            "reason": event.reason,
            "detail": event.detail,
        }
        say(log, level, event.kind, **{name: value for name, value in fields.items() if value}, **event.evidence)


def write_streams(client: Redis, events: Iterable[Event]) -> None:
    """Note events about a queue in its stream, in one round trip. Raises redis-py's exceptions."""
    pipe = client.pipeline(transaction=False)
    for event in events:
        if not event.queue or event.kind in BY_SCRIPT or event.kind == "inconclusive":
            continue
        tag = event.queue if event.backend == OWN else keys.tag(event.backend, event.queue)
        fields: dict[Any, Any] = {
            "event": event.kind,
            "job": event.job,
            "worker": event.worker,
            "token": event.token,
            "cause": event.reason or event.detail,
            "evidence": " ".join(f"{name}={value}" for name, value in event.evidence.items())[:1000],
        }
        pipe.xadd(keys.events(tag), fields, maxlen=10_000, approximate=True)
    if len(pipe):
        pipe.execute()
