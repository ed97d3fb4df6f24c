"""The life of a job in before/after tables: tokens, refusals, retries, backoff, limits, letters, names."""

import json
import re
import time

import pytest
import redis

from support.own_queue import LIMITS, NONCE, OTHER, WORKER, OwnQueue, handed
from unstuck.errors import InvalidName, LeaseLost, ProtocolError, Refused
from unstuck.protocol import Claim, Lease, Queue, RetryLimits, Terms, keys


@pytest.fixture
def own(redis_client):
    return OwnQueue(redis_client)


def finish(own, how, lease, **options):
    return {
        "complete": lambda: own.queue.complete(lease, **options),
        "fail": lambda: own.queue.fail(lease, "no", **options),
        "release": lambda: own.queue.release(lease, "test", **options),
    }[how]()


def timeless(queue, *told):
    """Without what differs from one moment and one queue to the next: times, nonces, entry ids."""
    text = json.dumps(told, sort_keys=True, indent=1).replace(queue, "queue")
    text = re.sub(r"\b[0-9a-f]{16}\b", "nonce", re.sub(r"\b[12]\d{12}(-\d+|\.0)?\b", "time", text))
    return [line for line in text.splitlines() if not line.strip().startswith(('"run_ms"', '"delay_ms"'))]


class TestTokens:
    def test_each_claim_makes_a_new_attempt_current_and_its_token_is_attempt_and_nonce(self, own):
        first = own.held("one")
        own.queue.release(first, "test")
        second = own.claim(OTHER)
        assert (first.token[:2], second.token[:2]) == ("1.", "2.")
        assert own.job("one")["token"] == second.token
        assert own.client.get(keys.lock("mail", "one")) == second.token

    @pytest.mark.parametrize("how", ["complete", "fail", "release"])
    def test_an_old_token_changes_nothing_but_the_count_of_refusals(self, own, how):
        old = own.held("one")
        own.queue.release(old, "test")
        own.claim(OTHER)
        before = own.everything(without=("stats", "ops"))
        assert finish(own, how, old, op="late") == "refused"
        assert own.everything(without=("stats", "ops")) == before
        assert own.stats()["refused"] == 1

    @pytest.mark.parametrize("how", ["complete", "fail", "release"])
    def test_the_same_attempt_number_with_another_nonce_is_refused(self, own, how):
        # After a failover attempt numbers may come again; the nonce does not.
        lease = own.held("one")
        lease.token = f"1.{NONCE}"
        assert finish(own, how, lease) == "refused"
        assert own.job("one")["state"] == "active"

    def test_a_heartbeat_with_an_old_token_is_told_and_renews_nothing(self, own):
        old = own.held("one")
        own.queue.release(old, "test")
        own.claim(OTHER)
        before = own.everything(without=("workers",))
        assert own.queue.heartbeat(WORKER, [old])[1] == ["lost"]
        assert own.queue.report_progress("one", old.token, "half") == "lost"
        assert own.everything(without=("workers", "stats")) == {k: v for k, v in before.items() if ":stats" not in k}
        with pytest.raises(LeaseLost):
            old.heartbeat()

    def test_a_missing_lock_is_set_again_by_a_heartbeat_and_a_completion_without_it_is_accepted(self, own):
        lease = own.held("one")
        own.client.delete(keys.lock("mail", "one"))
        lease.heartbeat()
        assert own.client.get(keys.lock("mail", "one")) == lease.token
        own.client.delete(keys.lock("mail", "one"))
        lease.complete()
        assert own.places() == {"one": ["done"]}

    def test_an_index_that_lost_the_job_is_repaired_by_its_heartbeat(self, own):
        lease = own.held("one")
        own.client.delete(keys.active("mail"), keys.started("mail"), keys.held("mail", WORKER))
        lease.heartbeat()
        own.in_one_place_each()
        assert own.client.zscore(keys.started("mail"), "one") == float(own.job("one")["started_at"])
        assert own.client.smembers(keys.held("mail", WORKER)) == {"one"}

    def test_an_optimistic_attempt_has_no_lock_key(self, own):
        own.put("one")
        lease = own.claim(terms=Terms(lock="none"))
        lease.heartbeat()
        assert own.client.exists(keys.lock("mail", "one")) == 0


