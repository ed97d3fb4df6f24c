"""What a queue hands out: terms, answers, and the lease of one attempt in hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from unstuck.connections import text
from unstuck.errors import LeaseLost

if TYPE_CHECKING:
    from unstuck.protocol.client import Queue


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a worker holds its jobs; milliseconds. Stored with each attempt so that it is judged by them."""

    lock: Literal["ttl", "none"] = "ttl"  # none: optimistic mode
    lock_ttl_ms: int = 30_000
    heartbeat_ms: int = 5_000
    abort_after_ms: int = 20_000

    @property
    def args(self) -> tuple[str, int, int, int]:
        """In the order in which scripts take them."""
        return self.lock, self.lock_ttl_ms, self.heartbeat_ms, self.abort_after_ms


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Answer of an enqueue: `created` is False when a job of that id was there already (with the given state)."""

    id: str
    created: bool
    state: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Answer of a claim without a job: wait, at most until `next_due_ms` (server time; None: nothing scheduled)."""

    next_due_ms: int | None
    now_ms: int
    again: bool = False  # bad ids were put into quarantine: claim again at once


@dataclass(slots=True)
class Lease:
    """One current attempt in hand. `payload` is the JSON text; `decoded()` parses it.

    Methods raise `LeaseLost` once the token is not current any more; then nothing of the job was changed.
    """

    queue: Queue
    id: str
    token: str
    attempt: int
    payload: str
    worker: str
    slot: str
    claimed_ms: int  # server time
    rescues: int = 0
    failures: int = 0
    expected_by_ms: int | None = None
    version: int = 0
    cancelled: bool = field(default=False)

    def decoded(self) -> Any:
        """The payload as Python objects. Raises `json.JSONDecodeError` where it is not JSON."""
        return json.loads(self.payload)

    def heartbeat(self, progress: str = "") -> None:
        """Renew index, lock and heartbeat time; sets `cancelled` if somebody asked for that."""
        (answer,) = self.queue.heartbeat(self.worker, [self], progress={self.id: progress})[1]
        self._heed(answer)

    def progress(self, value: str) -> None:
        """Store a progress value (at most 1 kB); no heartbeat."""
        self._heed(self.queue.report_progress(self.id, self.token, value))

    def complete(self, *, version: int | None = None) -> None:
        """End the attempt as done. With `version` (optimistic mode) only if the job still has it."""
        answer = self.queue.complete(self, version=version)
        if answer != "completed":
            raise LeaseLost(f"job {self.id} of {self.queue.name}: completion of attempt {self.token} answered {answer}")

    def fail(self, error: str, *, cause: str = "error", permanent: bool = False) -> str:
        """End the attempt as failed. Returns `scheduled` (it will be tried again) or `dead`."""
        answer = self.queue.fail(self, error, cause=cause, permanent=permanent)
        if answer == "refused":
            raise LeaseLost(f"job {self.id} of {self.queue.name}: attempt {self.token} is not current any more")
        return answer

    def release(self, cause: str = "released") -> str:
        """Give the job back, next in line, without counting a failure. Returns `released`, or `dead` if cancelled."""
        answer = self.queue.release(self, cause)
        if answer == "refused":
            raise LeaseLost(f"job {self.id} of {self.queue.name}: attempt {self.token} is not current any more")
        return answer

    def _heed(self, answer: str) -> None:
        if answer == "lost":
            raise LeaseLost(f"job {self.id} of {self.queue.name}: attempt {self.token} is not current any more")
        self.cancelled = self.cancelled or answer == "cancelled"


def claimed(queue: Queue, answer: Sequence[Any], worker: str, slot: str) -> Lease | Claim:
    """What a claim's answer says, as docs/protocol.md gives its shape."""
    kind = text(answer[0])
    if kind == "job":
        by = text(answer[8])
        return Lease(
            queue=queue,
            id=text(answer[1]),
            token=text(answer[2]),
            attempt=int(answer[3]),
            payload=text(answer[4]),
            worker=worker,
            slot=slot,
            claimed_ms=int(answer[5]),
            rescues=int(answer[6]),
            failures=int(answer[7]),
            expected_by_ms=int(by) if by else None,
            version=int(answer[9]),
        )
    if kind == "empty":
        due = int(answer[1])
        return Claim(None if due < 0 else due, int(answer[2]))
    return Claim(None, int(answer[2]), again=True)
