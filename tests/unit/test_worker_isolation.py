"""A slot and the child that it started: what the child says counts only for the attempt that it names."""

import json
import logging
import multiprocessing
import os
import time

import pytest

from unstuck.protocol import Lease, Queue
from unstuck.worker.attempts import Attempt
from unstuck.worker.isolation import InProcess
from unstuck.worker.outcomes import end_copy

DONE = {"kind": "done", "error": "", "cause": "error", "permanent": False}
FAILED = {"kind": "failed", "error": "ValueError: no", "cause": "error", "permanent": False}


class Told(Queue):
    def __init__(self):
        super().__init__(None, "mail")
        self.told = []

    def report_progress(self, job_id, token, value):
        self.told.append((job_id, token, value))
        return "ok"


@pytest.fixture
def queue():
    return Told()


@pytest.fixture
def heard(queue):
    """What a slot whose attempt is `2.b` makes of these messages: the outcome, and what it answered."""

    def hear(*messages):
        runner = InProcess("module:function")
        runner._pipe, theirs = multiprocessing.Pipe()
        for message in messages:
            theirs.send_bytes(json.dumps(message).encode())
        attempt = Attempt(Lease(queue, "two", "2.b", 2, "null", "w", "0", 0), queue, time.monotonic())
        outcome = runner._attend(attempt, {})
        answers = []
        while theirs.poll():
            answers.append(json.loads(theirs.recv_bytes())["answer"])
        for end in (theirs, runner._pipe, runner._wake_in, runner._wake_out):
            end.close()
        return outcome, answers

    return hear


def test_the_outcome_of_another_attempt_is_ignored_and_said_once(heard, caplog):
    caplog.set_level(logging.WARNING)
    strangers = [{"outcome": DONE, "token": "1.a"}, {"outcome": DONE, "token": "3.c"}, {"outcome": DONE}]
    outcome, _ = heard(*strangers, {"outcome": FAILED, "token": "2.b"})
    assert (outcome.kind, outcome.error) == ("failed", "ValueError: no")
    assert [record.message for record in caplog.records] == ["stranger_ignored"]


def test_progress_of_another_attempt_is_answered_with_lost_and_not_stored(heard, queue):
    ended = {"outcome": DONE, "token": "2.b"}
    _, answers = heard({"progress": "old", "token": "1.a"}, {"progress": "new", "token": "2.b"}, ended)
    assert answers == ["lost", "ok"]
    assert queue.told == [("two", "2.b", "new")]


@pytest.mark.parametrize(
    ("error", "status"),
    [(None, 0), (SystemExit(), 0), (SystemExit(0), 0), (SystemExit(7), 7), (SystemExit("no"), 1), (ValueError(), 1)],
)
def test_a_copy_ends_with_the_status_that_a_program_would_have(error, status):
    original = os.getpid()
    copy = os.fork()
    if copy == 0:
        end_copy(original, error)
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == status
    end_copy(original, error)  # the original goes on