class TestRepetitions:
    def test_a_repeated_claim_gives_the_same_job_and_token_although_another_nonce_was_sent(self, own):
        own.put("one")
        own.put("two")
        first = own.queue.claim(WORKER, "0", op="same")
        again = own.queue.claim(WORKER, "0", op="same")
        assert isinstance(first, Lease)
        assert isinstance(again, Lease)
        assert (first.id, first.token) == (again.id, again.token)
        assert own.stats()["started"] == 1

    def test_a_repeated_claim_whose_attempt_was_taken_away_says_so_and_takes_nothing(self, own):
        own.put("one")
        lease = own.queue.claim(WORKER, "0", op="same")
        own.queue.release(lease, "test")
        again = own.queue.claim(WORKER, "0", op="same")
        assert again == Claim(None, again.now_ms, again=True)
        assert own.job("one")["state"] == "pending"

    def test_complete_and_claim_repeated_part_by_part_gives_the_same_answers(self, own):
        lease = own.held("one")
        own.put("two")
        own.put("three")
        done, second = own.queue.complete_and_claim(lease, Terms(), claim_op="00000000000000aa")
        assert done == own.queue.complete(lease) == "completed"
        again = own.queue.claim(WORKER, "0", op="00000000000000aa")
        assert (again.id, again.token) == (second.id, second.token)

    @pytest.mark.parametrize("following", ["another", "nothing"])
    @pytest.mark.parametrize("expected", [None, 60.0], ids=["no deadline", "deadline"])
    @pytest.mark.parametrize("lock", ["ttl", "none"])
    @pytest.mark.parametrize("age_ms", [-60_000, 1_200, 4_000_000], ids=["at once", "after 1200 ms", "after an hour"])
    def test_complete_and_claim_leaves_what_its_two_parts_leave(self, own, following, expected, lock, age_ms):
        left = []
        for name in ("together", "separate"):
            queue = OwnQueue(own.client, name)
            queue.put("one", {"n": 1}, expected=expected)
            queue.fresh("one")
            lease = queue.claim(terms=Terms(lock=lock))
            queue.queue.report_progress(lease.id, lease.token, "half")
            queue.client.hincrby(keys.job(name, "one"), "started_at", -age_ms)
            if following == "another":
                queue.put("two", {"n": 2}, expected=expected)
                queue.client.hincrby(keys.job(name, "two"), "ready_at", -age_ms)
            if name == "together":
                held = f"86400000 {lock} 30000 5000 20000"
                (answer,) = queue.call("complete_and_claim", WORKER, held, *handed(lease, "e", "0" * 16))
            else:
                answer = [queue.call("complete_job", WORKER, "0f", "e", lease.id, lease.token, 86_400_000, "")]
                answer += queue.call("claim_job", WORKER, "0c", "0" * 16, NONCE, lock, 30_000, 5_000, 20_000)
            left.append(timeless(name, answer, queue.everything(without=("workers", "stamp"))))
        assert left[0] == left[1]
        assert '"completed",' in left[0][2]

    @pytest.mark.parametrize(
        "terms",
        [
            "9" * 20 + " ttl 30000 5000 20000",
            "86400000 ttl " + "9" * 20 + " 5000 20000",
            "86400000 ttl 30000 5000",
            "86400000 ttl 0 5000 20000",
            "86400000 both 30000 5000 20000",
            "",
        ],
    )
    def test_terms_that_no_job_can_be_held_on_leave_everything_as_it_was(self, own, terms):
        lease = own.held("one")
        own.put("two")
        before = own.everything()
        assert own.call("complete_and_claim", WORKER, terms, *handed(lease)) == [["apart"]]
        assert own.everything() == before

    @pytest.mark.parametrize("stamp", ["9000000000000000", "5", None])
    def test_the_stamp_grows_with_a_completion_that_claims_also_when_the_clock_was_set_back(self, own, stamp):
        lease = own.held("one")
        if stamp:
            own.client.set(own.key("stamp"), stamp)
        assert own.queue.complete_and_claim(lease, Terms())[0] == "completed"
        now = own.client.get(own.key("stamp"))
        assert now == "9000000000000001" if stamp == "9000000000000000" else abs(int(now) / 1e6 - time.time()) < 60

    def test_a_completion_repeated_after_the_next_ending_of_its_slot_is_still_accepted(self, own):
        one = own.held("one")
        own.queue.complete(one)
        own.queue.complete(own.held("two"))
        assert own.queue.complete(one) == "completed"
        assert own.stats()["completed"] == 2

    def test_the_same_id_enqueued_by_somebody_else_is_left_alone(self, own):
        own.queue.enqueue({"n": 1}, id="one", op="a")
        assert own.queue.enqueue({"n": 1}, id="one", op="a").created
        other = own.queue.enqueue({"n": 2}, id="one", op="b")
        assert (other.created, other.state) == (False, "pending")
        assert own.job("one")["payload"] == '{"n":1}'
        assert own.stats()["enqueued"] == 1


