"""The reference worker: slots that claim and run, a heart that beats for them, a control channel that can cancel.

What may go wrong: Redis is not there at the start (it waits and says so), or goes away later (jobs run on until they must
be given up); the process is asked to stop (running jobs finish, heartbeats go on), asked twice (they are released), or
killed (the agent finds them). A wrong password, missing rights or settings that cannot work end it at the start.
"""

from __future__ import annotations

import logging
import os
import queue as inbox
import socket
import threading
import time
from collections.abc import Mapping

from unstuck import __version__
from unstuck.connections import Connections
from unstuck.errors import ConfigurationError, ProtocolError, RedisUnavailable, UnstuckError, classify, explain
from unstuck.protocol import Queue, keys
from unstuck.rights import BY_SCRIPTS, missing_rights, of_queue
from unstuck.spelling import counted
from unstuck.worker.context import Handler
from unstuck.worker.control import Control
from unstuck.worker.handlers import check, name_of, resolve
from unstuck.worker.heart import Heart
from unstuck.worker.identity import worker_id
from unstuck.worker.isolation import InProcess, InThread, Runner
from unstuck.worker.journal import say
from unstuck.worker.options import WorkerOptions
from unstuck.worker.slots import Shared, Slot
from unstuck.worker.waiting import Board, Waiter

LONGEST_PAUSE_SECONDS = 5.0
RELEASE_WITHIN_SECONDS = 10.0
HOPELESS = ("auth", "noperm", "other")


