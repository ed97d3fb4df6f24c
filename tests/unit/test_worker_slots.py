"""A slot whose queue cannot take its report: an outage is waited for, a fault of ours becomes a failed attempt."""

import logging
import threading
import time

import pytest
import redis

from unstuck.protocol import Lease, Queue, Terms
from unstuck.worker.attempts import Attempt, may_heal
from unstuck.worker.heart import Heart
from unstuck.worker.outcomes import DONE, Outcome
from unstuck.worker.slots import Shared, Slot


class Scripted(Queue):
    """Answers each report with the next of `answers`; raises what is an exception."""

    def __init__(self, *answers):
        super().__init__(None, "mail")
        self.answers = list(answers)
        self.failed = []

    def _next(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def fail(self, lease, error, *, cause="error", permanent=False, op=None):
        self.failed.append((error, cause))
        return self._next()

    def complete(self, lease, *, version=None, op=None):
        return self._next()


class Ended:
    """A runner whose handler has ended so."""

    def __init__(self, outcome):
        self.outcome = outcome

    def run(self, attempt):
        return self.outcome


def work(queue, outcome):
    """Run one job in a slot of a worker that is stopping (so that it claims no other); the slot's shared things."""
    heart = Heart(queue, "w", Terms(), record_ttl_ms=1000, record=dict)
    stopping = threading.Event()
    stopping.set()
    shared = Shared("w", queue, Terms(), heart, stopping=stopping)
    slot = Slot(0, shared, Ended(outcome), None)
    slot.attempt = attempt = Attempt(Lease(queue, "one", "1.a", 1, "null", "w", "0", 0), queue, time.monotonic())
    heart.hold(attempt)
    assert slot._work(attempt) is None
    assert (slot.attempt, heart.held) == (None, {})
    return shared


def errors(caplog):
    return [record.message for record in caplog.records if record.levelno == logging.ERROR]


FAULT = TypeError("Invalid input of type: 'Odd'")


def test_a_failure_that_cannot_be_sent_becomes_a_failure_with_a_clean_text_and_is_said(caplog):
    queue = Scripted(FAULT, FAULT, FAULT, "scheduled")
    shared = work(queue, Outcome("failed", "odd"))
    assert [cause for _, cause in queue.failed] == ["error"] * 3 + ["report"]
    assert queue.failed[-1][0].startswith("its ending (failed) could not be reported: TypeError: Invalid input of type")
    assert shared.counts == {"scheduled": 1}
    assert errors(caplog) == ["unreportable"]


def test_a_completion_that_cannot_be_sent_becomes_a_failure(caplog):
    queue = Scripted(FAULT, FAULT, FAULT, "scheduled")
    work(queue, DONE)
    assert [cause for _, cause in queue.failed] == ["report"]
    assert errors(caplog) == ["unreportable"]


def test_where_not_even_the_failure_can_be_sent_the_slot_goes_on_and_says_who_finds_the_job(caplog):
    queue = Scripted(*[FAULT] * 6)
    shared = work(queue, Outcome("failed", "odd"))
    assert shared.counts == {}
    assert errors(caplog) == ["unreportable", "left_behind"]


def test_an_outage_is_waited_for_however_often_it_shows(caplog):
    queue = Scripted(*[redis.ConnectionError("gone")] * 4, FAULT, "scheduled")
    shared = work(queue, Outcome("failed", "odd"))
    assert [cause for _, cause in queue.failed] == ["error"] * 6
    assert shared.counts == {"scheduled": 1}
    assert errors(caplog) == []


def test_a_completion_that_is_handed_in_while_the_worker_stops_claims_nothing():
    queue = Scripted("completed")
    heart = Heart(queue, "w", Terms(), record_ttl_ms=1000, record=dict)
    shared = Shared("w", queue, Terms(), heart)
    asked = []

    def meanwhile(handed):
        shared.stopping.set()
        asked.extend(shared._send([handed, handed]))

    shared.handover = meanwhile
    slot = Slot(0, shared, Ended(DONE), None)
    slot.attempt = attempt = Attempt(Lease(queue, "one", "1.a", 1, "null", "w", "0", 0), queue, time.monotonic())
    assert slot._work(attempt) is None
    assert asked == [None, None]
    assert shared.counts == {"completed": 1}
    assert slot._unanswered is None  # so nothing is asked for again when the worker leaves


def test_a_handover_that_failed_may_have_claimed_and_is_asked_for_again():
    queue = Scripted("completed")
    shared = Shared("w", queue, Terms(), Heart(queue, "w", Terms(), record_ttl_ms=1000, record=dict))
    asked = []

    def torn(handed):
        asked.append(handed.claim_op)
        raise redis.ConnectionError("gone")

    shared.handover = torn
    slot = Slot(0, shared, Ended(DONE), None)
    slot.attempt = attempt = Attempt(Lease(queue, "one", "1.a", 1, "null", "w", "0", 0), queue, time.monotonic())
    assert slot._work(attempt) is None
    assert slot._unanswered[0] == asked[0]


@pytest.mark.parametrize(
    ("error", "heals"),
    [
        (redis.ConnectionError(), True),
        (redis.exceptions.RedisClusterException(), True),
        (redis.exceptions.ClusterDownError(""), True),
        (TimeoutError(), True),
        (FAULT, False),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), False),
    ],
)
def test_only_trouble_of_redis_may_heal(error, heals):
    assert may_heal(error) is heals