class TestFailing:
    def test_failures_back_off_twice_as_long_each_time_within_twenty_percent(self, own):
        own.put("one", max_attempts=9)
        for failures in range(1, 6):
            lease = own.claim()
            before = int(own.client.time()[0])
            assert own.queue.fail(lease, "no") == "scheduled"
            wait = own.client.zscore(keys.scheduled("mail"), "one") / 1000 - before
            nominal = 2.0 ** (failures - 1)
            assert 0.8 * nominal - 0.1 <= wait <= 1.2 * nominal + 1.1
            assert own.job("one")["failures"] == str(failures)
            own.client.zadd(keys.scheduled("mail"), {"one": 1})

    @pytest.mark.parametrize(("thousandths", "least", "most"), [(800, 480, 481), (1200, 600, 601)])
    def test_a_backoff_is_never_longer_than_ten_minutes(self, own, thousandths, least, most):
        lease = own.held("one", retry_delay=3600)
        before = own.client.time()[0]
        own.call("fail_job", WORKER, "0f", "op", "one", lease.token, "", "error", 0, 5, 1000, thousandths, *LIMITS)
        wait = own.client.zscore(keys.scheduled("mail"), "one") / 1000 - before
        assert least <= wait <= most + 1

    @pytest.mark.parametrize(("own_limit", "expected"), [(None, 5), (2, 2), (1, 1)])
    def test_a_job_is_dead_after_its_own_or_the_callers_number_of_failures(self, own, own_limit, expected):
        own.put("one", max_attempts=own_limit)
        answers = []
        while "dead" not in answers:
            answers.append(own.queue.fail(own.claim(), "no"))
            own.client.zadd(keys.scheduled("mail"), {"one": 1}, xx=True)
        assert len(answers) == expected
        assert own.job("one")["cause"] == "max_attempts"
        own.in_one_place_each()

    def test_a_permanent_failure_is_dead_at_once_with_its_cause(self, own):
        assert own.queue.fail(own.held("one"), "no", cause="payload", permanent=True) == "dead"
        assert own.job("one")["cause"] == "payload"

    def test_the_error_text_is_cut_at_four_kilobytes_and_never_inside_a_character(self, own):
        own.queue.fail(own.held("one"), "é" * 4000)
        assert own.job("one")["error"] == "é" * 2048

    def test_a_release_counts_neither_failure_nor_rescue_and_goes_next_in_line(self, own):
        lease = own.held("one")
        own.put("two")
        own.queue.release(lease, "shutdown")
        assert own.claim(OTHER).id == "one"
        assert (own.job("one")["failures"], own.job("one")["rescues"]) == ("0", "0")

    def test_only_a_retry_by_hand_resets_failures_and_rescues(self, own):
        own.bury("one")
        own.client.hset(keys.job("mail", "one"), "rescues", 3)
        assert own.queue.retry_dead("one") == "retried"
        body = own.job("one")
        assert (body["failures"], body["rescues"], body["state"]) == ("0", "0", "pending")
        assert "error" not in body
        assert own.queue.retry_dead("one") == "not_dead"
        assert own.queue.retry_dead("none") == "missing"