class Worker:
    """One worker of one queue. `handler` is a function `(payload, context)`, or its name as `module:function`.

    `connections` must allow `concurrency` + 4 connections (`max_connections`). Call `run` once, from any thread.
    """

    def __init__(
        self, connections: Connections, queue: str, handler: Handler | str, options: WorkerOptions | None = None
    ) -> None:
        self.options = options or WorkerOptions()
        self.handler_name = handler if isinstance(handler, str) else ""
        self.handler = resolve(handler) if isinstance(handler, str) else check(handler, repr(handler))
        if connections.max_connections < self.options.concurrency + 4:
            raise ConfigurationError(
                f"concurrency {self.options.concurrency} needs Connections(max_connections="
                f"{self.options.concurrency + 4}) or more; these allow {connections.max_connections}"
            )
        self.connections = connections
        self.id = worker_id()
        self._inbox: inbox.SimpleQueue[Slot | str] = inbox.SimpleQueue()  # its put() may be called by a signal handler
        self.queue = Queue(connections.scripting(), queue, limits=self.options.limits)
        self.board = Board(connections, queue, self.options.pace)
        self.heart = Heart(
            Queue(connections.beating(), queue, limits=self.options.limits),
            self.id,
            self.options.terms,
            record_ttl_ms=round(self.options.stuck_after * 1000),
            record=self.record,
            applied_ms=lambda: self.board.applied_ms,
            place=connections.describe(),
        )
        self.control = Control(connections, queue, self.id, told=self.heart.control, cancel=self._cancel)
        self.shared = Shared(
            self.id,
            self.queue,
            self.options.terms,
            self.heart,
            interrupt=self.options.interrupt,
            ended=self._inbox.put,
        )
        self.slots: list[Slot] = []
        self._stops = 0

    # -- life ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until stopped. Raises at the start what makes work impossible; RedisUnavailable if releasing failed."""
        if not self._enter():
            return
        self.heart.start()
        self.control.start()
        for number in range(self.options.concurrency):
            waiter = Waiter(self.connections, self.queue.name, self.board, self.shared.stopping, wake=self.options.wake)
            self.slots.append(Slot(number, self.shared, self._runner(), waiter))
        for slot in self.slots:
            slot.start()
        say(logging.INFO, "ready", queue=self.queue.name, worker=self.id, concurrency=self.options.concurrency)
        running = set(self.slots)
        while running:
            try:
                # Never for ever: a signal that another thread got is heeded when this one wakes.
                told = self._inbox.get(timeout=0.1 if self._stops else 0.5)
            except inbox.Empty:
                if self._stops:
                    self._interrupt_waits(running)  # again and again: one may just have been about to begin
                continue
            if isinstance(told, Slot):
                running.discard(told)
                if not self._stops:  # it died of an error of ours: do not go on at half strength
                    self._heed_stop()
            elif self._heed_stop():
                break
            else:
                self._interrupt_waits(running)
        self._leave(running)

    def stop(self) -> None:
        """Finish the running jobs, then end; called again: release them and end now. Safe in a signal handler."""
        self._inbox.put("stop")

    def _heed_stop(self) -> bool:
        """Note one request to stop; True if it is the second."""
        self._stops += 1
        self.shared.stopping.set()
        held = len(self.heart.held)
        if self._stops == 1:
            say(logging.INFO, "stopping", "running jobs finish; stop again to release them", worker=self.id, jobs=held)
            return False
        say(logging.WARNING, "letting_go", "releasing what runs", worker=self.id, jobs=held)
        return True

    def _interrupt_waits(self, running: set[Slot]) -> None:
        for slot in running:
            if slot.attempt is None:
                slot.waiter.interrupt()

    # -- the beginning ---------------------------------------------------------------------------------------------

    def _enter(self) -> bool:
        """Register, however long Redis takes to come; False if stopped before. Raises where rights are missing."""
        pause = 0.1
        while (published := self._register(first=pause == 0.1)) is None:
            try:
                self._inbox.get(timeout=pause)
                return False
            except inbox.Empty:
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
        if published:
            try:
                self.options.must_fit(published / 1000)
            except ConfigurationError:
                self.queue.leave(self.id, [])
                raise
            self.heart.record_ttl_ms = published
        return True

    def _must_be_allowed(self) -> None:
        """Ask before the first claim: a script that lacks a right in its middle would leave half of its work."""
        commands = of_queue(BY_SCRIPTS, keys.stem(self.queue.name))
        try:
            missing = missing_rights(self.connections.scripting(), commands)
        except Exception as error:
            if classify(error) not in ("noperm", "other"):
                raise
            say(logging.DEBUG, "rights_unknown", str(error), queue=self.queue.name, worker=self.id)  # no right to EVAL
            return
        if missing:
            lacking, mend = ", ".join(missing), "`unstuck acl worker` prints the ACL line that is needed"
            raise RedisUnavailable(f"the user at {self.connections.describe()} may not call {lacking}; {mend}")

    def _register(self, *, first: bool) -> int | None:
        """The published stuck_after in ms (0: none); None while Redis is away. Raises what waiting cannot mend."""
        ttl = self.heart.record_ttl_ms
        try:
            self._must_be_allowed()
            return self.queue.register(self.id, control=False, record_ttl_ms=ttl, record=self.record())
        except (ProtocolError, RedisUnavailable):
            raise
        except Exception as error:
            kind, known = classify(error), explain(error, self.connections.describe())
            if kind in HOPELESS:
                raise known from error
            level = logging.WARNING if first else logging.DEBUG
            sentence = f"{known}; trying again"
            say(level, "waiting_for_redis", sentence, queue=self.queue.name, worker=self.id, reason=kind)
            return None

    def _runner(self) -> Runner:
        if self.options.isolate == "process":
            return InProcess(self.handler_name or name_of(self.handler))
        return InThread(self.handler)

    def record(self) -> Mapping[str, str | int]:
        """What the worker's record says."""
        return {
            **self.options.record(),
            "version": __version__,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "applied_ms": self.board.applied_ms,
            "heartbeat_lag_ms": round(self.heart.lag * 1000),
            "pacing_doubt": self.board.doubt,
            "pacing_doubts": sum(self.board.doubts.values()),
        }

    def _cancel(self, job: str, token: str) -> None:
        """A request from the control channel counts only for the attempt that it names."""
        attempt = self.heart.held.get(token)
        if attempt is None or attempt.lease.id != job:
            say(logging.INFO, "cancel_ignored", job=job, worker=self.id, token=token)
            return
        # It also follows a reclaim; the answer to a heartbeat tells the two apart, and only that is told to the handler.
        self.heart.nudge()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _leave(self, running: set[Slot]) -> None:
        unreported = self._let_go(running) if running else []
        left = False
        try:
            left = self.queue.leave(self.id, [slot.slot for slot in self.slots])
        except Exception as error:  # noqa: BLE001  its record lapses by itself
            say(logging.WARNING, "leave_failed", str(explain(error, self.connections.describe())), worker=self.id)
        if not left:
            self.heart.control(subscribed=False)
        self.heart.stop()
        self.control.stop()
        say(logging.INFO, "stopped", queue=self.queue.name, worker=self.id, **dict(self.shared.counts))
        if any(slot.died for slot in self.slots):
            raise UnstuckError("a slot of the worker ended by a fault of unstuck itself: see `slot_died` in the log")
        if unreported:
            raise RedisUnavailable(
                f"{counted(len(unreported), 'running job')} could not be released: {', '.join(unreported[:5])}; "
                f"the agent will find {'it' if len(unreported) == 1 else 'them'}"
            )

    def _let_go(self, running: set[Slot]) -> list[str]:
        """Release what still runs; the ids of those that could not be reported in time."""
        self.shared.letting_go.set()
        attempts = [slot.attempt for slot in running if slot.attempt is not None]
        for attempt in attempts:
            attempt.lose("the worker was told to stop at once")
            self.heart.drop(attempt)
        for slot in running:
            slot.runner.kill()
            slot.waiter.interrupt()
        unreported: list[str] = []
        until = time.monotonic() + RELEASE_WITHIN_SECONDS
        for attempt in attempts:
            while True:
                try:
                    answer = self.queue.release(attempt.lease, "shutdown")
                    say(logging.INFO, answer, cause="shutdown", **attempt.names)
                    break
                except UnstuckError as error:
                    say(logging.ERROR, "release_failed", str(error), **attempt.names)
                    unreported.append(attempt.lease.id)
                    break
                except Exception as error:  # noqa: BLE001  once more while there is time
                    if time.monotonic() > until or self._stops > 2:
                        sentence = str(explain(error, self.connections.describe()))
                        say(logging.ERROR, "release_failed", sentence, **attempt.names)
                        unreported.append(attempt.lease.id)
                        break
                    threading.Event().wait(0.2)
        return unreported
