"""Several slots of a worker in one script: what it leaves is what the two scripts leave for each slot, one after the other."""

import json
import re

import pytest

from support.own_queue import NONCE, OTHER, TERMS, WORKER, OwnQueue, handed
from unstuck.errors import ProtocolError
from unstuck.protocol import Lease, Terms, keys
from unstuck.protocol.together import MOST_SLOTS, Handed, complete_and_claim


@pytest.fixture
def own(redis_client):
    return OwnQueue(redis_client)


def hold(own, count, **options):
    """Leases of `running0`, `running1`, …, each in a slot of its own."""
    leases = []
    for n in range(count):
        own.put(f"running{n}", {"n": n}, **options)
        own.fresh(f"running{n}")
        leases.append(own.claim(slot=str(n)))
    return leases


def wait_in_line(own, count, **options):
    for n in range(count):
        own.put(f"waiting{n}", {"n": n}, **options)
        own.fresh(f"waiting{n}")


def together(own, leases, terms=TERMS, **given):
    return own.call("complete_and_claim", WORKER, terms, *(word for one in leases for word in handed(one, **given)))


def left_by(own, answers):
    """Everything but times, nonces and the order of events, which one script must have otherwise."""
    found = own.everything(without=("workers", "stamp", "events"))
    found["events"] = sorted(json.dumps(event, sort_keys=True) for event in own.events())
    text = json.dumps([answers, found], sort_keys=True, indent=1).replace(f"{{{own.name}}}", "{queue}")
    text = re.sub(r"\b[0-9a-f]{16}\b", "nonce", re.sub(r"\b[12]\d{12}(\.0)?\b", "time", text))
    return [line for line in text.splitlines() if not line.strip().startswith(('"run_ms"', '"delay_ms"'))]


class TestWhatIsLeft:
    @pytest.mark.parametrize("following", [0, 2, 3, 5])
    @pytest.mark.parametrize("expected", [None, 60.0], ids=["no deadline", "deadline"])
    @pytest.mark.parametrize("lock", ["ttl", "none"])
    @pytest.mark.parametrize(
        "ages_ms",
        [(-60_000, -60_000, -60_000), (-60_000, 1_200, 4_000_000), (90_000, 90_000, 1_200)],
        ids=["at once", "mixed", "late"],
    )
    def test_it_is_what_the_two_scripts_leave_for_each_slot_in_turn(self, own, following, expected, lock, ages_ms):
        left = []
        for name in ("together", "separate"):
            queue = OwnQueue(own.client, name)
            leases = hold(queue, 3, expected=expected)
            wait_in_line(queue, following, expected=expected)
            for n, age in enumerate(ages_ms):
                queue.client.hincrby(keys.job(name, f"running{n}"), "started_at", -age)
                if n < following:
                    queue.client.hincrby(keys.job(name, f"waiting{n}"), "ready_at", -60_000 - age)
            if name == "together":
                answers = together(queue, leases, f"86400000 {lock} 30000 5000 20000")
            else:
                answers = []
                for lease in leases:
                    done = queue.call(
                        "complete_job", WORKER, f"{lease.slot}f", "op1", lease.id, lease.token, 86_400_000, ""
                    )
                    claim = (f"{lease.slot}c", NONCE, NONCE, lock, 30_000, 5_000, 20_000)
                    answers.append([done, *queue.call("claim_job", WORKER, *claim)])
            left.append(left_by(queue, answers))
        assert left[0] == left[1]
        assert [answer[0] for answer in answers] == ["completed"] * 3
        assert [answer[1] for answer in answers] == ["job"] * min(3, following) + ["empty"] * max(0, 3 - following)

    def test_all_slots_of_the_largest_call_are_served_in_the_order_of_the_queue(self, own):
        leases = hold(own, MOST_SLOTS)
        wait_in_line(own, MOST_SLOTS + 1)
        answers = complete_and_claim(own.queue, WORKER, Terms(), [Handed(lease) for lease in leases])
        taken = [answer[1] for answer in answers]
        assert [lease.id for lease in taken] == [f"waiting{n}" for n in range(MOST_SLOTS)]
        assert [lease.slot for lease in taken] == [str(n) for n in range(MOST_SLOTS)]
        assert own.client.smembers(keys.held(own.name, WORKER)) == {lease.id for lease in taken}
        assert own.stats()["completed"] == MOST_SLOTS
        own.in_one_place_each()
        for lease in taken:
            lease.complete()

    def test_due_jobs_are_promoted_before_and_stand_in_line_like_those_of_a_claim(self, own):
        leases = hold(own, 2)
        own.put("due", delay=60)
        own.put("later", delay=60)
        own.client.zadd(keys.scheduled(own.name), {"due": 1})
        own.put("waiting")
        answers = together(own, leases)
        assert [answer[2] for answer in answers] == ["waiting", "due"]
        assert own.client.zrange(keys.scheduled(own.name), 0, -1) == ["later"]
        own.in_one_place_each()

    def test_after_the_clock_was_set_back_no_time_is_counted_below_zero(self, own):
        leases = hold(own, 2)
        wait_in_line(own, 2)
        for n in range(2):
            own.client.hincrby(keys.job(own.name, f"running{n}"), "started_at", 60_000)
        assert [answer[0] for answer in together(own, leases)] == ["completed"] * 2
        after = own.stats()
        assert (after["run_ms"], after["delay_ms"]) == (0, 0)
        assert (after["run_le_50"], after["delay_le_50"]) == (2, 4)

    def test_an_empty_answer_says_when_the_next_one_is_due(self, own):
        leases = hold(own, 2)
        own.put("later", delay=60)
        due = int(own.client.zscore(keys.scheduled(own.name), "later"))
        assert [answer[:3] for answer in together(own, leases)] == [["completed", "empty", str(due)]] * 2
        assert not own.client.exists(keys.wake(own.name))