class TestLetters:
    def test_no_more_than_dead_max_are_kept_the_oldest_go_first_and_are_counted(self, redis_client):
        own = OwnQueue(redis_client)
        own.queue = Queue(redis_client, "mail", limits=RetryLimits(dead_max=3))
        for n in range(5):
            own.bury(f"job{n}")
        assert own.client.zrange(keys.dead("mail"), 0, -1) == ["job2", "job3", "job4"]
        assert own.job("job0") == {}
        assert own.stats()["dead_dropped"] == 2
        own.in_one_place_each()

    def test_a_dead_letter_older_than_its_time_is_dropped_by_the_next_death(self, own):
        own.bury("old")
        own.client.zadd(keys.dead("mail"), {"old": 1})
        own.bury("new")
        assert own.client.zrange(keys.dead("mail"), 0, -1) == ["new"]

    def test_a_drop_removes_dead_and_quarantined_ones_and_nothing_else(self, own):
        own.bury("one")
        own.client.rpush(keys.pending("mail"), "ghost")
        own.queue.claim(WORKER, "0")
        own.put("two")
        assert [own.queue.drop_dead(job) for job in ("one", "ghost", "two", "none")] == [
            "dropped",
            "dropped",
            "not_dead",
            "missing",
        ]
        assert own.places() == {"two": ["pending"]}

    def test_a_done_job_has_no_payload_and_lives_as_long_as_its_result(self, redis_client):
        own = OwnQueue(redis_client)
        own.queue = Queue(redis_client, "mail", limits=RetryLimits(result_ttl_ms=60_000))
        own.queue.complete(own.held("one"))
        assert "payload" not in own.job("one")
        assert 0 < own.client.pttl(keys.job("mail", "one")) <= 60_000
        assert own.client.pttl(keys.job("mail", "one")) > 50_000


class TestCancelling:
    @pytest.mark.parametrize("how", ["release", "fail"])
    def test_a_cancelled_attempt_that_ends_without_completing_is_buried_as_cancelled(self, own, how):
        lease = own.held("one")
        assert own.queue.cancel("one") == "told"
        assert own.queue.heartbeat(WORKER, [lease])[1] == ["cancelled"]
        assert own.client.get(keys.lock("mail", "one")) == lease.token
        assert finish(own, how, lease) == "dead"
        assert own.job("one")["cause"] == "cancelled"

    def test_a_cancelled_attempt_that_completes_is_done(self, own):
        lease = own.held("one")
        own.queue.cancel("one")
        assert own.queue.complete(lease) == "completed"
        assert "cancelled_at" not in own.job("one")

    def test_the_message_names_the_token_so_that_a_later_job_of_that_id_is_not_hit(self, own):
        lease = own.held("one")
        listener = own.client.pubsub()
        listener.ssubscribe(keys.control("mail", WORKER))
        listener.get_sharded_message(timeout=5)
        own.queue.cancel("one")
        message = listener.get_sharded_message(timeout=5)
        assert message["data"] == f'{{"cancel":"one","token":"{lease.token}"}}'
        listener.close()

    @pytest.mark.parametrize(("job", "answer"), [("done", "ended"), ("dead", "ended"), ("none", "missing")])
    def test_what_has_ended_is_not_cancelled(self, own, job, answer):
        own.queue.complete(own.held("done"))
        own.bury("dead")
        before = own.everything()
        assert own.queue.cancel(job) == answer
        assert own.everything() == before


