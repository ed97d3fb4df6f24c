"""One slot of a worker: claim → run → complete and claim the next in one round trip; after an empty answer, wait.

What may go wrong: a reply is lost after the script ran. Every claim keeps its operation id until it is answered, so the
same job comes back instead of a second one; every ending is reported until it is answered, across any outage, while the
heartbeat goes on. A handler that had ended before its lease was lost is answered by the script, not by a guess. An ending
that no asking again can report makes the attempt a failed one: it must not hold its slot for ever.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from unstuck.errors import classify, explain
from unstuck.protocol import Claim, Lease, Queue, Terms
from unstuck.protocol.scripts import operation
from unstuck.protocol.together import Answer, Handed, complete_and_claim, separately
from unstuck.protocol.values import jitter_thousandths
from unstuck.worker.attempts import Attempt, may_heal
from unstuck.worker.handover import Handover
from unstuck.worker.heart import Heart
from unstuck.worker.isolation import Runner
from unstuck.worker.journal import log, say
from unstuck.worker.outcomes import Outcome, describe
from unstuck.worker.waiting import Waiter

T = TypeVar("T")
LONGEST_PAUSE_SECONDS = 5.0
TRIES_OF_A_FAULT = 3  # of an error that cannot heal: a torn connection may look like one, once


class LetGo(Exception):
    """The worker was told to let go of everything: stop reporting."""


class Unreportable(Exception):
    """What was to be reported cannot be sent, for a reason that is no trouble of Redis."""

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self.fault = fault


@dataclass(slots=True)
class Shared:
    """What the slots of one worker have in common."""

    worker: str
    queue: Queue
    terms: Terms
    heart: Heart
    interrupt: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)
    letting_go: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    ended: Callable[[Slot], None] = lambda _: None
    handover: Handover = field(init=False)

    def __post_init__(self) -> None:
        self.handover = Handover(self._send)

    def _send(self, some: Sequence[Handed]) -> Sequence[Answer | None]:
        if self.stopping.is_set():  # meanwhile: each completes its own and claims nothing
            return [None] * len(some)
        return complete_and_claim(self.queue, self.worker, self.terms, some)


class Slot(threading.Thread):
    """Runs one job at a time."""

    def __init__(self, number: int, shared: Shared, runner: Runner, waiter: Waiter) -> None:
        super().__init__(name=f"slot-{number}", daemon=True)
        self.slot = str(number)
        self.shared = shared
        self.runner = runner
        self.waiter = waiter
        self.attempt: Attempt | None = None
        self.died = False
        self._unanswered: tuple[str, float] | None = None  # a claim's operation id, and when it was first sent

    def run(self) -> None:
        try:
            self._serve()
        except LetGo:
            pass
        except BaseException:  # noqa: BLE001  said, and the worker stops
            self.died = True
            log.exception("slot_died", extra={"fields": {"worker": self.shared.worker, "slot": self.slot}})
        finally:
            self.runner.kill()
            self.shared.ended(self)

    def _serve(self) -> None:
        self._prepare()
        taken: Attempt | Claim | None = None
        while True:
            if isinstance(taken, Attempt):
                taken = self._work(taken)
                continue
            if isinstance(taken, Claim) and not taken.again:
                self.waiter.wait(taken)
            if self.shared.stopping.is_set():
                self._give_back()
                return
            taken = self._claim()

    def _prepare(self) -> None:
        pause = 0.5
        while not self.shared.stopping.is_set():
            try:
                self.runner.prepare()
                return
            except Exception as error:  # noqa: BLE001  said, and tried again
                say(logging.ERROR, "not_ready", str(error), worker=self.shared.worker, slot=self.slot)
                self.shared.stopping.wait(pause)
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)

    # -- claiming --------------------------------------------------------------------------------------------------

    def _claim(self) -> Attempt | Claim | None:
        """The answer to a claim, however long it takes; None when the worker stops first."""
        pause = 0.1
        while True:
            if self._unanswered is None:
                self._unanswered = (operation(), time.monotonic())
            try:
                taken = self.shared.queue.claim(
                    self.shared.worker, self.slot, self.shared.terms, op=self._unanswered[0]
                )
            except Exception as error:  # noqa: BLE001  a worker outlives its Redis
                self._complain("claim_failed", error, first=pause == 0.1)
                if self.shared.stopping.wait(pause * jitter_thousandths() / 1000):
                    return None
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
                continue
            return self._taken(taken)

    def _taken(self, taken: Lease | Claim) -> Attempt | Claim:
        """Begin to hold what a claim gave. From the moment its (first) request was sent, its lease runs."""
        sent = self._unanswered[1] if self._unanswered else time.monotonic()
        self._unanswered = None
        if isinstance(taken, Claim):
            return taken
        self.waiter.got_a_job()
        attempt = self.attempt = Attempt(taken, self.shared.queue, sent, interrupt=self.shared.interrupt)
        self.shared.heart.hold(attempt)
        if time.monotonic() - sent > self.shared.heart.interval:
            self.shared.heart.nudge()
        say(logging.INFO, "acquired", attempt=taken.attempt, **attempt.names)
        return attempt

    def _give_back(self) -> None:
        """A claim that was never answered may have been carried out: ask once more, and release what comes."""
        if self._unanswered is None:
            return
        op, self._unanswered = self._unanswered[0], None
        try:
            taken = self.shared.queue.claim(self.shared.worker, self.slot, self.shared.terms, op=op)
            if isinstance(taken, Lease):
                self.shared.queue.release(taken, "shutdown")
        except Exception as error:  # noqa: BLE001  the agent will find it
            self._complain("claim_unknown", error, first=True)

    # -- working ---------------------------------------------------------------------------------------------------

    def _work(self, attempt: Attempt) -> Attempt | Claim | None:
        """Run one job and report how it ended; what the claim that went along with a completion gave, else None."""
        lease = attempt.lease
        outcome = self.runner.run(attempt)
        if not attempt.finish():
            self._await_release(attempt)
            self.attempt = None
            self.shared.counts[attempt.phase] += 1
            self.shared.heart.drop(attempt)
            return None
        try:
            if outcome.kind == "done":
                return self._complete(attempt)
            if outcome.kind == "cancelled":
                answer = self._report(attempt, lambda: self.shared.queue.release(lease, "cancelled"))
            else:
                answer = self._report(attempt, lambda: self._fail(lease, outcome))
            self._note(attempt, answer, outcome)
            return None
        except Unreportable as error:
            self._fail_instead(attempt, outcome, error.fault)
            return None
        finally:
            self._forget(attempt)

    def _fail_instead(self, attempt: Attempt, outcome: Outcome, fault: Exception) -> None:
        """The ending cannot be reported: report that. If not even this goes through, the agent will find the job."""
        text = f"its ending ({outcome.kind}) could not be reported: {describe(fault)}"
        say(logging.ERROR, "unreportable", text.splitlines()[0], slot=self.slot, **attempt.names)
        failed = Outcome("failed", text, "report")
        try:
            answer = self._report(attempt, lambda: self._fail(attempt.lease, failed))
        except Unreportable as error:
            sentence = f"the agent will find the job: {describe(error.fault)}".splitlines()[0]
            say(logging.ERROR, "left_behind", sentence, slot=self.slot, **attempt.names)
            return
        self._note(attempt, answer, failed)

    def _fail(self, lease: Lease, outcome: Outcome) -> str:
        queue = self.shared.queue
        return queue.fail(lease, outcome.error, cause=outcome.cause, permanent=outcome.permanent)

    def _complete(self, attempt: Attempt) -> Attempt | Claim | None:
        shared, lease = self.shared, attempt.lease
        version = lease.version if shared.terms.lock == "none" else None
        done, taken = self._hand_over(attempt, version) or (
            self._report(attempt, lambda: shared.queue.complete(lease, version=version)),
            None,
        )
        if done == "conflict" or (version is not None and done == "refused"):
            # Somebody else finished it, or changed it: what is still ours goes back to be tried again.
            self._report(attempt, lambda: shared.queue.release(lease, "conflict"))
            done = "conflict"
        self._note(attempt, done, None)
        self._forget(attempt)
        return None if taken is None else self._taken(taken)

    def _hand_over(self, attempt: Attempt, version: int | None) -> Answer | None:
        """Complete and claim at once. None: the completion is still to be reported, and there is nothing new in hand."""
        shared, claim_op = self.shared, operation()
        if shared.stopping.is_set():
            return None
        one = Handed(attempt.lease, version, claim_op=claim_op)
        self._unanswered = (claim_op, time.monotonic())
        try:
            answer = shared.handover(one)
            if answer is not None or not shared.stopping.is_set():
                return answer or separately(shared.queue, shared.terms, one)
        except Exception as error:  # noqa: BLE001  either part may have been carried out: the claim will be asked for again
            self._complain("completion_failed", error, first=True, attempt=attempt)
            return None
        self._unanswered = None  # nothing was changed for this slot, nor will be by this claim
        return None

    def _note(self, attempt: Attempt, answer: str, outcome: Outcome | None) -> None:
        self.shared.counts[answer] += 1
        level = logging.INFO if answer in ("completed", "released") else logging.WARNING
        error = outcome.error.split(":", 1)[0] if outcome is not None and outcome.cause == "error" else ""
        cause = outcome.cause if outcome is not None and outcome.kind == "failed" else ""
        say(level, answer, cause=cause, error=error, **attempt.names)

    def _forget(self, attempt: Attempt) -> None:
        self.shared.heart.drop(attempt)
        if self.attempt is attempt:
            self.attempt = None

    # -- reporting -------------------------------------------------------------------------------------------------

    def _report(self, attempt: Attempt, ask: Callable[[], T]) -> T:
        """Ask until answered. Every ending carries an operation id, so asking again is safe. Raises Unreportable."""
        pause, faults = 0.1, 0
        while True:
            if self.shared.letting_go.is_set():
                raise LetGo
            try:
                return ask()
            except Exception as error:
                faults += not may_heal(error)
                if faults >= TRIES_OF_A_FAULT:
                    raise Unreportable(error) from error
                self._complain("report_failed", error, first=pause == 0.1, attempt=attempt)
                self.shared.letting_go.wait(pause * jitter_thousandths() / 1000)
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)

    def _await_release(self, attempt: Attempt) -> None:
        """The heart reports the release of an aborted attempt; no new job before that is answered."""
        while attempt.settled is not None and not attempt.settled.wait(0.2):
            if self.shared.letting_go.is_set():
                raise LetGo

    def _complain(self, event: str, error: Exception, *, first: bool, attempt: Attempt | None = None) -> None:
        names = attempt.names if attempt is not None else {"worker": self.shared.worker}
        level = logging.WARNING if first else logging.DEBUG
        say(level, event, str(explain(error, self.shared.heart.place)), reason=classify(error), slot=self.slot, **names)
