"""The reclaim moves a job only if everything it was judged on still holds; publishing and electing heed the same fence."""

import pytest

from support.own_queue import OTHER, WORKER, OwnQueue, authority, condemned
from unstuck.errors import Deposed, Refused
from unstuck.protocol import Terms, keys, scripts


@pytest.fixture
def own(redis_client):
    return OwnQueue(redis_client)


def reclaim(own, *jobs, **changes):
    return own.call("reclaim_jobs", *authority(own, **changes), *(part for job in jobs for part in job))


class TestEvidence:
    def test_an_attempt_is_taken_away_and_its_job_placed_next_in_line_in_one_script(self, own):
        lease = own.held("one")
        own.put("two")
        assert reclaim(own, condemned(lease, own)) == ["requeued:lock_without_heartbeat:1"]
        body = own.job("one")
        assert (body["state"], body["rescues"], body["failures"]) == ("pending", "1", "0")
        assert (body["last_worker"], body["last_token"]) == (WORKER, lease.token)
        assert body["last_evidence"] == '{"why":"test"}'
        assert "token" not in body
        assert own.claim(OTHER).id == "one"
        assert own.queue.complete(lease) == "refused"
        assert own.stats()["rescued"] == 1

    @pytest.mark.parametrize(
        ("what", "cause"),
        [
            ("completed", "state"),
            ("released", "state"),
            ("claimed again", "token"),
            ("beaten", "heartbeat"),
            ("lock set", "lock"),
            ("another run id", "run_id"),
            ("another replication id", "replication_id"),
            ("beating within its threshold", "heartbeat"),
        ],
    )
    def test_what_has_changed_since_the_look_makes_it_a_lost_race_without_effect(self, own, what, cause):
        lease = own.held("one")
        changes, sure = {}, {}
        if what == "lock set":
            changes["lock"] = "missing"
        if what == "beating within its threshold":
            changes["threshold_ms"] = 600_000
        job = condemned(lease, own, **changes)
        match what:
            case "completed":
                lease.complete()
            case "released":
                lease.release()
            case "claimed again":
                lease.release()
                own.claim(OTHER)
            case "beaten":
                own.client.hset(keys.job("mail", "one"), "heartbeat_at", int(own.job("one")["heartbeat_at"]) + 1)
            case "another run id":
                sure["run_id"] = "f" * 40
            case "another replication id":
                sure["replication_id"] = "f" * 40
        before = own.everything(without=("ops", "fence"))
        assert reclaim(own, job, **sure) == [f"lost_race:{cause}:0"]
        assert own.everything(without=("ops", "fence")) == before

    def test_an_index_that_is_younger_than_the_judged_heartbeat_is_a_sign_of_life(self, own):
        lease = own.held("one")
        job = condemned(lease, own)
        own.client.zincrby(keys.active("mail"), 5, "one")
        assert reclaim(own, job) == ["lost_race:heartbeat:0"]

    def test_a_worker_whose_connection_is_back_keeps_its_job(self, own):
        own.queue.register(WORKER, control=True)
        lease = own.held("one")
        job = condemned(lease, own, reason="worker_gone")
        listener = own.client.pubsub()
        listener.ssubscribe(keys.control("mail", WORKER))
        listener.get_sharded_message(timeout=5)
        assert reclaim(own, job) == ["lost_race:connection:0"]
        listener.close()
        assert reclaim(own, job, op="second") == ["requeued:worker_gone:1"]

    @pytest.mark.parametrize("reason", ["worker_gone", "worker_dead"])
    def test_a_worker_that_has_beaten_since_keeps_its_job(self, own, reason):
        lease = own.held("one")
        own.queue.heartbeat(WORKER, [])
        job = condemned(lease, own, reason=reason)
        own.client.zincrby(keys.workers("mail"), 1, WORKER)
        assert reclaim(own, job) == ["lost_race:worker:0"]

    def test_a_worker_whose_record_is_back_keeps_its_job(self, own):
        lease = own.held("one")
        own.queue.heartbeat(WORKER, [])
        job = condemned(lease, own, reason="worker_dead")
        own.client.hset(keys.worker("mail", WORKER), "since", 1)
        assert reclaim(own, job) == ["lost_race:worker:0"]

    @pytest.mark.parametrize(
        ("grace", "answer"), [(0, "requeued:deadline_passed:1"), (3_600_000, "lost_race:deadline:0")]
    )
    def test_a_deadline_counts_only_with_its_grace_and_whatever_the_heartbeat_says(self, own, grace, answer):
        lease = own.held("one", expected=0.001)
        own.client.hset(keys.job("mail", "one"), "expected_by", int(own.job("one")["expected_by"]) - 10)
        job = condemned(lease, own, reason="deadline_passed")
        lease.heartbeat()
        assert reclaim(own, job, deadline_grace_ms=grace) == [answer]

    def test_the_old_worker_is_told_over_its_control_channel(self, own):
        lease = own.held("one")
        listener = own.client.pubsub()
        listener.ssubscribe(keys.control("mail", WORKER))
        listener.get_sharded_message(timeout=5)
        reclaim(own, condemned(lease, own))
        assert lease.token in listener.get_sharded_message(timeout=5)["data"]
        listener.close()

    def test_a_lease_without_lock_in_optimistic_mode_is_judged_without_one(self, own):
        own.put("one")
        lease = own.claim(terms=Terms(lock="none"))
        assert reclaim(own, condemned(lease, own, lock="none")) == ["requeued:lock_without_heartbeat:1"]