class TestQuarantine:
    def test_ids_without_a_usable_body_are_put_aside_at_most_ten_per_call_and_the_next_is_taken(self, own):
        own.put("good")
        ghosts = [f"ghost{n}" for n in range(12)]
        own.client.rpush(keys.pending("mail"), *ghosts)
        answer = own.queue.claim(WORKER, "0")
        assert isinstance(answer, Claim)
        assert answer.again
        assert own.client.llen(keys.quarantine("mail")) == 10
        assert own.claim().id == "good"
        assert sorted(own.client.lrange(keys.quarantine("mail"), 0, -1)) == sorted(ghosts)

    @pytest.mark.parametrize("bad", ["with space", "ünusual", "a/b", "x" * 129, "{tag}", "line\nbreak", ""])
    def test_a_bad_id_in_pending_goes_to_quarantine(self, own, bad):
        own.put("good")
        own.client.hset(keys.job("mail", bad), mapping={"state": "pending", "payload": "1"})
        own.client.rpush(keys.pending("mail"), bad)
        assert own.claim().id == "good"
        assert own.client.lrange(keys.quarantine("mail"), 0, -1) == [bad]

    def test_an_id_of_the_wrong_type_or_without_payload_goes_to_quarantine_from_scheduled_too(self, own):
        own.client.set(keys.job("mail", "text"), "x")
        own.client.hset(keys.job("mail", "empty"), "state", "scheduled")
        own.client.zadd(keys.scheduled("mail"), {"text": 1, "empty": 1})
        own.put("good")
        assert own.claim().id == "good"
        assert sorted(own.client.lrange(keys.quarantine("mail"), 0, -1)) == ["empty", "text"]

    def test_a_duplicate_of_a_job_that_is_elsewhere_is_dropped_and_said(self, own):
        lease = own.held("one")
        own.client.rpush(keys.pending("mail"), "one")
        assert isinstance(own.queue.claim(OTHER, "0"), Claim)
        assert own.job("one")["token"] == lease.token
        assert "duplicate_dropped" in [event["event"] for event in own.events()]
        own.in_one_place_each()


class TestNames:
    @pytest.mark.parametrize("name", ["", "a b", "a:b", "{x}", "ü", "x" * 129, "a\n"])
    def test_client_refuses_a_bad_queue_name(self, redis_client, name):
        with pytest.raises(InvalidName, match="use 1 to 128 of"):
            Queue(redis_client, name)

    @pytest.mark.parametrize("name", ["", "a b", "a/b", "{x}", "ü", "x" * 129, "a\n"])
    def test_client_and_script_refuse_a_bad_job_id_and_worker(self, own, name):
        with pytest.raises(InvalidName):
            own.queue.enqueue(1, id=name)
        with pytest.raises(InvalidName):
            own.call("enqueue_job", name, "op", "1", 0, "", "", "")
        with pytest.raises(InvalidName):
            own.queue.claim(name, "0")
        with pytest.raises(InvalidName):
            own.queue.register(name, control=False)
        assert own.places() == {}

    @pytest.mark.parametrize("key", ["unstuck:{mail}:other", "else:{mail}:meta", "unstuck:mail:meta"])
    def test_a_key_that_is_no_meta_key_is_refused(self, own, key):
        with pytest.raises(InvalidName):
            own.call("enqueue_job", "one", "op", "1", 0, "", "", "", key=key)
        assert own.client.keys("*") == []

    @pytest.mark.parametrize(
        ("script", "args"),
        [
            ("enqueue_job", ("one", "op", "1", "soon", "", "", "")),
            ("enqueue_job", ("one", "op", "1", 0, "many", "", "")),
            ("claim_job", (WORKER, "0c", "op", "short", "ttl", 1, 1, 1)),
            ("claim_job", (WORKER, "0c", "op", NONCE, "maybe", 1, 1, 1)),
            ("claim_job", (WORKER, "0c", "op", NONCE, "ttl", 0, 1, 1)),
            ("claim_job", (WORKER, "0c", "op", NONCE, "ttl", 1, "1e3", 1)),
            ("heartbeat_jobs", (WORKER, 0, "")),
            ("promote_jobs", (101,)),
            ("complete_job", (WORKER, "0f", "op", "one", "t", 0, "")),
        ],
    )
    def test_an_argument_out_of_its_range_is_refused(self, own, script, args):
        with pytest.raises(Refused, match="a value it cannot take"):
            own.call(script, *args)

    def test_a_payload_over_one_megabyte_or_not_json_is_refused(self, own):
        with pytest.raises(Refused, match="the limit is 1048576"):
            own.queue.enqueue("x" * 1_048_576)
        with pytest.raises(Refused, match="not JSON"):
            own.queue.enqueue(float("nan"))
        with pytest.raises(Refused):
            own.call("enqueue_job", "one", "op", "x" * 1_048_577, 0, "", "", "")


