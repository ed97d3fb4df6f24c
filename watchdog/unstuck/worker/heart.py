"""The heartbeat of a worker: for itself and for every attempt it holds, in one script, from a thread of its own.

What may go wrong: everything Redis can answer, and no answer at all. No error ends the thread; the next beat is the
retry, sooner than usual. When an attempt could not be renewed for `abort_after` (monotonic time since the last success
was *sent*) a second thread, the guard, aborts it on time even while a beat hangs in its socket. A process that was
frozen has not tried in between: it beats first, and believes the answer. The release of an aborted attempt is reported
with each beat until it is answered.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from unstuck.connections import BEAT_TIMEOUT_SECONDS
from unstuck.errors import classify, explain
from unstuck.protocol import Queue, Terms
from unstuck.worker.attempts import Attempt, may_heal
from unstuck.worker.journal import say

RETRY_SECONDS = 1.0  # after a failure, and while the control subscription is missing
BATCH = 100  # attempts in one script
RECORD_EVERY_BEATS = 6  # the record's slow figures are written anew that often


class Heart:
    """Beats for one worker. `queue` must use the `beating` client; `place` is its address for people. Times are seconds."""

    def __init__(
        self,
        queue: Queue,
        worker: str,
        terms: Terms,
        *,
        record_ttl_ms: int,
        record: Callable[[], Mapping[str, str | int]],
        applied_ms: Callable[[], int | None] = lambda: None,
        place: str = "",
    ) -> None:
        self.queue = queue
        self.place = place
        self.worker = worker
        self.interval = terms.heartbeat_ms / 1000
        self.abort_after = terms.abort_after_ms / 1000
        self.record_ttl_ms = record_ttl_ms
        self.held: dict[str, Attempt] = {}  # by token; each dict operation is atomic
        self.beats = 0
        self.failures = 0
        self.lag = 0.0
        """How much later than planned the last beat was sent: a machine or an interpreter that is too busy."""
        self._record = record
        self._applied_ms = applied_ms
        self._control = False
        self._control_told: bool | None = None
        self._tried_at: float | None = None  # start of the first beat since the last success
        self._aborted: dict[str, Attempt] = {}
        self._nudge = threading.Event()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    # -- what slots and control say --------------------------------------------------------------------------------

    def hold(self, attempt: Attempt) -> None:
        """Beat for this attempt from now on."""
        self.held[attempt.lease.token] = attempt

    def drop(self, attempt: Attempt) -> None:
        """The attempt has been answered for: no more beats."""
        self.held.pop(attempt.lease.token, None)

    def control(self, subscribed: bool) -> None:
        """The control subscription stands, or is gone: then beat at once, and every second until it stands again."""
        self._control = subscribed
        self._nudge.set()

    def nudge(self) -> None:
        """Beat now."""
        self._nudge.set()

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start both threads; the worker must have been registered (with control=0) before."""
        self._control_told = False
        for name, target in (("heartbeat", self._run), ("heartbeat-guard", self._guard)):
            thread = threading.Thread(target=target, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End both threads; attempts that are still held are not beaten for any more."""
        self._stopping.set()
        self._nudge.set()
        for thread in self._threads:
            thread.join(2 * BEAT_TIMEOUT_SECONDS + 1)

    def _run(self) -> None:
        due = time.monotonic() + self.interval
        while not self._stopping.is_set():
            nudged = self._nudge.wait(max(0.0, due - time.monotonic()))
            self._nudge.clear()
            if self._stopping.is_set():
                return
            now = time.monotonic()
            if not nudged:
                self.lag = max(0.0, now - due)
            well = self._beat_once()
            hurry = not well or not self._control or bool(self._aborted)
            due = now + (min(RETRY_SECONDS, self.interval) if hurry else self.interval)

    def _beat_once(self) -> bool:
        """One beat, whatever Redis says; True if it was answered."""
        started = time.monotonic()
        if self._tried_at is None:
            self._tried_at = started
        try:
            self._beat(started)
        except Exception as error:  # noqa: BLE001  a heartbeat thread must not die of anything
            if not self.failures:
                sentence = str(explain(error, self.place))
                say(logging.WARNING, "heartbeat_failed", sentence, worker=self.worker, reason=classify(error))
            self.failures += 1
            self._abort_overdue(tried=float("-inf"))
            return False
        self._tried_at = None
        if self.failures:
            say(logging.INFO, "heartbeat_recovered", worker=self.worker, failures=self.failures)
            self.failures = 0
        self.beats += 1
        return True

    def _beat(self, started: float) -> None:
        held = list(self.held.values())
        attempts = [one for one in held if one.phase in ("running", "finishing")]
        registered = True
        for attempt in held:
            attempt.insist()
        for start in range(0, len(attempts) or 1, BATCH):
            registered = self._beat_for(attempts[start : start + BATCH], started) and registered
        control = self._control
        if not registered:
            say(logging.WARNING, "registered_again", "its record had lapsed", queue=self.queue.name, worker=self.worker)
        if not registered or control != self._control_told or self.beats % RECORD_EVERY_BEATS == 0:
            ttl = self.record_ttl_ms
            published = self.queue.register(self.worker, control=control, record_ttl_ms=ttl, record=self._record())
            self._control_told = control
            self._heed_threshold(published)
        for attempt in list(self._aborted.values()):
            answer = self.queue.release(attempt.lease, "abort")
            say(logging.INFO, "abort_reported", reason=answer, **attempt.names)
            self._settle(attempt)

    def _heed_threshold(self, published_ms: int) -> None:
        """The agent's stuck_after may have changed since the start."""
        if published_ms and published_ms != self.record_ttl_ms:
            self.record_ttl_ms = published_ms
            if self.abort_after * 1000 >= published_ms:
                detail = (
                    f"abort_after {self.abort_after:g} s is not below the agent's new stuck_after {published_ms} ms"
                )
                say(logging.WARNING, "threshold_too_low", detail, queue=self.queue.name, worker=self.worker)

    def _beat_for(self, attempts: Sequence[Attempt], started: float) -> bool:
        progress = {one.lease.id: one.take_progress() for one in attempts}
        try:
            registered, answers = self._send(attempts, progress)
        except Exception as error:
            if may_heal(error) or not any(progress.values()):
                for attempt in attempts:
                    attempt.put_back(progress[attempt.lease.id])
                raise
            # What one attempt says of itself must not cost its neighbours their leases.
            say(logging.WARNING, "progress_dropped", f"cannot be sent: {type(error).__name__}", worker=self.worker)
            registered, answers = self._send(attempts, {})
        for attempt, answer in zip(attempts, answers, strict=True):
            if answer == "lost":
                # While its slot is reporting, the report's own answer is the truth: it may just have been accepted.
                attempt.lose("its token is not current any more")
                continue
            attempt.renewed = max(attempt.renewed, started)
            if answer == "cancelled":
                attempt.cancel()
        return registered

    def _send(self, attempts: Sequence[Attempt], progress: Mapping[str, str]) -> tuple[bool, list[str]]:
        return self.queue.heartbeat(
            self.worker,
            [one.lease for one in attempts],
            record_ttl_ms=self.record_ttl_ms,
            progress=progress,
            applied_ms=self._applied_ms(),
        )

    # -- abort -----------------------------------------------------------------------------------------------------

    def _guard(self) -> None:
        """Abort on time, also while a beat hangs."""
        pause = min(0.5, self.abort_after / 20)
        while not self._stopping.wait(pause):
            tried = self._tried_at
            if tried is not None:
                self._abort_overdue(tried)

    def _abort_overdue(self, tried: float) -> None:
        """Abort what has not been renewed for `abort_after`, if renewing was tried in time (`tried`: since when)."""
        now = time.monotonic()
        for attempt in list(self.held.values()):
            silent = now - attempt.renewed
            # Frozen or starved until now: the beat that has just begun is the first chance to renew, so wait for it.
            fresh = tried > attempt.renewed + self.abort_after and now - tried < BEAT_TIMEOUT_SECONDS
            if silent < self.abort_after or fresh:
                continue
            if attempt.abort(f"it could not be renewed for {silent:.1f} s (abort_after {self.abort_after:g} s)"):
                self._aborted[attempt.lease.token] = attempt
                self._nudge.set()

    def _settle(self, attempt: Attempt) -> None:
        self._aborted.pop(attempt.lease.token, None)
        self.drop(attempt)
        if attempt.settled is not None:
            attempt.settled.set()
