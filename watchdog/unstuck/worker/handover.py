"""Where the slots of a worker hand in their completions: those that come together go to Redis in one script.

The first to come sends; whoever comes meanwhile waits for its return, and the first of those sends the rest (at most 25 at a
time). So a slot waits for two round trips at most where it waited for one, and a busy worker pays once for what its slots
have in common. Jobs of less than a millisecond would always come one by one, since each wakes the next: while jobs are as
short as that on average, the sender waits for those that began less than a millisecond ago, but for no other. Longer jobs
are never waited for: their slots would stand idle for it.

What may go wrong: the call fails. Each slot whose completion was in it hears of it, and asks for its own. A sender that ends by
any fault hands on to the next. The interpreter may change threads between any two steps: what is shared is read and written
under the lock, and what another slot was given only after it was called.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from math import inf

from unstuck.protocol import Lease
from unstuck.protocol.together import MOST_SLOTS, Answer, Handed

COMPANY_WITHIN_SECONDS = 0.001
SHARE_OF_THE_LAST = 1 / 8  # in the average of how long jobs take, in which none counts for more than four such times

Send = Callable[[Sequence[Handed]], Sequence[Answer | None]]


def _closed() -> threading.Lock:
    """Whoever acquires it waits until somebody releases it, once."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class _Waiting:
    """One slot with its completion, until it is called: to take its answer, or to send."""

    __slots__ = ("answer", "called", "handed", "sends")

    def __init__(self, handed: Handed) -> None:
        self.handed = handed
        self.called = _closed()
        self.sends = False
        self.answer: Answer | BaseException | None = None


class Handover:
    """Call it with what a slot hands in; it returns the answer to it, or None, or raises what the call raised."""

    def __init__(self, send: Send, company_within: float = COMPANY_WITHIN_SECONDS) -> None:
        self._send = send
        self._company_within = company_within
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._led = False
        self._begun: dict[str, tuple[float, str]] = {}  # slots with a job from here: since when, and its token
        self._usual = 4 * company_within  # seconds that a job takes on average
        self._company: threading.Lock | None = None  # released when nobody is expected any more

    def __call__(self, handed: Handed) -> Answer | None:
        mine = _Waiting(handed)
        with self._lock:
            self._learn(*self._begun.pop(handed.lease.slot, (0.0, "")), handed.lease.token)
            self._waiting.append(mine)
            sends, self._led = not self._led, True
            if self._company is not None and not self._expected():
                self._company.release()
                self._company = None
        if not sends:
            mine.called.acquire()
            sends = mine.sends
        if sends:
            self._lead()
        if isinstance(mine.answer, BaseException):
            raise mine.answer
        return mine.answer

    def _learn(self, begun: float, token: str, handed: str) -> None:
        if token == handed:  # else that job ended otherwise, and this one came from a claim
            took = min(time.monotonic() - begun, 4 * self._company_within)
            self._usual += (took - self._usual) * SHARE_OF_THE_LAST

    def _expected(self) -> float:
        """Seconds until the youngest job is no longer waited for; 0: none is."""
        if self._usual >= self._company_within:
            return 0.0
        youngest, _ = max(self._begun.values(), default=(-inf, ""))
        return max(0.0, youngest + self._company_within - time.monotonic())

    def _lead(self) -> None:
        with self._lock:
            patience = self._expected()
            company = self._company = _closed() if patience else None
        if company is not None:
            company.acquire(timeout=patience)
        with self._lock:
            self._company = None
            batch = self._waiting[:MOST_SLOTS]
            del self._waiting[:MOST_SLOTS]
        answers: Sequence[Answer | BaseException | None]
        try:
            sent = self._send([one.handed for one in batch])
            answers = [answer for _, answer in zip(batch, sent, strict=True)]
        except BaseException as error:  # noqa: BLE001  each slot of the batch has to hear of it
            answers = [error] * len(batch)
        now = time.monotonic()
        with self._lock:
            for one, answer in zip(batch, answers, strict=True):
                one.answer = answer
                if isinstance(answer, tuple) and isinstance(answer[1], Lease):
                    self._begun[one.handed.lease.slot] = now, answer[1].token
            following = self._waiting[0] if self._waiting else None
            self._led = following is not None
        if following is not None:
            following.sends = True
            following.called.release()
        for one in batch:
            one.called.release()
