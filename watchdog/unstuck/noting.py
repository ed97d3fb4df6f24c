"""Noting: what the duties saw and did, onto the board, into the log and into the streams; trouble is told when it begins.

The one place where the words of the duties become those of the exporters. It never decides anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from unstuck.duties.telling import Narrator, write_log
from unstuck.errors import Deposed, classify, explain
from unstuck.logs import say
from unstuck.model import Event, QueueSnapshot
from unstuck_exporters.board import Board, Paced, PacedWhole, Promises
from unstuck_exporters.board import Brake as BoardBrake

if TYPE_CHECKING:
    from unstuck.clock import Clock
    from unstuck.config import QueueSettings
    from unstuck.duties import publishing
    from unstuck.duties.auditing import Auditor
    from unstuck.duties.reclaiming import Outcome
    from unstuck.duties.sweeping import Judged, Place, Sweep

log = logging.getLogger("unstuck.agent")


class Notary:
    """Writes down. `stream(events)` notes events in the queues' streams; `redis` is the address as people see it."""

    def __init__(self, board: Board, clock: Clock, redis: str, stream: Callable[[Sequence[Event]], None]) -> None:
        self._board = board
        self._clock = clock
        self._redis = redis
        self._stream = stream
        self._narrator = Narrator(clock)
        self._known: set[Place] = set()
        self._trouble: dict[str, str] = {}

    def event(self, kind: str, *, detail: str = "") -> Event:
        """An event of the agent itself, at the present time."""
        return self._narrator.event(kind, detail=detail)

    def sweep(self, sweep: Sweep, auditor: Auditor | None) -> None:
        """What one sweep saw."""
        board = self._board
        board.saw_server(sweep.server, clock_offset=self._clock.wall() - sweep.server.server_ms / 1000)
        board.gated(sweep.gate)
        by_backend: dict[str, list[QueueSnapshot]] = {}
        for judged in sweep.queues:
            by_backend.setdefault(judged.snapshot.backend, []).append(with_audit(judged.snapshot, auditor))
            if judged.place not in self._known:
                self._known.add(judged.place)
                board.configured(
                    *judged.place,
                    mode=judged.settings.mode,
                    backlog_threshold=judged.settings.pacing.backlog_threshold,
                    sweep_interval=judged.settings.sweep_interval,
                    promises=promises(judged.settings),
                )
        for backend, snapshots in by_backend.items():
            board.looked(backend, snapshots)
        for judged in sweep.queues:
            board.judged(*judged.place, judged.verdicts)
            board.braked(*judged.place, brake_of(judged))
        board.swept()
        for backend, refused in sweep.unread.items():
            self.failed(f"look {backend}", refused)
        for backend in {backend for backend, _ in self._known} - set(sweep.unread):
            self.recovered(f"look {backend}")
        self.happened(self._narrator.judged(sweep))

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """What the reclaims of one sweep did."""
        for outcome in outcomes:
            backend, queue = outcome.judged.place
            for verdict, what in outcome.done:
                if verdict.reason is not None:
                    self._board.reclaimed(backend, queue, verdict.reason, what, delay=verdict.since)
            for cause, count in outcome.skipped.items():
                self._board.skipped(backend, queue, cause, count)
            if outcome.failure and not isinstance(outcome.error, Deposed):
                self._board.reclaim_failed(backend, queue, outcome.failure)
                say(log, logging.ERROR, "reclaim_failed", backend=backend, queue=queue, detail=str(outcome.error))
        self.happened(self._narrator.reclaimed(outcomes))

    def published(self, passed: publishing.Pass) -> None:
        """What was published onto the board, and why it changed into the log."""
        changes = []
        for one in passed.published:
            if one.error is not None:
                self._board.pacing_failed(*one.place, classify(one.error))
                continue
            self._board.paced(*one.place, paced(one))
            if one.drained:
                self._board.pacing_reset(*one.place, "drained")
            if one.changed:
                backend, queue = one.place
                reason, detail = one.decision.reason, one.changed
                changes.append(
                    self._narrator.event("pacing_changed", backend=backend, queue=queue, reason=reason, detail=detail)
                )
        for place in passed.unmeasured:
            self._board.pacing_reset(*place, "no_data")
        self._board.paced_whole(paced_whole(passed.whole) if passed.whole else None)
        self.happened(changes)

    def happened(self, events: list[Event]) -> None:
        """Events into the log, onto the board and into the streams; a stream that cannot be written stops nothing."""
        if not events:
            return
        write_log(events)
        self._board.happened(events)
        try:
            self._stream(events)
        except Exception as error:  # noqa: BLE001  the audit must not stop the work; it is told of
            self.failed("audit", error)

    def failed(self, operation: str, error: BaseException | str, seconds: float | None = None) -> None:
        """An operation on Redis failed: counted each time, told once per kind until it works again."""
        sentence = error if isinstance(error, str) else str(explain(error, self._redis))
        kind = classify(error if isinstance(error, BaseException) else RuntimeError(error))
        self._board.redis_failed(operation.split(" ", 1)[0], kind, seconds, sentence)
        if self._trouble.get(operation) != kind:
            self._trouble[operation] = kind
            say(log, logging.WARNING, "redis_trouble", operation=operation, kind=kind, detail=sentence)

    def recovered(self, operation: str) -> None:
        """It works: told if it had not."""
        if self._trouble.pop(operation, None):
            say(log, logging.INFO, "redis_recovered", operation=operation)


def with_audit(snapshot: QueueSnapshot, auditor: Auditor | None) -> QueueSnapshot:
    """A snapshot with what the last audit found about its queue."""
    place = snapshot.backend, snapshot.queue
    if auditor is None or snapshot.error:
        return snapshot
    found = (*snapshot.side_findings, *auditor.findings.get(place, ()))
    endless = auditor.without_expiry.get(place, 0) if auditor.complete else None
    return replace(snapshot, side_findings=found, locks_without_expiry=endless)


def promises(settings: QueueSettings) -> Promises:
    """What the settings of a queue say about when a stuck job is dealt with."""
    reclaims = settings.deadline.action == "reclaim"
    return Promises(settings.gone_after, settings.confirm_after, settings.max_rescues, reclaims)


def brake_of(judged: Judged) -> BoardBrake:
    """The brake of a queue as the board has it."""
    return BoardBrake(judged.brake.engaged, len(judged.brake.held), judged.snapshot.running, judged.brake_detail)


def paced(one: publishing.Published) -> Paced:
    """A publication as the board has it."""
    decision, trend = one.decision, one.trend
    return Paced(
        interval=decision.interval,
        base=decision.base,
        score=decision.score,
        delay_part=decision.delay_part,
        backlog_part=decision.backlog_part,
        penalty=decision.penalty,
        average_delay=trend.average_delay,
        reason=decision.reason,
        growth=trend.growth,
        drain=one.drain,
        throughput=trend.throughput,
        memory_share=one.memory_share,
        cache_hit_ratio=trend.cache_hit_ratio,
        changed=one.changed,
    )


def paced_whole(whole: publishing.Whole) -> PacedWhole:
    """The value for all queues as the board has it."""
    decision = whole.decision
    return PacedWhole(decision.interval, decision.score, whole.pollers, decision.reason, whole.keyspace_hit_ratio)