class TestPlacing:
    def test_from_the_second_rescue_on_it_backs_off_twice_as_long_each_time(self, own):
        own.put("one")
        waits = []
        for nth in range(1, 5):
            lease = own.claim()
            now = own.client.time()
            (answer,) = reclaim(own, condemned(lease, own), op=f"op{nth}", max_rescues=9)
            due = own.client.zscore(keys.scheduled("mail"), "one")
            if due is None:
                assert answer == "requeued:lock_without_heartbeat:1"
                continue
            assert answer == f"scheduled:lock_without_heartbeat:{nth}"
            waits.append(round(due / 1000 - now[0] - now[1] / 1e6))
            own.client.zadd(keys.scheduled("mail"), {"one": 1})
        assert waits == [1, 2, 4]

    def test_the_rescue_after_the_last_allowed_makes_it_a_dead_letter_with_its_evidence(self, own):
        own.put("one")
        for nth in range(4):
            own.client.zadd(keys.scheduled("mail"), {"one": 1}, xx=True)
            lease = own.claim()
            (answer,) = reclaim(own, condemned(lease, own, evidence=f'{{"nth":{nth}}}'), op=f"op{nth}")
        assert answer == "dead_lettered:max_rescues:4"
        body = own.job("one")
        assert (body["state"], body["cause"], body["rescues"]) == ("dead", "max_rescues", "4")
        assert (body["last_reason"], body["last_evidence"]) == ("lock_without_heartbeat", '{"nth":3}')
        assert (own.stats()["rescued"], own.stats()["dead"]) == (4, 1)
        own.in_one_place_each()

    def test_debris_of_a_job_that_is_elsewhere_is_removed_and_the_job_untouched(self, own):
        lease = own.held("one")
        job = condemned(lease, own)
        lease.complete()
        own.client.zadd(keys.active("mail"), {"one": 1})
        before = own.job("one")
        assert reclaim(own, job) == ["debris:done:0"]
        assert own.job("one") == before
        own.in_one_place_each()

    @pytest.mark.parametrize("body", ["gone", "wrong type", "without payload"])
    def test_an_id_in_flight_without_a_usable_body_goes_to_quarantine(self, own, body):
        lease = own.held("one")
        job = condemned(lease, own)
        own.client.delete(keys.job("mail", "one"))
        if body == "wrong type":
            own.client.set(keys.job("mail", "one"), "x")
        if body == "without payload":
            own.client.hset(keys.job("mail", "one"), "state", "active")
        assert reclaim(own, job) == ["quarantined:body:0"]
        assert own.client.zcard(keys.active("mail")) == 0
        assert own.client.lrange(keys.quarantine("mail"), 0, -1) == ["one"]

    def test_each_of_many_has_its_own_answer_and_one_damaged_key_stops_only_its_own(self, own):
        leases = [own.held(f"job{n}", worker=f"host:{n}:0123abc{n}") for n in range(4)]
        jobs = [condemned(lease, own) for lease in leases]
        leases[1].complete()
        own.client.delete(keys.held("mail", leases[2].worker))
        own.client.set(keys.held("mail", leases[2].worker), "x")
        assert reclaim(own, *jobs) == [
            "requeued:lock_without_heartbeat:1",
            "lost_race:state:0",
            "lost_race:wrong_type:0",
            "requeued:lock_without_heartbeat:1",
        ]
        own.in_one_place_each()

    def test_more_than_a_hundred_in_one_call_are_refused(self, own):
        lease = own.held("one")
        with pytest.raises(Refused):
            reclaim(own, *[condemned(lease, own)] * 101)


