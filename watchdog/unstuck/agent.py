"""The agent: the composition root. Settings become adapters, duties, a schedule and exporters; nothing else knows everybody.

    elect ─► sweep (look ─► judge ─► brake ─► reclaim ─► tell) ─► publish · tend · audit · memory · notify

What may go wrong: Redis may be away, at the start too. Then every duty fails, says so once, and goes on trying; nothing
exits. A stalled duty turns `/healthz` red. On a clean stop the lease is given back, so that a standby need not wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unstuck import __version__
from unstuck.adapters import adapters_for
from unstuck.clock import Clock, SystemClock
from unstuck.config import OWN, Settings
from unstuck.connections import Connections
from unstuck.duties import auditing, publishing, tending
from unstuck.duties.electing import Election
from unstuck.duties.electing import Standing as Lease
from unstuck.duties.reclaiming import reclaim
from unstuck.duties.scheduling import DutyFailedError, Schedule
from unstuck.duties.sweeping import Judged, Place, Sweep, Sweeper, is_own
from unstuck.duties.telling import write_streams
from unstuck.errors import Deposed, classify, explain
from unstuck.logs import say
from unstuck.model import Authority, Event, Mode, ServerSnapshot
from unstuck.noting import Notary
from unstuck.server import read_server
from unstuck_exporters.board import Board
from unstuck_exporters.webhook import Notifier

if TYPE_CHECKING:
    from unstuck.queue import Adapter

log = logging.getLogger("unstuck.agent")

PUBLISH_EVERY_SECONDS = 2.0
TEND_EVERY_SECONDS = 1.0
FORGET_EVERY_SECONDS = 60.0
MEMORY_EVERY_SECONDS = 5.0
NOTIFY_EVERY_SECONDS = 1.0
REFUSALS = frozenset({"noperm", "readonly", "oom", "noreplicas", "misconf"})


class Agent:
    """One agent for one Redis. `start`, then `stop`; `board` is what the exporters read."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        connections: Connections | None = None,
        owner: str | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.connections = connections or Connections.of(settings, role="agent")
        lease = settings.leader.lease
        self.board = Board(
            version=__version__,
            sweep_interval=settings.sweep_interval,
            longest_silence=max(15.0, 2.5 * lease),
            clock=self.clock,
        )
        self.board.configuration_loaded(ok=True)
        self._notifier = Notifier(settings.alarms, settings.webhooks, self.board, self.clock)
        self._adapters: dict[str, Adapter] = {}
        self._sweeper: Sweeper | None = None
        self._publisher: publishing.Publisher | None = None
        self._notary = Notary(self.board, self.clock, self.connections.describe(), self._stream)
        self._election: Election | None = None
        self._owner = owner
        self._attempted = -lease
        self._begin = threading.Event()
        # Duties begin at once, each in its thread, and a cluster's client can only be made once Redis answers: so what they
        # share is made by the first that needs it, and by one only. Two elections in one agent would stand against each other.
        self._making = threading.RLock()
        self._seen: dict[Place, Judged] = {}
        self._seen_at: dict[Place, float] = {}
        self._server: ServerSnapshot | None = None
        self._forgot = 0.0
        self._auditor: auditing.Auditor | None = None
        self.schedule = Schedule(self.clock, self.board)
        self._declare()

    def _declare(self) -> None:
        for rule in self.settings.queues:
            if rule.exact:
                self.board.configured(
                    rule.backend,
                    rule.queue,
                    mode=rule.settings.mode,
                    backlog_threshold=rule.settings.pacing.backlog_threshold,
                    sweep_interval=rule.settings.sweep_interval,
                )

    # -- life

    def start(self) -> None:
        """Begin every duty at once; Redis need not be there yet."""
        settings, lease = self.settings, self.settings.leader.lease
        slack = 2 * settings.redis_timeout + 5
        self.schedule.every("elect", lease / 3, self._elect, deadline=lease + slack)
        self.schedule.every("sweep", settings.sweep_interval, self._sweep, deadline=3 * settings.sweep_interval + slack)
        self.schedule.every(
            "publish", PUBLISH_EVERY_SECONDS, self._publish, deadline=10 * PUBLISH_EVERY_SECONDS + slack
        )
        self.schedule.every("tend", TEND_EVERY_SECONDS, self._tend, deadline=10 * TEND_EVERY_SECONDS + slack)
        self.schedule.every("audit", settings.audit.interval, self._audit, deadline=settings.audit.interval + 3600)
        self.schedule.every("memory", MEMORY_EVERY_SECONDS, self._memory, deadline=4 * MEMORY_EVERY_SECONDS + slack)
        if self.settings.webhooks:
            self.schedule.every("notify", NOTIFY_EVERY_SECONDS, self._notifier.look, deadline=30 * NOTIFY_EVERY_SECONDS)
        self.schedule.start()

    def stop(self) -> None:
        """End within the time-outs of what is under way; gives the lease back."""
        self.schedule.stop()
        self._notifier.close(patience=0.5)
        if self._election is not None and self._election.standing.leading:
            self._election.resign()
        self.connections.close()

    # -- duties

    def _elect(self) -> None:
        election = self._elections()
        now = self.clock.monotonic()
        waits = not election.standing.leading and not election.standing.trouble
        if waits and now - self._attempted < election.lease - 0.05:
            return
        self._attempted = now
        standing = election.attempt()
        seconds = self.clock.monotonic() - now
        if standing.trouble:
            raise DutyFailedError(standing.trouble)
        self.board.redis_answered("elect", seconds)

    def _elections(self) -> Election:
        with self._making:
            if self._election is None:
                self._election = Election(
                    self.connections.scripting(),
                    self.clock,
                    lease=self.settings.leader.lease,
                    digest=self.settings.digest,
                    owner=self._owner,
                    changed=self._lease_changed,
                )
            return self._election

    def _lease_changed(self, before: Lease, after: Lease) -> None:
        if after.leading:
            self.board.leads(after.epoch)
            if not before.leading or before.epoch != after.epoch:
                self._begin.set()
                self._notary.happened([self._notary.event("leader_acquired", detail=f"epoch {after.epoch}")])
                self.schedule.soon("sweep")
                self.schedule.soon("audit")
            return
        if not after.trouble:
            self.board.follows("lost", leader=after.leader)
            if after.leader_digest not in ("", self.settings.digest) and before.leader_digest != after.leader_digest:
                detail = f"the leader {after.leader} has another configuration ({after.leader_digest})"
                self._notary.happened([self._notary.event("leader_differs", detail=detail)])
        elif not after.may_write or self._refused(after):
            self.board.alone()
        else:
            self.board.follows("lost", leader_seen=False)
        if before.leading:
            detail = after.trouble or f"{after.leader} leads"
            self._notary.happened([self._notary.event("leader_lost", detail=detail)])
        if after.trouble and after.trouble != before.trouble and not self.schedule.stopping:
            self._notary.failed("elect", after.error or after.trouble)

    @staticmethod
    def _refused(standing: Lease) -> bool:
        return standing.error is not None and classify(standing.error) in REFUSALS

    def _watching(self) -> bool:
        """Whether this agent looks at queues at all: it leads, or it observes alone for want of rights to write."""
        standing = self._elections().standing
        return standing.leading or not standing.may_write or self._refused(standing)

    def _sweep(self) -> None:
        election = self._elections()
        election.doubt()
        if not self._watching():
            trouble = election.standing.trouble
            if trouble and self._sweeper is not None:  # the lease fell into it before a sweep did
                self._sweeper.failed(election.standing.error or TimeoutError(trouble))
                self.board.gated(self._sweeper.gate.state)
            return
        sweeper = self._sweepers()
        if self._begin.is_set():
            self._begin.clear()
            sweeper.begin_watch()
        if election.standing.trouble:
            sweeper.unwritable()
        begun = self.clock.monotonic()
        try:
            sweep = sweeper.sweep()
        except Exception as error:
            sweeper.failed(error)
            self.board.gated(sweeper.gate.state)
            self._notary.failed("sweep", error, self.clock.monotonic() - begun)
            raise DutyFailedError(str(explain(error, self.connections.describe()))) from error
        self.board.redis_answered("sweep", self.clock.monotonic() - begun)
        self._notary.recovered("sweep")
        self._notary.sweep(sweep, self._auditor)
        self._server = sweep.server
        self._remember(sweep)
        budget = self.settings.brake.budget
        outcomes = reclaim(sweep, self._adapters, self._authority, budget=budget)
        for outcome in outcomes:
            if isinstance(outcome.error, Deposed):
                election.step_down(str(outcome.error))
        self._notary.outcomes(outcomes)

    def _authority(self) -> Authority | None:
        election = self._elections()
        election.doubt()
        server = self._server_of_sweep
        if not election.trusted() or server is None or self.schedule.stopping:
            return None
        return Authority(election.owner, election.standing.epoch, server.run_id, server.replication_id)

    @property
    def _server_of_sweep(self) -> ServerSnapshot | None:
        """The server as the gate knew it when it was last assessed: reclaims are bound to its run id."""
        return self._sweeper.gate.last if self._sweeper else None

    def _sweepers(self) -> Sweeper:
        if self._sweeper is None:
            reading = self.connections.reading()
            adapters = adapters_for(self.settings, reading, self.connections.scripting())
            self._adapters = {adapter.backend: adapter for adapter in adapters}
            self._sweeper = Sweeper(self.settings, adapters, reading, self.clock, exchanged=self.board.redis_answered)
            self._sweeper.begin_watch()
        return self._sweeper

    def _remember(self, sweep: Sweep) -> None:
        """Keep the newest look at each queue for the other duties; one that is gone is forgotten after a while."""
        for judged in sweep.queues:
            self._seen[judged.place] = judged
            self._seen_at[judged.place] = sweep.at
        for place, judged in list(self._seen.items()):
            if sweep.at - self._seen_at[place] > max(FORGET_EVERY_SECONDS, 3 * judged.settings.sweep_interval):
                del self._seen[place], self._seen_at[place]

    def _stream(self, events: Sequence[Event]) -> None:
        """Note events in the streams of their queues, if this agent may write at all."""
        if self._elections().standing.may_write:
            write_streams(self.connections.scripting(), events)

    def _publish(self) -> None:
        election = self._elections()
        election.doubt()
        if not election.trusted() or self._server is None or not self._seen:
            return
        if self._publisher is None:
            self._publisher = publishing.Publisher(self.connections.scripting(), PUBLISH_EVERY_SECONDS, self.settings)
        begun = self.clock.monotonic()
        try:
            passed = self._publisher.publish(list(self._seen.values()), self._server, election.standing.epoch, begun)
        except Exception as error:
            self._notary.failed("publish", error, self.clock.monotonic() - begun)
            raise DutyFailedError(str(explain(error, self.connections.describe()))) from error
        self.board.redis_answered("publish", self.clock.monotonic() - begun)
        self._notary.published(passed)
        for one in passed.published:
            if isinstance(one.error, Deposed):
                election.step_down(str(one.error))
                return
            if one.error is not None:
                self._notary.failed(f"publish {one.place[0]}/{one.place[1]}", one.error)
        self._notary.recovered("publish")

    def _tend(self) -> None:
        election = self._elections()
        if not election.trusted():
            return
        own = [judged for judged in self._seen.values() if is_own(judged) and not judged.snapshot.error]
        due = [judged.snapshot.queue for judged in own if self._has_due(judged)]
        try:
            if due:
                tending.promote(self.connections.scripting(), due)
            now = self.clock.monotonic()
            if now - self._forgot >= FORGET_EVERY_SECONDS:
                self._forgot = now
                for judged in own:
                    server_ms = judged.snapshot.server_ms
                    tending.forget_workers(self.connections.scripting(), judged.snapshot.queue, server_ms)
        except Exception as error:
            self._notary.failed("tend", error)
            raise DutyFailedError(str(explain(error, self.connections.describe()))) from error
        self._notary.recovered("tend")

    def _audit(self) -> None:
        if not self._watching():
            return
        if self._auditor is None:
            self._auditor = auditing.Auditor(self.connections.reading(), self.clock, self._rest)
        try:
            if not self._auditor.run() or not self._elections().trusted() or not self._gate_is_open():
                return
            orphans = {
                queue: jobs
                for queue, jobs in self._auditor.orphans.items()
                if jobs and self.settings.for_queue(OWN, queue).mode is Mode.RECLAIM
            }
            if restored := auditing.restore(self.connections.scripting(), self._elections().standing.epoch, orphans):
                say(log, logging.WARNING, "restored", jobs=restored, detail="bodies that no index knew")
        except Deposed as deposed:
            self._elections().step_down(str(deposed))
        except Exception as error:
            self._notary.failed("audit", error)
            raise DutyFailedError(str(explain(error, self.connections.describe()))) from error
        self._notary.recovered("audit")

    def _rest(self, seconds: float) -> bool:
        """Wait between two pages of the audit; True when it is to stop."""
        return self.schedule.stopped_within(seconds) or not self._watching()

    def _gate_is_open(self) -> bool:
        return self._sweeper is not None and self._sweeper.gate.state.open

    def _has_due(self, judged: Judged) -> bool:
        due, server = judged.snapshot.next_due_ms, self._server
        if due is None or server is None:
            return False
        return due <= judged.snapshot.server_ms + 1000 * self.settings.sweep_interval + 1000

    def _memory(self) -> None:
        if not self._watching():
            return
        begun = self.clock.monotonic()
        try:
            server = read_server(self.connections.reading())
        except Exception as error:
            self._notary.failed("memory", error, self.clock.monotonic() - begun)
            raise DutyFailedError(str(explain(error, self.connections.describe()))) from error
        self.board.redis_answered("memory", self.clock.monotonic() - begun)
        self.board.memory_limit(self.settings.pacing.cache_limit.of(server.maxmemory) or 0)
        self._notary.recovered("memory")
