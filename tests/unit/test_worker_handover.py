"""Where slots hand in their completions: who sends, who waits for whom, and who hears of a failure."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.waiting import wait_until
from unstuck.protocol import Claim, Lease
from unstuck.protocol.together import MOST_SLOTS, Handed
from unstuck.worker.handover import Handover

NOTHING = Claim(None, 0)
FOR_EVER = 60.0


def lease(slot):
    return Lease(None, f"job{slot}", "1.a", 1, "null", "w", str(slot), 0)


def handed(slot):
    return Handed(lease(slot))


class Redis:
    """What the sender calls: it waits for `opened` where the test wants that, and notes each batch."""

    def __init__(self, *, answer=None, closed=False):
        self.batches = []
        self.inside = threading.Semaphore(0)
        self.opened = threading.Event()
        self.answer = answer or (lambda slot: ("completed", NOTHING))
        if not closed:
            self.opened.set()

    def __call__(self, some):
        self.batches.append([one.lease.slot for one in some])
        self.inside.release()
        assert self.opened.wait(30)
        return [self.answer(one.lease.slot) for one in some]


@pytest.fixture
def pool():
    with ThreadPoolExecutor(64) as pool:
        yield pool


def used_to_short_jobs(handover, slot=0):
    """Let one slot alone hand in job after job, until jobs are known to be short; it has one in hand then."""
    for _ in range(15):
        handover(handed(slot))


def waiting(handover, count):
    wait_until(lambda: len(handover._waiting) == count, 30, f"{count} slots to wait")


def test_a_slot_alone_sends_at_once():
    redis = Redis()
    handover = Handover(redis, FOR_EVER)
    assert handover(handed(0)) == ("completed", NOTHING)
    assert handover(handed(0)) == ("completed", NOTHING)
    assert redis.batches == [["0"], ["0"]]


def test_who_comes_while_a_call_is_out_goes_with_the_next_one_and_gets_an_answer_of_its_own(pool):
    redis = Redis(answer=lambda slot: (f"completed {slot}", NOTHING), closed=True)
    handover = Handover(redis)
    first = pool.submit(handover, handed(0))
    assert redis.inside.acquire(timeout=30)
    others = [pool.submit(handover, handed(slot)) for slot in range(1, 5)]
    waiting(handover, 4)
    redis.opened.set()
    assert first.result(30) == ("completed 0", NOTHING)
    assert [one.result(30)[0] for one in others] == [f"completed {slot}" for slot in range(1, 5)]
    assert [sorted(batch) for batch in redis.batches] == [["0"], ["1", "2", "3", "4"]]


def test_no_call_is_larger_than_a_script_takes(pool):
    redis = Redis(closed=True)
    handover = Handover(redis)
    first = pool.submit(handover, handed("first"))
    assert redis.inside.acquire(timeout=30)
    others = [pool.submit(handover, handed(slot)) for slot in range(MOST_SLOTS + 3)]
    waiting(handover, MOST_SLOTS + 3)
    redis.opened.set()
    for one in [first, *others]:
        assert one.result(30) == ("completed", NOTHING)
    assert [len(batch) for batch in redis.batches] == [1, MOST_SLOTS, 3]


def test_a_slot_whose_case_is_not_straight_hears_so(pool):
    redis = Redis(answer=lambda slot: None)
    assert Handover(redis)(handed(0)) is None


@pytest.mark.parametrize("fault", [ConnectionError("gone"), SystemExit("odd")])
def test_each_slot_of_a_call_that_failed_hears_of_it_and_the_next_call_goes_on(pool, fault):
    def answer(slot):
        if slot in "12":
            raise fault
        return "completed", NOTHING

    redis = Redis(answer=answer, closed=True)
    handover = Handover(redis)
    first = pool.submit(handover, handed(0))
    assert redis.inside.acquire(timeout=30)
    others = [pool.submit(handover, handed(slot)) for slot in (1, 2)]
    waiting(handover, 2)
    redis.opened.set()
    assert first.result(30)
    for one in others:
        with pytest.raises(type(fault)) as raised:
            one.result(30)
        assert raised.value is fault
    assert handover(handed(3)) == ("completed", NOTHING)


def test_a_call_that_answers_for_too_few_slots_is_a_failure_and_holds_nobody(pool):
    handover = Handover(lambda some: [])
    for _ in range(2):
        with pytest.raises(ValueError, match="shorter"):
            handover(handed(0))


def test_short_jobs_that_began_together_are_waited_for(pool):
    redis = Redis(answer=lambda slot: ("completed", lease(slot)))
    handover = Handover(redis, FOR_EVER)
    used_to_short_jobs(handover, "last")
    redis.answer = lambda slot: ("completed", NOTHING if slot == "last" else lease(slot))
    redis.opened.clear()
    begun = [pool.submit(handover, handed("last"))]
    wait_until(lambda: redis.batches[-1:] == [["last"]] and handover._led, 30, "it to be sent")
    begun += [pool.submit(handover, handed(slot)) for slot in range(3)]
    waiting(handover, 3)
    redis.opened.set()
    for one in begun:
        one.result(30)
    del redis.batches[:]
    early = [pool.submit(handover, handed(slot)) for slot in (0, 1)]
    waiting(handover, 2)
    assert redis.batches == []
    assert handover(handed(2)) == ("completed", lease(2))
    for one in early:
        one.result(30)
    assert [sorted(batch) for batch in redis.batches] == [["0", "1", "2"]]


def test_jobs_that_have_run_longer_are_not_waited_for():
    redis = Redis(answer=lambda slot: ("completed", lease(slot)))
    handover = Handover(redis, 0.0)
    used_to_short_jobs(handover)
    handover(handed(1))
    assert handover(handed(0)) == ("completed", lease(0))
    assert redis.batches[-2:] == [["1"], ["0"]]


def test_nobody_is_waited_for_before_jobs_are_known_to_be_short():
    redis = Redis(answer=lambda slot: ("completed", lease(slot)))
    handover = Handover(redis, FOR_EVER)
    handover(handed(1))  # its job runs on
    assert handover(handed(0)) == ("completed", lease(0))
    assert redis.batches == [["1"], ["0"]]


def test_nobody_is_waited_for_where_jobs_are_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("unstuck.worker.handover.time.monotonic", lambda: now[0])
    redis = Redis(answer=lambda slot: ("completed", lease(slot)))
    handover = Handover(redis, FOR_EVER)
    used_to_short_jobs(handover)
    assert handover._usual < FOR_EVER
    for _ in range(10):
        handover(handed(0))
        now[0] += 2 * FOR_EVER
    handover(handed(0))
    handover(handed(1))  # both have one that has just begun
    assert handover(handed(0)) == ("completed", lease(0))


def test_a_job_that_failed_in_between_is_not_taken_for_a_long_one(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("unstuck.worker.handover.time.monotonic", lambda: now[0])
    handover = Handover(Redis(answer=lambda slot: ("completed", lease(slot))), FOR_EVER)
    used_to_short_jobs(handover)
    usual = handover._usual
    now[0] += 2 * FOR_EVER
    other = lease(0)
    other.token = "1.b"  # of a claim by itself, after the failure
    handover(Handed(other))
    assert handover._usual == usual


def test_a_slot_that_found_nothing_is_not_waited_for():
    redis = Redis(answer=lambda slot: ("completed", NOTHING if slot == "1" else lease(slot)))
    handover = Handover(redis, FOR_EVER)
    handover(handed(1))
    used_to_short_jobs(handover)
    assert handover(handed(0)) == ("completed", lease(0))


def test_company_that_does_not_come_is_waited_for_no_longer_than_said():
    redis = Redis(answer=lambda slot: ("completed", lease(slot)))
    handover = Handover(redis, 0.05)
    used_to_short_jobs(handover)
    handover(handed(1))  # its job runs on
    assert handover(handed(0)) == ("completed", lease(0))
    assert redis.batches[-2:] == [["1"], ["0"]]


def test_many_slots_for_a_long_while_each_get_every_answer_once(pool):
    seen = []
    handover = Handover(
        lambda some: [seen.append(one.claim_op) or (one.claim_op, lease(one.lease.slot)) for one in some]
    )

    def slot(number):
        for _ in range(100):
            one = handed(number)
            assert handover(one) == (one.claim_op, lease(number))

    for done in [pool.submit(slot, number) for number in range(16)]:
        done.result(60)
    assert len(seen) == len(set(seen)) == 16 * 100
    assert not handover._waiting


def lines_of(*functions):
    return [
        (function.__code__, line)
        for function in functions
        for line in sorted({line for _, _, line in function.__code__.co_lines() if line})
    ]


@pytest.mark.parametrize("company_within", [0.0, 0.005], ids=["no company", "company"])
@pytest.mark.parametrize(
    ("code", "line"), lines_of(Handover.__call__, Handover._lead, Handover._expected, Handover._learn)
)
def test_wherever_a_thread_is_held_up_each_slot_gets_its_answer(code, line, company_within):
    """At each line, each of the first passes: the others go on as far as they can, and then it goes on."""
    for passes in range(1, 5):
        held, resume, lock, count = threading.Event(), threading.Event(), threading.Lock(), [0]

        def trace(frame, _, __, passes=passes, held=held, resume=resume, lock=lock, count=count):
            def at(frame, event, _):
                if event == "line" and frame.f_lineno == line:
                    with lock:
                        count[0] += 1
                        mine = count[0] == passes
                    if mine:
                        held.set()
                        resume.wait(0.01)  # or until nobody else is left who could go on
                return at

            return at if frame.f_code is code else None

        def slots(number, handover, trace=trace):
            sys.settrace(trace)
            try:
                return [handover(handed(number))[1].slot for _ in range(3)]
            finally:
                sys.settrace(None)

        def send(some):
            threading.Event().wait(0.001)  # as long as a call takes: the others come meanwhile
            return [("completed", lease(one.lease.slot)) for one in some]

        handover = Handover(send, company_within)
        handover._usual = 0.0  # seconds: jobs are short
        with ThreadPoolExecutor(4) as pool:
            done = [pool.submit(slots, number, handover) for number in range(4)]
            for number, one in enumerate(done):
                assert one.result(30) == [str(number)] * 3
        assert (handover._led, handover._waiting) == (False, [])
