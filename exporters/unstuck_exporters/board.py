"""The board: the duties write on it what happened, the exporters read from it what is.

A duty calls one method per thing that happened (`looked`, `judged`, `reclaimed`, `passed` …); every method returns at
once, takes no Redis, and raises nothing for odd input. A reader calls `view()` and gets a copy that nobody changes.
What may go wrong: a duty that stops writing must not leave its last words standing as the present, so everything has
the time at which it was written, and `View` says what is still fresh. All times here are this process' own clock;
what was measured with the server's clock stays inside the snapshots.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from unstuck.clock import Clock, SystemClock
from unstuck.model import Event, GateState, Mode, QueueSnapshot, Reason, Reclaimed, ServerSnapshot, Verdict
from unstuck_exporters import labels
from unstuck_exporters.agency import AgentLedger, Duty, Role
from unstuck_exporters.chronicle import Chronicle
from unstuck_exporters.history import Point
from unstuck_exporters.ledger import Brake, Paced, PacedWhole, Promises, QueueLedger, Setup, max_age
from unstuck_exporters.roster import Roster
from unstuck_exporters.tally import DELIVERY_BUCKETS, Histogram, Tally
from unstuck_exporters.view import View

__all__ = ["Board", "Brake", "Paced", "PacedWhole", "Promises", "Role", "View"]


class Board:
    """All that the agent knows, in one place. Safe to share among threads.

    ``source`` names the Redis in labels (never its host). ``queue_limit`` bounds the queues kept and exported:
    configured ones first, then as they are discovered; the rest is counted as dropped. ``longest_silence`` is how many
    seconds may pass between two exchanges with Redis before it no longer counts as up.
    """

    def __init__(
        self,
        *,
        version: str = "",
        source: str = "default",
        sweep_interval: float = 2.0,
        longest_silence: float = 15.0,
        queue_limit: int = 1000,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._sweep_interval = sweep_interval
        self._longest_silence = longest_silence
        self._queues = Roster(queue_limit, sweep_interval)
        self._agent = AgentLedger(version=version, source=source, started_at=self._clock.wall())
        self._chronicle = Chronicle()

    # -- set up

    def configured(
        self,
        backend: str,
        queue: str,
        *,
        mode: Mode = Mode.OBSERVE,
        backlog_threshold: int | None = None,
        sweep_interval: float | None = None,
        promises: Promises | None = None,
    ) -> None:
        """A queue is named in the settings, or was matched by a pattern in them: its series start at 0 from now on."""
        with self._lock:
            ledger = self._ledger(backend, queue, configured=True)
            if ledger is None:
                return
            every = self._sweep_interval if sweep_interval is None else sweep_interval
            setup = Setup(True, mode, backlog_threshold, every, promises or ledger.setup.promises)
            self._queues.put(replace(ledger, setup=setup))

    def configuration_loaded(self, *, ok: bool) -> None:
        """The configuration was read: at start, or again later."""
        with self._lock:
            self._agent.config_ok = ok
            if ok:
                self._agent.config_ok_at = self._clock.wall()

    def memory_limit(self, used_bytes: int) -> None:
        """The used memory, in bytes, from which on polling is slowed (cache_limit of maxmemory); 0 = none."""
        with self._lock:
            self._agent.memory_limit = used_bytes

    # -- duties

    def expects(self, duty: str, deadline: float) -> None:
        """A duty is to finish a pass at least every ``deadline`` seconds from now on, or `/healthz` turns red."""
        with self._lock:
            known = self._agent.duties.get(duty)
            now = self._clock.monotonic()
            self._agent.duties[duty] = known.again(deadline, now) if known else Duty(duty, deadline, now)

    def retired(self, duty: str) -> None:
        """A duty is not to run any more (a follower sweeps nothing): it is no longer expected, nor exported."""
        with self._lock:
            self._agent.duties.pop(duty, None)

    def passed(self, duty: str, seconds: float, *, ok: bool = True, truncated: bool = False, detail: str = "") -> None:
        """A pass of a duty ended after ``seconds``. ``ok`` False: it could not do its work; it is alive all the same."""
        with self._lock:
            now = self._clock.monotonic()
            known = self._agent.duties.get(duty) or Duty(duty, None, now)
            self._agent.duties[duty] = known.passed(
                now, self._clock.wall(), seconds, ok=ok, truncated=truncated, detail=detail
            )

    def missed(self, duty: str) -> None:
        """A pass was due and did not start (the one before still ran, or the scheduler came late)."""
        with self._lock:
            known = self._agent.duties.get(duty) or Duty(duty, None, self._clock.monotonic())
            self._agent.duties[duty] = known.skipped()

    # -- Redis

    def redis_answered(self, operation: str, seconds: float) -> None:
        """An exchange with Redis worked. ``operation`` is a short word for what was asked (look, info, reclaim …)."""
        with self._lock:
            self._agent.redis_up = True
            self._agent.redis_answered_at = self._clock.monotonic()
            self._agent.exchange(operation, seconds)

    def redis_failed(self, operation: str, kind: str, seconds: float | None = None, detail: str = "") -> None:
        """An exchange with Redis failed; ``kind`` as `unstuck.errors.classify` gives it, ``detail`` one sentence."""
        with self._lock:
            self._agent.redis_up = False
            self._agent.redis_trouble = detail or kind
            self._agent.redis_errors.add(labels.word(operation), labels.known(kind, labels.FAILURE_KINDS))
            if seconds is not None:
                self._agent.exchange(operation, seconds)

    def saw_server(self, server: ServerSnapshot, *, clock_offset: float | None = None) -> None:
        """Redis told of itself. ``clock_offset`` is our Unix time minus Redis TIME, in seconds."""
        with self._lock:
            self._agent.server = server
            self._agent.server_at = self._clock.monotonic()
            self._agent.clock_offset = clock_offset

    # -- leading

    def leads(self, epoch: int) -> None:
        """This agent holds the lease; may be said at every renewal, only the first time is a transition."""
        with self._lock:
            if self._agent.role is not Role.LEADER:
                self._agent.transitions.add("acquired")
            self._agent.role = Role.LEADER
            self._agent.epoch = epoch
            self._agent.leader_seen = True

    def follows(self, event: str = "lost", *, leader_seen: bool = True, leader: str = "") -> None:
        """This agent does not hold the lease; ``event`` says how it was lost, if it was held (LEADER_EVENTS).

        ``leader_seen`` is whether another agent holds it, ``leader`` that agent's name for the status page.
        """
        with self._lock:
            if self._agent.role is Role.LEADER:
                self._agent.transitions.add(labels.known(event, labels.LEADER_EVENTS))
            self._agent.role = Role.FOLLOWER
            self._agent.leader_seen = leader_seen
            self._agent.leader = leader

    def alone(self) -> None:
        """This agent may not write, so it cannot lead: it observes, and exports, whatever others do."""
        with self._lock:
            self._agent.role = Role.ALONE

    # -- looking and judging

    def looked(self, backend: str, snapshots: Sequence[QueueSnapshot]) -> None:
        """One look of one adapter, with all the queues that it was asked about."""
        with self._lock:
            now, wall = self._clock.monotonic(), self._clock.wall()
            dropped = 0
            for snapshot in snapshots:
                ledger = self._ledger(backend, snapshot.queue)
                if ledger is None:
                    dropped += 1
                else:
                    self._agent.heard(ledger.look.snapshot if ledger.look else None, snapshot)
                    self._queues.put(ledger.looked(snapshot, now, wall))
            self._queues.looked(backend, dropped, now)

    def swept(self) -> None:
        """A whole sweep over all queues is complete: the agent is ready."""
        with self._lock:
            self._agent.sweeps += 1

    def gated(self, gate: GateState) -> None:
        """The gate was asked; each cause that newly holds it closed is counted once."""
        with self._lock:
            before = self._agent.gate.reasons if self._agent.gate else ()
            for cause in gate.reasons:
                if cause not in before:
                    self._agent.gate_closings.add(labels.known(cause, labels.GATE_CAUSES))
            self._agent.gate = gate

    def judged(self, backend: str, queue: str, verdicts: Sequence[Verdict]) -> None:
        """The verdicts on one queue's in-flight jobs; healthy ones may be left out. What is new is counted here."""
        with self._lock:
            if ledger := self._ledger(backend, queue):
                self._queues.put(ledger.judged(verdicts, self._clock.wall()))

    # -- reclaiming

    def reclaimed(
        self, backend: str, queue: str, reason: Reason, outcome: Reclaimed, *, delay: float | None = None
    ) -> None:
        """What became of one condemned job, whatever the outcome. ``delay``: seconds from stuck to reclaimed."""
        with self._lock:
            if ledger := self._ledger(backend, queue):
                counts = ledger.counts.outcome(reason, outcome, delay, self._clock.wall())
                self._queues.put(replace(ledger, counts=counts))

    def skipped(self, backend: str, queue: str, cause: str, count: int = 1) -> None:
        """Stuck jobs were left alone in this sweep (labels.SKIP_CAUSES); counted in every sweep that leaves them."""
        with self._lock:
            if ledger := self._ledger(backend, queue):
                skipped = ledger.counts.skipped.plus(labels.known(cause, labels.SKIP_CAUSES), count=count)
                self._count(ledger, skipped=skipped)

    def reclaim_failed(self, backend: str, queue: str, kind: str, count: int = 1) -> None:
        """Reclaims raised; ``kind`` as `unstuck.errors.classify` gives it."""
        with self._lock:
            if ledger := self._ledger(backend, queue):
                failures = ledger.counts.failures.plus(labels.known(kind, labels.FAILURE_KINDS), count=count)
                self._count(ledger, failures=failures)

    def braked(self, backend: str, queue: str, brake: Brake) -> None:
        """The brake of a queue was asked (S6)."""
        with self._lock:
            if ledger := self._ledger(backend, queue):
                self._queues.put(replace(ledger, brake=brake))

    # -- pacing, cache, notifications

    def paced(self, backend: str, queue: str, paced: Paced) -> None:
        """An interval was published; its time is now unless it carries one. Why it last changed is remembered."""
        with self._lock:
            if ledger := self._ledger(backend, queue):
                before = ledger.paced.changed if ledger.paced else ""
                at = paced.at or self._clock.wall()
                self._queues.put(replace(ledger, paced=replace(paced, at=at, changed=paced.changed or before)))

    def paced_whole(self, whole: PacedWhole | None) -> None:
        """The interval for all queues together was made; None: there is nothing to make one of."""
        with self._lock:
            self._agent.paced = whole and replace(whole, at=whole.at or self._clock.wall())

    def pacing_failed(self, backend: str, queue: str, kind: str) -> None:
        """An interval could not be published; ``kind`` as `unstuck.errors.classify` gives it."""
        with self._lock:
            if ledger := self._ledger(backend, queue):
                failures = ledger.counts.publish_failures.plus(labels.known(kind, labels.FAILURE_KINDS))
                self._count(ledger, publish_failures=failures)

    def pacing_reset(self, backend: str, queue: str, cause: str) -> None:
        """The interval went back to its base (labels.RESET_CAUSES)."""
        with self._lock:
            if ledger := self._ledger(backend, queue):
                self._count(ledger, resets=ledger.counts.resets.plus(labels.known(cause, labels.RESET_CAUSES)))

    def invalidated(self, backend: str, queue: str, cause: str, count: int = 1) -> None:
        """Per-job cache entries were invalidated (labels.INVALIDATION_CAUSES)."""
        with self._lock:
            if ledger := self._ledger(backend, queue):
                cause = labels.known(cause, labels.INVALIDATION_CAUSES)
                self._count(ledger, invalidations=(ledger.counts.invalidations or Tally()).plus(cause, count=count))

    def invalidation_failed(self, backend: str, queue: str) -> None:
        """An invalidation could not be made."""
        with self._lock:
            if ledger := self._ledger(backend, queue):
                failures = ledger.counts.invalidation_failures + 1
                known = ledger.counts.invalidations or Tally()
                self._count(ledger, invalidations=known, invalidation_failures=failures)

    def published(self, channel: str, subscribers: int) -> None:
        """An invalidation event was published; ``subscribers`` is PUBLISH's reply. ``channel`` is a closed name."""
        with self._lock:
            self._agent.publications.add(labels.word(channel))
            self._agent.subscribers[labels.word(channel)] = subscribers

    def notified(self, receiver: str, seconds: float, *, ok: bool) -> None:
        """A delivery to a configured receiver was attempted; every attempt counts, the failed ones also apart."""
        with self._lock:
            receiver = labels.word(receiver)
            self._agent.notifications.add(receiver)
            self._agent.notification_failures.add(receiver, count=0 if ok else 1)
            self._agent.deliveries.setdefault(receiver, Histogram(DELIVERY_BUCKETS)).observe(seconds)

    def notification_suppressed(self, receiver: str, cause: str) -> None:
        """An alert was not sent (labels.SUPPRESSION_CAUSES)."""
        with self._lock:
            self._agent.suppressions.add(labels.word(receiver), labels.known(cause, labels.SUPPRESSION_CAUSES))

    def notifications_waiting(self, receiver: str, count: int) -> None:
        """Alerts that wait for delivery to a receiver now; saying 0 at start declares the receiver."""
        with self._lock:
            receiver = labels.word(receiver)
            self._agent.notifications_waiting[receiver] = count
            self._agent.notifications.add(receiver, count=0)
            self._agent.notification_failures.add(receiver, count=0)

    def happened(self, events: Event | Iterable[Event]) -> None:
        """Events for the status page; the last 500 are kept. Counters are fed by the other methods, not by these."""
        with self._lock:
            self._chronicle.add(events)

    # -- reading

    def view(self) -> View:
        """All of it as it stands now, a copy."""
        with self._lock:
            return View(
                now=self._clock.monotonic(),
                wall=self._clock.wall(),
                max_age=max_age(self._sweep_interval),
                longest_silence=max(self._longest_silence, max_age(self._sweep_interval)),
                agent=self._agent.copy(),
                queues=self._queues.all(),
                queues_dropped=self._queues.dropped,
                events=self._chronicle.all(),
                events_told=self._chronicle.told,
            )

    def history(self, backend: str, queue: str) -> tuple[Point, ...]:
        """The last half hour of a queue, oldest first; empty if it is not known."""
        with self._lock:
            ledger = self._queues.find(backend, queue)
            return ledger.history.points() if ledger else ()

    def _ledger(self, backend: str, queue: str, *, configured: bool = False) -> QueueLedger | None:
        """The ledger of a queue; None if there is no room for it. Only under the lock."""
        return self._queues.open(backend, queue, self._clock.monotonic(), configured=configured)

    def _count(self, ledger: QueueLedger, **counts: Any) -> None:
        self._queues.put(replace(ledger, counts=replace(ledger.counts, **counts)))