def release(own, lease, _):
    own.queue.release(lease, "test")
    own.client.lmove(keys.pending(own.name), keys.pending(own.name), "RIGHT", "LEFT")


def claim_anew(own, lease, _):
    own.queue.release(lease, "test")
    assert own.claim(slot="9").id == lease.id  # the same worker has it again, under another token


def spoil_field(name, value):
    return lambda own, lease, _: own.client.hset(keys.job(own.name, lease.id), name, value)


def spoil_type(own, lease, _):
    own.client.delete(keys.job(own.name, lease.id))
    own.client.set(keys.job(own.name, lease.id), "x")


def complete_before(own, lease, _):
    assert own.call("complete_job", WORKER, "1f", "op1", lease.id, lease.token, 86_400_000, "") == "completed"


def conflict_before(own, lease, _):
    args = (WORKER, "1f", "op1", lease.id, lease.token, 86_400_000, lease.version + 1)
    assert own.call("complete_job", *args) == "conflict"


SPOILT = {
    "cancelled": lambda own, lease, _: own.queue.cancel(lease.id),
    "old token": release,
    "newer attempt": claim_anew,
    "other worker": spoil_field("worker", OTHER),
    "another version": lambda own, lease, words: words.__setitem__(4, lease.version + 1),
    "a version that is no number": spoil_field("version", "1x"),
    "a beginning that is no number": spoil_field("started_at", ""),
    "wrong type": spoil_type,
    "no body": lambda own, lease, _: own.client.delete(keys.job(own.name, lease.id)),
    "an operation that cannot be a nonce": lambda own, lease, words: words.__setitem__(5, "again"),
    "the slot of its neighbour": lambda own, lease, words: words.__setitem__(0, "0"),
    "the job of its neighbour": lambda own, lease, words: words.__setitem__(
        slice(2, 4), ["running0", own.job("running0")["token"]]
    ),
    "completed before": complete_before,
    "answered with a conflict before": conflict_before,
}


