"""A heart whose queue answers what the test says: one attempt must not cost another its beat."""

import time

import redis

from unstuck.protocol import Lease, Queue, Terms
from unstuck.worker.attempts import Attempt
from unstuck.worker.heart import Heart


class Scripted(Queue):
    """Refuses what `refuse` says; keeps what each beat carried."""

    def __init__(self, refuse):
        super().__init__(None, "mail")
        self.refuse = refuse
        self.carried = []

    def heartbeat(self, worker, leases, *, progress=None, **more):
        self.carried.append(dict(progress or {}))
        self.refuse(progress)
        return True, ["ok"] * len(leases)

    def report_progress(self, job_id, token, value):
        raise redis.ConnectionError

    def register(self, *args, **more):
        return 0


def attempt_of(queue, job):
    return Attempt(Lease(queue, job, f"1.{job}", 1, "null", "w", "0", 0), queue, time.monotonic())


def beating(refuse):
    queue = Scripted(refuse)
    heart = Heart(queue, "w", Terms(), record_ttl_ms=1000, record=dict)
    one, two = attempt_of(queue, "one"), attempt_of(queue, "two")
    for attempt in (one, two):
        heart.hold(attempt)
    one.context.progress("odd")
    return heart, queue, one, two


def test_progress_that_cannot_be_sent_is_dropped_and_said_and_everybody_is_renewed(caplog):
    def refuse(progress):
        if progress.get("one"):
            "\ud800".encode()

    heart, queue, one, two = beating(refuse)
    begun = max(one.renewed, two.renewed)
    assert heart._beat_once()
    assert queue.carried == [{"one": "odd", "two": ""}, {}]
    assert min(one.renewed, two.renewed) > begun
    assert "progress_dropped" in caplog.text
    assert heart._beat_once()
    assert queue.carried[-1] == {"one": "", "two": ""}


def test_progress_that_met_an_outage_goes_with_the_next_beat():
    answers = [redis.ConnectionError("gone")]

    def refuse(progress):
        if answers:
            raise answers.pop()

    heart, queue, _, _ = beating(refuse)
    assert not heart._beat_once()
    assert heart._beat_once()
    assert queue.carried == [{"one": "odd", "two": ""}] * 2


def test_an_error_of_ours_without_any_progress_fails_the_beat():
    def refuse(progress):
        raise ValueError("ours")

    heart, queue, one, _ = beating(refuse)
    one.take_progress()
    assert not heart._beat_once()
    assert len(queue.carried) == 1
