"""An attempt in hand, and who may still write for it.

What may go wrong: heartbeat, guard, control channel and slot all learn things about one attempt at the same time. One
lock per attempt and one word, `phase`, decide:

=========  ===========================================================  =========================
phase      meaning                                                      left for
=========  ===========================================================  =========================
running    the handler has it                                           finishing, lost, aborted
finishing  the handler is done; its slot reports until it is answered   –
lost       the token is not current: nothing is written any more        –
aborted    it could not be renewed in time: only a release is reported  –
=========  ===========================================================  =========================
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

from unstuck.errors import LeaseLost, UnstuckError, classify
from unstuck.protocol import Lease, Queue
from unstuck.worker.context import Cancelled, Context
from unstuck.worker.journal import say

Phase = Literal["running", "finishing", "lost", "aborted"]
PROGRESS_EVERY_SECONDS = 1.0
INTERRUPT_EVERY_SECONDS = 5.0  # what a handler gets for its clean-up before it is interrupted again


def may_heal(error: BaseException) -> bool:
    """Whether asking again can help: it is trouble with Redis or the network, or a refusal that a person can mend.

    Anything else lies in what was to be sent, or in us. RedisClusterException is no RedisError: the module tells.
    """
    kinds = type(error).__mro__
    return isinstance(error, (OSError, UnstuckError)) or any(one.__module__.split(".")[0] == "redis" for one in kinds)


class Attempt:
    """One lease with its context. `renewed` is the monotonic time at which the last successful renewal was sent."""

    __slots__ = (
        "_interrupted_at",
        "_interruptible",
        "_lock",
        "_progress",
        "_queue",
        "_told_at",
        "context",
        "interrupt",
        "lease",
        "on_change",
        "phase",
        "renewed",
        "settled",
    )

    def __init__(self, lease: Lease, queue: Queue, renewed: float, *, interrupt: bool = False) -> None:
        self.lease = lease
        self.renewed = renewed
        self.interrupt = interrupt
        self.phase: Phase = "running"
        self.settled: threading.Event | None = None  # of an aborted attempt: its release has been answered
        self.on_change: Callable[[str], None] | None = None  # told `lost` or `cancelled`, by whichever thread learns it
        self.context = Context(lease, lease.queue.name, self._report)
        self._queue = queue
        self._lock = threading.Lock()
        self._progress = ""
        self._told_at = float("-inf")
        self._interruptible: int | None = None
        self._interrupted_at = float("-inf")

    # -- from the handler ------------------------------------------------------------------------------------------

    def _report(self, value: str) -> str:
        """Store progress at once if none was stored within the last second, else with the next heartbeat."""
        now = time.monotonic()
        if now - self._told_at < PROGRESS_EVERY_SECONDS:
            self._progress = value
            return "ok"
        self._told_at = now
        try:
            answer = self._queue.report_progress(self.lease.id, self.lease.token, value)
        except Exception as error:  # noqa: BLE001  the next heartbeat carries it; a job does not fail for it
            say(logging.DEBUG, "progress_deferred", job=self.lease.id, reason=classify(error))
            self._progress = value
            return "ok"
        if answer == "lost":
            self.lose("its token is not current any more")
        return answer

    def take_progress(self) -> str:
        """The progress that no heartbeat has carried yet, empty if there is none."""
        value, self._progress = self._progress, ""
        return value

    def put_back(self, progress: str) -> None:
        """The heartbeat that carried this progress failed: keep it for the next, unless there is newer."""
        self._progress = self._progress or progress

    # -- what is learnt about it -----------------------------------------------------------------------------------

    def lose(self, why: str) -> bool:
        """Its token is not current any more. False if its handler had ended already, or it was known."""
        with self._lock:
            if self.phase != "running":
                return False
            self.phase = "lost"
        self._tell_lost("lost", why)
        return True

    def abort(self, why: str) -> bool:
        """It cannot be proven to be current: give it up. From now on only its release is reported."""
        with self._lock:
            if self.phase != "running":
                return False
            self.settled = threading.Event()
            self.phase = "aborted"
        self._tell_lost("aborted", why)
        return True

    def cancel(self) -> None:
        """Somebody asked for it to be cancelled."""
        if self.phase == "running" and self.context.cancel():
            say(logging.INFO, "cancelled", **self.names)
            self._changed("cancelled")

    def finish(self) -> bool:
        """The handler has ended: from now on only its slot speaks for it. False if there is nothing to report any more."""
        with self._lock:
            if self.phase == "running":
                self.phase = "finishing"
            return self.phase == "finishing"

    @property
    def names(self) -> dict[str, object]:
        """What log lines say about it."""
        lease = self.lease
        return {"queue": lease.queue.name, "job": lease.id, "worker": lease.worker, "token": lease.token}

    def _tell_lost(self, event: str, why: str) -> None:
        self.context.lose(why)
        say(logging.WARNING, event, why, **self.names)
        self._changed("lost")

    def _changed(self, what: str) -> None:
        if self.on_change is not None:
            self.on_change(what)
        if self.interrupt:
            self._raise_in_handler(LeaseLost if what == "lost" else Cancelled)

    # -- `--interrupt`: an exception in the handler's thread at its next bytecode ---------------------------------------

    def enter(self) -> None:
        """The calling thread begins to run the handler."""
        with self._lock:
            self._interruptible = threading.get_ident()

    def leave(self) -> None:
        """The calling thread has left the handler: take back an exception that has not arrived."""
        with self._lock:
            if self._interruptible is not None and self.interrupt:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._interruptible), None)
            self._interruptible = None

    def insist(self) -> None:
        """Interrupt a handler again that runs on: an exception that arrives within a finalizer is lost, without a trace."""
        if self.interrupt and self.phase in ("lost", "aborted"):
            self._raise_in_handler(LeaseLost)

    def _raise_in_handler(self, kind: type[Exception]) -> None:
        """Not twice at once: a cancel may be followed by a loss with the very next beat."""
        now = time.monotonic()
        with self._lock:
            if self._interruptible is not None and now - self._interrupted_at >= INTERRUPT_EVERY_SECONDS:
                self._interrupted_at = now
                thread, raised = ctypes.c_ulong(self._interruptible), ctypes.py_object(kind)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, raised)