class TestApart:
    """The slot in the middle is not straight: it is left alone, its neighbours are served."""

    @pytest.mark.parametrize("how", SPOILT)
    def test_what_is_odd_about_one_slot_touches_neither_it_nor_the_others(self, own, how):
        leases = hold(own, 3)
        wait_in_line(own, 3)
        words = list(handed(leases[1]))
        SPOILT[how](own, leases[1], words)
        before, started = own.value(keys.job(own.name, "running1")), own.stats()["started"]
        answers = own.call("complete_and_claim", WORKER, TERMS, *handed(leases[0]), *words, *handed(leases[2]))
        assert [answer[0] for answer in answers] == ["completed", "apart", "completed"]
        assert [answers[n][2] for n in (0, 2)] == ["waiting0", "waiting1"]
        assert own.value(keys.job(own.name, "running1")) == before
        assert own.stats()["completed"] == (3 if how == "completed before" else 2)
        assert own.stats()["started"] == started + 2
        if how not in {"wrong type", "no body"}:
            own.in_one_place_each()

    def test_a_slot_whose_claim_was_carried_out_before_takes_no_second_job(self, own):
        leases = hold(own, 2)
        wait_in_line(own, 3)
        words = handed(leases[1])
        own.call("claim_job", WORKER, "1c", words[5], words[5], "ttl", 30_000, 5_000, 20_000)
        assert [answer[0] for answer in together(own, leases)] == ["completed", "apart"]
        assert own.client.lrange(keys.pending(own.name), 0, -1) == ["waiting2"]
        done, taken = own.queue.complete_and_claim(leases[1], Terms(), op=words[1], claim_op=words[5])
        assert (done, taken.id) == ("completed", "waiting0")
        own.in_one_place_each()

    @pytest.mark.parametrize("how", ["no body", "wrong type", "no number", "bad id", "done", "twice"])
    def test_an_odd_job_in_line_is_left_to_a_claim_and_so_is_all_behind_it(self, own, how):
        leases = hold(own, 3)
        wait_in_line(own, 3)
        pending, job = keys.pending(own.name), keys.job(own.name, "waiting1")
        if how == "no body":
            own.client.delete(job)
        elif how == "wrong type":
            own.client.delete(job)
            own.client.set(job, "x")
        elif how == "no number":
            own.client.hset(job, "attempt", "1x")
        elif how == "done":
            own.client.hset(job, "state", "done")
        else:
            own.client.lset(pending, -2, {"bad id": "a b", "twice": "waiting0"}[how])
        line = own.client.lrange(pending, 0, -1)
        answers = together(own, leases)
        assert [answer[0] for answer in answers] == ["completed", "apart", "apart"]
        assert own.client.lrange(pending, 0, -1) == line[:-1]
        assert [own.job(f"running{n}")["state"] for n in range(3)] == ["done", "active", "active"]
        # Each of the others by itself, as its slot does it: the claim puts the odd one aside and goes on.
        one = own.queue.complete_and_claim(leases[1], Terms())
        assert one[0] == "completed"
        assert isinstance(one[1], Lease)
        assert one[1].id == "waiting2"

    @pytest.mark.parametrize("terms", ["", "0 ttl 1 1 1", "86400000 ttl 30000 5000", "86400000 both 30000 5000 20000"])
    def test_terms_that_no_job_can_be_held_on_leave_everything_as_it_was(self, own, terms):
        leases = hold(own, 2)
        wait_in_line(own, 2)
        before = own.everything()
        assert together(own, leases, terms) == [["apart"]] * 2
        assert own.everything() == before

    @pytest.mark.parametrize("count", [0, MOST_SLOTS + 1])
    def test_too_few_or_too_many_slots_are_refused_and_nothing_is_changed(self, own, count):
        leases = hold(own, count)
        before = own.everything()
        with pytest.raises(ProtocolError, match="number of slots"):
            together(own, leases)
        assert own.everything() == before

    def test_a_slot_that_is_cut_off_is_refused_and_nothing_is_changed(self, own):
        (lease,) = hold(own, 1)
        before = own.everything()
        with pytest.raises(ProtocolError, match="number of slots"):
            own.call("complete_and_claim", WORKER, TERMS, *handed(lease), "1", "op1")
        assert own.everything() == before


class TestRepetition:
    def test_the_whole_call_repeated_answers_the_same_and_changes_nothing(self, own):
        leases = hold(own, 3)
        wait_in_line(own, 3)
        first = together(own, leases)
        after = own.everything()
        again = together(own, leases)
        assert [[*one[:6], *one[7:]] for one in again] == [[*one[:6], *one[7:]] for one in first]  # [6] is the time
        assert own.everything() == after

    def test_repeated_and_new_slots_in_one_call_are_each_answered(self, own):
        leases = hold(own, 2)
        wait_in_line(own, 2)
        (first,) = together(own, leases[:1])
        again, new = together(own, leases)
        assert again[:6] == first[:6]
        assert new[:3] == ["completed", "job", "waiting1"]
        assert own.stats()["completed"] == 2

    def test_a_repeated_claim_whose_attempt_was_taken_away_says_so(self, own):
        leases = hold(own, 1)
        wait_in_line(own, 1)
        (first,) = together(own, leases)
        token = first[3]
        own.call("release_job", WORKER, "0r", "op2", "waiting0", token, "test", 10_000, 86_400_000)
        (again,) = together(own, leases)
        assert again[:3] == ["completed", "lost", "waiting0"]

    def test_part_by_part_it_gives_the_same_answers(self, own):
        leases = hold(own, 2)
        wait_in_line(own, 2)
        handed_in = [Handed(lease) for lease in leases]
        taken = [answer[1] for answer in complete_and_claim(own.queue, WORKER, Terms(), handed_in)]
        for one, lease in zip(handed_in, taken, strict=True):
            assert own.queue.complete(one.lease) == "completed"
            again = own.queue.claim(WORKER, one.lease.slot, op=one.claim_op)
            assert (again.id, again.token) == (lease.id, lease.token)
        assert own.stats()["completed"] == 2
        assert own.stats()["started"] == 4