class TestFence:
    def test_a_lower_epoch_is_refused_by_reclaim_and_publish_and_a_higher_one_raises_the_fence(self, own):
        lease = own.held("one")
        job = condemned(lease, own)
        own.call("publish_pacing", 2000, 15_000, "")
        before = own.everything()
        with pytest.raises(Deposed, match="epoch 2000"):
            reclaim(own, job, epoch=1999)
        with pytest.raises(Deposed):
            own.call("publish_pacing", 1999, 15_000, "")
        assert own.everything() == before
        assert reclaim(own, job, epoch=2001) == ["requeued:lock_without_heartbeat:1"]
        assert own.client.get(keys.fence("mail")) == "2001"

    def test_a_reclaim_that_moves_nothing_raises_the_fence_too(self, own):
        lease = own.held("one")
        job = condemned(lease, own)
        lease.complete()
        reclaim(own, job, epoch=5000)
        with pytest.raises(Deposed):
            reclaim(own, job, epoch=4999, op="other")

    def test_what_is_published_lives_as_long_as_it_says_and_is_numbered(self, own):
        assert own.call("publish_pacing", 7, 15_000, 30_000, "interval_ms", 250)[0] == 1
        assert own.call("publish_pacing", 7, 15_000, 30_000, "interval_ms", 300)[0] == 2
        told = own.client.hgetall(keys.pacing("mail"))
        assert (told["interval_ms"], told["seq"], told["epoch"], told["ttl_ms"]) == ("300", "2", "7", "15000")
        assert 0 < own.client.pttl(keys.pacing("mail")) <= 15_000
        assert own.queue.register(WORKER, control=False) == 30_000

    def test_for_a_foreign_queue_it_publishes_under_its_own_tag_only(self, own):
        tag = keys.tag("rq", "de{f}ault")
        scripts.run(own.client, "publish_pacing", keys.meta(tag), 7, 15_000, "", "interval_ms", 250)
        assert sorted(own.client.keys("*")) == [keys.fence(tag), keys.pacing(tag)]


class TestLeader:
    def elect(self, own, owner="a", lease=10_000):
        return own.call("elect_leader", owner, lease, "digest", key=keys.LEADER)

    def test_the_first_takes_it_with_an_epoch_of_now_and_others_follow(self, own):
        kind, epoch, until, owner, digest, now, how = self.elect(own)
        assert (kind, owner, digest, how) == ("leader", "a", "digest", "taken")
        assert epoch >= now - 1000
        assert until == now + 10_000
        assert self.elect(own, "b")[:2] == ["follower", epoch]

    def test_a_renewal_keeps_the_epoch_and_a_lapse_takes_a_higher_one(self, own):
        first = self.elect(own)
        renewed = self.elect(own)
        assert (renewed[1], renewed[6]) == (first[1], "renewed")
        own.client.hset(keys.LEADER, "until_ms", 1)
        other = self.elect(own, "b")
        assert (other[0], other[6]) == ("leader", "taken")
        assert other[1] > first[1]

    def test_the_own_lapsed_lease_is_taken_anew_not_renewed(self, own):
        first = self.elect(own)
        own.client.hset(keys.LEADER, "until_ms", 1)
        again = self.elect(own)
        assert again[6] == "taken"
        assert again[1] > first[1]

    def test_an_epoch_never_goes_back_although_the_clock_does(self, own):
        own.client.hset(keys.LEADER, mapping={"owner": "a", "epoch": 9 * 10**14, "until_ms": 1})
        assert self.elect(own, "b")[1] == 9 * 10**14 + 1

    def test_resigning_frees_only_the_own_lease_and_keeps_the_epoch(self, own):
        epoch = self.elect(own)[1]
        assert own.call("resign_leader", "b", epoch, key=keys.LEADER) == 0
        assert own.call("resign_leader", "a", epoch - 1, key=keys.LEADER) == 0
        assert self.elect(own, "b")[0] == "follower"
        assert own.call("resign_leader", "a", epoch, key=keys.LEADER) == 1
        assert own.call("resign_leader", "a", epoch, key=keys.LEADER) == 1
        assert self.elect(own, "b")[1] > epoch


class TestWorkersList:
    def test_a_worker_that_still_holds_a_job_stays_on_the_list(self, own):
        own.queue.register(WORKER, control=True)
        lease = own.held("one")
        assert own.queue.leave(WORKER, ["0"]) is False
        lease.complete()
        assert own.queue.leave(WORKER, ["0"]) is True
        assert own.client.zcard(keys.workers("mail")) == 0
        assert own.client.hgetall(keys.ops("mail")) == {}

    def test_only_silent_workers_that_hold_nothing_are_forgotten(self, own):
        own.held("one", worker=OTHER)
        own.queue.register(WORKER, control=False)
        own.client.zadd(keys.workers("mail"), {WORKER: 1, OTHER: 1, "host:3:00000000": 10**13})
        names = [WORKER, OTHER, "host:3:00000000"]
        assert own.call("purge_workers", 600_000, 3, *names, f"{WORKER}:0c", f"{OTHER}:0c") == 1
        assert own.client.zrange(keys.workers("mail"), 0, -1) == [OTHER, "host:3:00000000"]
        assert own.client.hkeys(keys.ops("mail")) == [f"{OTHER}:0c"]