class TestOrderAndTime:
    def test_jobs_are_taken_in_the_order_in_which_they_came(self, own):
        for n in range(5):
            own.put(f"job{n}")
        assert [own.claim().id for _ in range(5)] == [f"job{n}" for n in range(5)]

    def test_an_empty_claim_says_when_the_next_job_is_due_and_a_due_one_is_taken(self, own):
        own.put("later", delay=60)
        answer = own.queue.claim(WORKER, "0")
        assert isinstance(answer, Claim)
        assert 59_000 < answer.next_due_ms - answer.now_ms <= 60_000
        own.client.zadd(keys.scheduled("mail"), {"later": answer.now_ms})
        assert own.claim().id == "later"

    def test_each_job_put_into_pending_leaves_one_wake_and_an_empty_claim_removes_them(self, own):
        own.put("one")
        own.put("two")
        assert own.client.llen(keys.wake("mail")) == 2
        own.queue.release(own.claim(), "test")
        assert own.client.llen(keys.wake("mail")) == 3
        own.claim()
        own.claim()
        own.queue.claim(WORKER, "0")
        assert own.client.exists(keys.wake("mail")) == 0

    def test_delay_and_run_time_are_counted_once_each_in_their_bucket(self, own):
        own.put("one")
        own.fresh("one")
        lease = own.claim()
        own.client.hincrby(keys.job("mail", "one"), "started_at", -1_200)
        own.queue.complete(lease)
        stats = own.stats()
        assert stats["delay_le_50"] == 1
        assert stats["run_le_2500"] == 1
        assert stats["run_ms"] >= 1_200
        assert sum(count for name, count in stats.items() if name.startswith("run_le_")) == 1

    @pytest.mark.parametrize("place", ["pending", "scheduled"])
    def test_the_id_of_a_completed_job_is_dropped_too_and_the_job_stays_done(self, own, place):
        own.queue.complete(own.held("one"))
        before = own.job("one")
        if place == "pending":
            own.client.rpush(keys.pending("mail"), "one")
        else:
            own.client.zadd(keys.scheduled("mail"), {"one": 1})
        assert isinstance(own.queue.claim(OTHER, "0"), Claim)
        assert own.job("one") == before
        own.in_one_place_each()
        assert "duplicate_dropped" in [event["event"] for event in own.events()]


class TestAPartThatIsRefused:
    def test_a_claim_whose_completion_was_refused_for_damage_leaves_no_job_that_nobody_holds(self, own):
        lease = own.held("one")
        own.put("two")
        own.client.hset(own.key("stats"), "completed", "x")
        with pytest.raises(ProtocolError, match="completed"):
            own.queue.complete_and_claim(lease, Terms())
        assert (own.job("one")["state"], own.job("two")["state"]) == ("active", "pending")
        own.in_one_place_each()

    def test_a_completion_that_was_cut_off_by_a_missing_right_is_not_answered_as_done_by_its_repetition(self, own):
        lease = own.held("one")
        own.put("two")
        own.client.acl_setuser(
            "poor", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-unlink"]
        )
        with redis.Redis.from_url(
            f"redis://poor:x@127.0.0.1:{own.client.connection_pool.connection_kwargs['port']}"
        ) as poor:
            queue = Queue(poor, "mail")
            with pytest.raises(redis.ResponseError):
                queue.complete_and_claim(lease, Terms())
            with pytest.raises(redis.ResponseError):
                queue.complete(lease)
        assert own.job("one")["state"] == "active"
        assert own.queue.complete(lease) == "completed"
        assert own.job("one")["state"] == "done"


def test_a_payload_text_with_a_lone_surrogate_is_refused_and_nothing_is_enqueued(own):
    with pytest.raises(Refused, match="lone surrogate"):
        own.queue.enqueue_text('"\udcff"', id="one")
    assert own.places() == {}
