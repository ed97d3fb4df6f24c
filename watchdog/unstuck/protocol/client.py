"""The Python client of our own queue: `Queue` to put, take, cancel and look.

What may go wrong: a call may be carried out although its reply is lost. Every mutating call therefore carries an operation
id chosen before it is sent, so that redis-py (or you) may send it again and get the first answer. Any client of redis-py
will do; `unstuck.connections.Connections.scripting()` has the retries set on purpose.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unstuck.connections import text
from unstuck.errors import Refused, classify
from unstuck.protocol import keys, scripts, together
from unstuck.protocol.diagnosis import naming
from unstuck.protocol.leases import Claim, Enqueued, Lease, Terms, claimed
from unstuck.protocol.limits import Limits
from unstuck.protocol.values import (
    MAX_ERROR_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_PROGRESS_BYTES,
    clip,
    encode,
    jitter_thousandths,
    milliseconds,
    size,
)

if TYPE_CHECKING:
    from redis import Redis

ANNOUNCE_EVERY_SECONDS = 3_600.0


class Queue:
    """One queue of ours. Threads may share it. `client` is any redis-py client, decoding or not."""

    def __init__(self, client: Redis, name: str, *, limits: Limits | None = None) -> None:
        self.client = client
        self.name = keys.valid_queue(name)
        self.limits = limits or Limits()
        self.meta = keys.meta(name)
        self._announced = -ANNOUNCE_EVERY_SECONDS
        self._announcing = threading.Lock()

    # -- putting ---------------------------------------------------------------------------------------------------

    def enqueue(
        self,
        payload: Any,
        *,
        id: str | None = None,  # noqa: A002  the protocol's own word
        delay: float = 0.0,
        max_attempts: int | None = None,
        retry_delay: float | None = None,
        expected: float | None = None,
        op: str | None = None,
    ) -> Enqueued:
        """Put one job: `payload` is anything JSON can hold. `delay`, `retry_delay` and `expected` (run time) in seconds.

        The same id while its job exists answers `created=False`, unless `op` is that of the first call (a repetition).
        Raises `Refused` for a payload over 1 MB or not JSON, `InvalidName` for a bad id.
        """
        return self.enqueue_text(
            encode(payload),
            id=id,
            delay=delay,
            max_attempts=max_attempts,
            retry_delay=retry_delay,
            expected=expected,
            op=op,
        )

    def enqueue_text(
        self,
        payload: str,
        *,
        id: str | None = None,  # noqa: A002
        delay: float = 0.0,
        max_attempts: int | None = None,
        retry_delay: float | None = None,
        expected: float | None = None,
        op: str | None = None,
    ) -> Enqueued:
        """As `enqueue`, for a payload that is JSON text already (not parsed again here)."""
        job_id = keys.valid_id(id) if id is not None else secrets.token_hex(16)
        self.announce()
        args = self._enqueue_args(job_id, payload, op, delay, max_attempts, retry_delay, expected)
        answer = scripts.run(self.client, "enqueue_job", self.meta, *args)
        return Enqueued(job_id, text(answer[0]) == "enqueued", text(answer[1]))

    def enqueue_many(
        self,
        payloads: Iterable[Any],
        *,
        delay: float = 0.0,
        max_attempts: int | None = None,
        retry_delay: float | None = None,
        expected: float | None = None,
    ) -> list[Enqueued]:
        """Put several jobs in one round trip per 500; ids are chosen here. Raises the first refusal, after all were sent."""
        self.announce()
        calls: list[scripts.Call] = []
        for payload in payloads:
            job_id = secrets.token_hex(16)
            args = self._enqueue_args(job_id, encode(payload), None, delay, max_attempts, retry_delay, expected)
            calls.append(scripts.Call("enqueue_job", self.meta, args))
        done: list[Enqueued] = []
        for start in range(0, len(calls), 500):
            part = calls[start : start + 500]
            for call, answer in zip(part, scripts.run_many(self.client, part), strict=True):
                if isinstance(answer, Exception):
                    raise answer
                done.append(Enqueued(str(call.args[0]), text(answer[0]) == "enqueued", text(answer[1])))
        return done

    def _enqueue_args(
        self,
        job_id: str,
        payload: str,
        op: str | None,
        delay: float,
        max_attempts: int | None,
        retry_delay: float | None,
        expected: float | None,
    ) -> tuple[scripts.Argument, ...]:
        large = size(payload)
        if large > MAX_PAYLOAD_BYTES:
            told = f"payload of {large} bytes; the limit is {MAX_PAYLOAD_BYTES}: store it elsewhere"
            raise Refused(f"queue {self.name}: {told}")
        if max_attempts is not None and max_attempts < 1:
            raise Refused(f"queue {self.name}: max_attempts {max_attempts}; use at least 1")
        return (
            job_id,
            op or scripts.operation(),
            payload,
            milliseconds(delay, "delay"),
            "" if max_attempts is None else max_attempts,
            "" if retry_delay is None else milliseconds(retry_delay, "retry_delay"),
            "" if expected is None else milliseconds(expected, "expected"),
        )

    def announce(self) -> None:
        """Put the name into `unstuck:queues`: before the first script of this client, and hourly."""
        now = time.monotonic()
        if now - self._announced < ANNOUNCE_EVERY_SECONDS:
            return
        with self._announcing:
            try:
                with naming(self.client, keys.QUEUES, "set"):
                    self.client.sadd(keys.QUEUES, self.name)
            except Exception as error:
                # A full Redis must be able to drain; the name is told as soon as there is room.
                if classify(error) != "oom":
                    raise
                return
            self._announced = now

    # -- taking ----------------------------------------------------------------------------------------------------

    def claim(self, worker: str, slot: str, terms: Terms | None = None, *, op: str | None = None) -> Lease | Claim:
        """Take the next job for `worker` (`host:pid:8 hex`), or learn until when there is nothing.

        One call at a time per worker and slot; `op` repeats an earlier call.
        """
        self.announce()
        answer = scripts.run_call(self.client, self.claiming(worker, slot, terms or Terms(), op))
        return claimed(self, answer, worker, slot)

    def claiming(self, worker: str, slot: str, terms: Terms, op: str | None) -> scripts.Call:
        """The call that claims, not sent yet. The operation id is also the nonce of the new token, if it can be."""
        op = op or scripts.operation()
        nonce = op if re.fullmatch(r"[0-9a-f]{16}", op) else scripts.operation()
        return scripts.Call("claim_job", self.meta, (worker, f"{slot}c", op, nonce, *terms.args))

    def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        record_ttl_ms: int = 30_000,
        progress: Mapping[str, str] | None = None,
        applied_ms: int | None = None,
    ) -> tuple[bool, list[str]]:
        """One beat for the worker and all it holds: (its record exists, answers in order: ok, lost, cancelled)."""
        args: list[scripts.Argument] = [worker, record_ttl_ms, "" if applied_ms is None else applied_ms]
        for lease in leases:
            args += [lease.id, lease.token, clip((progress or {}).get(lease.id, ""), MAX_PROGRESS_BYTES)]
        answer = scripts.run(self.client, "heartbeat_jobs", self.meta, *args)
        return int(answer[0]) == 1, [text(word) for word in answer[2:]]

    def report_progress(self, job_id: str, token: str, value: str) -> str:
        """Store a progress value under a current token: `ok`, `cancelled` or `lost`."""
        value = clip(value, MAX_PROGRESS_BYTES)
        return text(scripts.run(self.client, "report_progress", self.meta, job_id, token, value))

    # -- finishing -------------------------------------------------------------------------------------------------

    def complete(self, lease: Lease, *, version: int | None = None, op: str | None = None) -> str:
        """`completed`, `refused` (the token is not current) or `conflict` (optimistic mode: another version)."""
        return text(scripts.run_call(self.client, self.completion(lease, version, op)))

    def complete_and_claim(
        self,
        lease: Lease,
        terms: Terms,
        *,
        version: int | None = None,
        op: str | None = None,
        claim_op: str | None = None,
    ) -> tuple[str, Lease | Claim]:
        """Complete one job and take the next in one round trip. Either part may be repeated safely by itself.

        When this raises, either part may have been carried out: ask again with `complete`, and with `claim` and the
        operation id that was given here.
        """
        one = together.Handed(lease, version, op, claim_op or scripts.operation())
        (answer,) = together.complete_and_claim(self, lease.worker, terms, [one])
        return answer or together.separately(self, terms, one)

    def completion(self, lease: Lease, version: int | None, op: str | None) -> scripts.Call:
        """The call that completes, not sent yet. Without `op` its operation id is that of this attempt's completion."""
        expected = "" if version is None else version
        op = op or f"c{lease.token}/{expected}"
        args = (lease.worker, f"{lease.slot}f", op, lease.id, lease.token, self.limits.result_ttl_ms, expected)
        return scripts.Call("complete_job", self.meta, args)

    def fail(
        self, lease: Lease, error: str, *, cause: str = "error", permanent: bool = False, op: str | None = None
    ) -> str:
        """`scheduled`, `dead` or `refused`. The error text is clipped to 4 kB; `cause` is a short word for people."""
        answer = scripts.run(
            self.client,
            "fail_job",
            self.meta,
            lease.worker,
            f"{lease.slot}f",
            op or f"f{lease.token}",
            lease.id,
            lease.token,
            clip(error, MAX_ERROR_BYTES),
            clip(cause, 128),
            1 if permanent else 0,
            self.limits.max_attempts,
            self.limits.retry_delay_ms,
            jitter_thousandths(),
            self.limits.dead_max,
            self.limits.dead_ttl_ms,
        )
        return text(answer)

    def release(self, lease: Lease, cause: str, *, op: str | None = None) -> str:
        """`released`, `dead` (it had been cancelled) or `refused`."""
        answer = scripts.run(
            self.client,
            "release_job",
            self.meta,
            lease.worker,
            f"{lease.slot}f",
            op or f"r{lease.token}",
            lease.id,
            lease.token,
            clip(cause, 128),
            self.limits.dead_max,
            self.limits.dead_ttl_ms,
        )
        return text(answer)

    # -- by hand ---------------------------------------------------------------------------------------------------

    def cancel(self, job_id: str, *, op: str | None = None) -> str:
        """`dead` (it was waiting), `told` (its running attempt was asked), `ended` or `missing`."""
        limits = (self.limits.dead_max, self.limits.dead_ttl_ms)
        args = (keys.valid_id(job_id), op or scripts.operation(), *limits)
        return text(scripts.run(self.client, "cancel_job", self.meta, *args)[0])

    def promote(self, most: int = 100) -> int:
        """Move due jobs from scheduled to pending; returns how many."""
        return int(scripts.run(self.client, "promote_jobs", self.meta, most)[0])

    def retry_dead(self, job_id: str, *, op: str | None = None) -> str:
        """`retried`, `not_dead` or `missing`. Resets failures and rescues."""
        args = (keys.valid_id(job_id), op or scripts.operation())
        return text(scripts.run(self.client, "retry_dead", self.meta, *args)[0])

    def drop_dead(self, job_id: str, *, op: str | None = None) -> str:
        """`dropped`, `not_dead` or `missing`."""
        return text(scripts.run(self.client, "drop_dead", self.meta, job_id, op or scripts.operation())[0])

    def show(self, job_id: str) -> dict[str, str]:
        """The fields of a job's hash, empty if there is none."""
        found: Any = self.client.hgetall(keys.job(self.name, job_id))
        return {text(name): text(value) for name, value in found.items()}

    # -- workers ---------------------------------------------------------------------------------------------------

    def register(
        self, worker: str, *, control: bool, record_ttl_ms: int = 30_000, record: Mapping[str, str | int] | None = None
    ) -> int:
        """Enter or renew a worker's record; returns the agent's published stuck_after in ms (0: none published)."""
        self.announce()
        args: list[scripts.Argument] = [worker, record_ttl_ms, 1 if control else 0]
        for name, value in (record or {}).items():
            args += [name, value]
        return int(scripts.run(self.client, "register_worker", self.meta, *args)[1])

    def leave(self, worker: str, slots: Iterable[str]) -> bool:
        """Take a worker off the list; False if it still holds jobs (then it stays)."""
        fields = [f"{slot}{part}" for slot in slots for part in "cf"]
        return text(scripts.run(self.client, "leave_worker", self.meta, worker, *fields)[0]) == "left"
