"""What a handler gets beside its payload: who it is, a way to tell its progress, and to learn that it is to stop.

What may go wrong: the attempt can be taken away while the handler runs (its worker froze, or could not reach Redis for
too long). From then on `lost` is true, every call here raises LeaseLost, and nothing is written for the attempt any
more. A handler that writes elsewhere hands `token` along, so that the other side can refuse an old attempt.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from unstuck.errors import LeaseLost, UnstuckError
from unstuck.protocol import Lease
from unstuck.worker.journal import log

Handler = Callable[[Any, "Context"], object]


class Cancelled(UnstuckError):
    """Somebody asked for this job to be cancelled; let it pass through the handler to end the attempt."""


class PermanentFailure(Exception):
    """Raise it in a handler when trying again cannot help: the job goes to the dead letters at once."""


class Context:
    """One attempt, as its handler sees it. Threads of the handler may share it.

    Attributes: `id`, `queue`, `token`, `attempt` (counts claims, from 1), `rescues`, `failures`, `version`, `worker`,
    `expected_by_ms` (server time, or None), `payload_text` (the JSON as it was enqueued).
    """

    __slots__ = (
        "_callbacks",
        "_cancelled",
        "_lock",
        "_lost",
        "_report",
        "attempt",
        "expected_by_ms",
        "failures",
        "id",
        "payload_text",
        "queue",
        "rescues",
        "token",
        "version",
        "worker",
    )

    def __init__(self, lease: Lease, queue: str, report: Callable[[str], str]) -> None:
        """`report` stores a progress text and answers `ok`, `lost` or `cancelled`."""
        self.id = lease.id
        self.queue = queue
        self.token = lease.token
        self.attempt = lease.attempt
        self.rescues = lease.rescues
        self.failures = lease.failures
        self.version = lease.version
        self.worker = lease.worker
        self.expected_by_ms = lease.expected_by_ms
        self.payload_text = lease.payload
        self._report = report
        self._lock = threading.Lock()
        self._lost = ""
        self._cancelled = lease.cancelled
        self._callbacks: list[Callable[[], object]] = []

    @property
    def lost(self) -> bool:
        """The attempt is not current any more, or cannot be proven to be: stop, and write nothing."""
        return bool(self._lost)

    @property
    def cancelled(self) -> bool:
        """Somebody asked for the job to be cancelled: stop soon. The attempt is still current."""
        return self._cancelled

    @property
    def payload(self) -> Any:
        """The payload, decoded anew (the handler's first argument is one such copy)."""
        return json.loads(self.payload_text)

    def check(self) -> None:
        """Raise LeaseLost or Cancelled if the handler should stop; call it between steps. Costs no round trip."""
        self._refuse_if_lost()
        if self._cancelled:
            raise Cancelled(f"job {self.id} of {self.queue}: attempt {self.token} was cancelled")

    def progress(self, value: object) -> None:
        """Tell how far the job is (a text or anything JSON can hold; 1 kB is kept). Raises LeaseLost once lost.

        Told at most once a second; what comes in between goes with the next heartbeat. An unreachable Redis is no
        error here.
        """
        self._refuse_if_lost()
        answer = self._report(value if isinstance(value, str) else json.dumps(value, separators=(",", ":")))
        if answer == "lost":
            self.lose("its token is not current any more")
        elif answer == "cancelled":
            self.cancel()
        self._refuse_if_lost()

    def on_lease_lost(self, callback: Callable[[], object]) -> None:
        """Have `callback` called, in a thread of its own, when the attempt is lost. Raises LeaseLost if it is already."""
        with self._lock:
            if not self._lost:
                self._callbacks.append(callback)
                return
        self._refuse_if_lost()

    def lose(self, why: str) -> bool:
        """For the worker: mark the attempt as lost; False if it was already."""
        with self._lock:
            if self._lost:
                return False
            self._lost = why or "lost"
            callbacks, self._callbacks = self._callbacks, []
        if callbacks:
            threading.Thread(target=_call_all, args=(callbacks, self.id), name="lease-lost", daemon=True).start()
        return True

    def cancel(self) -> bool:
        """For the worker: mark the attempt as cancelled; False if it was already."""
        with self._lock:
            was, self._cancelled = self._cancelled, True
        return not was

    def _refuse_if_lost(self) -> None:
        if self._lost:
            raise LeaseLost(f"job {self.id} of {self.queue}: attempt {self.token} is lost: {self._lost}")


def _call_all(callbacks: list[Callable[[], object]], job: str) -> None:
    for callback in callbacks:
        try:
            callback()
        except Exception:  # noqa: BLE001  a handler's own code, in a thread that nobody waits for
            log.exception("callback_failed", extra={"fields": {"job": job, "detail": "on_lease_lost raised"}})
