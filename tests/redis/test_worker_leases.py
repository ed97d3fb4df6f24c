"""A worker and its leases: kept, lost, given up in time, cancelled; real processes, really killed and frozen."""

import signal

import pytest

from support.redis_server import RedisServer
from support.waiting import wait_until
from support.worker_bench import WorkerBench
from unstuck.protocol import keys


@pytest.fixture
def bench(redis_server, processes):
    return WorkerBench(redis_server, processes)


@pytest.fixture
def apart(make_redis, redis_server, processes):
    """The queue's server may go away; the handlers speak to another one."""
    return WorkerBench(make_redis(appendonly=True, appendfsync="always"), processes, told=redis_server)


class TestKept:
    def test_a_lock_that_vanished_is_set_again_by_the_next_heartbeat_and_the_completion_is_accepted(self, bench):
        bench.worker("patient")
        bench.put("one")
        token = bench.heard("began")["token"]
        assert bench.client.delete(keys.lock(bench.name, "one")) == 1
        wait_until(lambda: bench.client.get(keys.lock(bench.name, "one")) == token, why="the lock is set again")
        bench.go("one")
        bench.until_state("one", "done")
        assert bench.words() == ["began", "ended"]

    def test_heartbeats_renew_index_lock_and_record_while_a_job_runs(self, bench):
        process = bench.worker("patient")
        bench.put("one")
        bench.heard("began")
        first = bench.job("one")["heartbeat_at"]
        wait_until(lambda: bench.job("one")["heartbeat_at"] > first, why="a heartbeat was stored")
        assert bench.client.zscore(keys.active(bench.name), "one") > float(first)
        assert bench.client.pttl(keys.lock(bench.name, "one")) > 4000
        bench.until_control(bench.name_of(process))
        record = bench.record(bench.name_of(process))
        assert {"concurrency", "version", "host", "pid", "applied_ms", "wake", "lock", "heartbeat_lag_ms"} <= set(
            record
        )

    def test_progress_goes_with_the_heartbeat_and_is_stored(self, bench):
        bench.worker("patient")
        bench.put("one")
        bench.heard("began")
        bench.go("one")
        bench.heard("ended")
        wait_until(lambda: bench.stats().get("completed") == 1, why="it is completed")

    def test_a_worker_frozen_for_less_than_it_takes_to_be_judged_goes_on_with_its_job(self, bench):
        process = bench.worker("patient")
        bench.put("one")
        bench.heard("began")
        process.freeze()
        bench.client.delete(keys.lock(bench.name, "one"), keys.worker(bench.name, bench.name_of(process)))
        process.thaw()
        process.wait_for_output("registered_again")
        bench.go("one")
        bench.until_state("one", "done")
        assert bench.job("one")["attempt"] == "1"

    def test_heartbeats_survive_a_full_memory_and_the_job_completes(self, make_redis, redis_server, processes):
        bench = WorkerBench(make_redis(), processes, told=redis_server)
        bench.worker("patient")
        bench.put("one")
        bench.heard("began")
        bench.client.config_set("maxmemory", 1)
        before = bench.job("one")["heartbeat_at"]
        wait_until(lambda: bench.job("one")["heartbeat_at"] > before, why="a heartbeat was stored with memory full")
        bench.go("one")
        bench.until_state("one", "done")

    def test_a_worker_that_starts_while_memory_is_full_drains_the_queue(self, make_redis, redis_server, processes):
        bench = WorkerBench(make_redis(), processes, told=redis_server)
        for n in range(3):
            bench.put(f"job{n}")
        bench.client.delete(keys.QUEUES)
        bench.client.config_set("maxmemory", 1)
        bench.worker("quick")
        bench.heard("ran", count=3)
        wait_until(lambda: bench.stats().get("completed") == 3, why="all are completed")


class TestLost:
    @pytest.mark.parametrize("isolate", ["thread", "process"])
    def test_a_reclaimed_attempt_is_told_every_call_raises_and_the_next_attempt_runs(self, bench, isolate):
        bench.worker("patient", "--isolate", isolate)
        bench.put("one")
        first = bench.heard("began")["token"]
        assert bench.take_away("one").startswith("requeued")
        told = bench.heard("LeaseLost")
        assert told["calls"] == ["LeaseLost"] * 3
        bench.heard("called_back")
        second = bench.heard("began", count=2)["token"]
        assert second.startswith("2.")
        assert first != second
        bench.go("one")
        bench.until_state("one", "done")
        assert bench.job("one")["token"] == second

    def test_a_handler_that_ends_before_it_is_told_has_its_completion_refused(self, bench):
        process = bench.worker("deaf")
        bench.put("one")
        bench.heard("began")
        # Freeze the worker, so that neither heartbeat nor control channel can tell it.
        process.freeze()
        bench.take_away("one")
        bench.client.delete(keys.pending(bench.name))  # the next attempt is another test's business
        bench.go("one")
        process.thaw()
        bench.heard("ended")
        wait_until(
            lambda: bench.stats().get("refused") == 1 or "WARNING lost" in process.stderr, why="it is refused or told"
        )
        assert bench.stats().get("completed", 0) == 0
        assert bench.job("one")["state"] == "pending"

    def test_with_interrupt_even_code_that_never_asks_is_ended(self, bench):
        bench.worker("spinning", "--interrupt")
        bench.put("one")
        bench.heard("began")
        bench.take_away("one")
        assert (
            bench.heard("interrupted")["kind"] == "LeaseLost"
        )  # although a cancel comes over the control channel first
        bench.heard("began", count=2)

    def test_with_interrupt_a_handler_whose_finalizer_swallowed_the_exception_is_interrupted_again(self, bench):
        bench.worker("stubborn", "--interrupt")
        bench.put("one")
        bench.heard("began")
        bench.take_away("one")
        bench.heard("interrupted")
        bench.heard("began", count=2)

    def test_a_child_process_that_holds_the_interpreter_keeps_its_heartbeat_and_is_killed_when_lost(self, bench):
        process = bench.worker("greedy", "--isolate", "process")
        bench.put("one")
        first = bench.heard("began")
        before = bench.job("one")["heartbeat_at"]
        wait_until(lambda: bench.job("one")["heartbeat_at"] > before, why="the heartbeat goes on")
        bench.take_away("one")
        process.wait_for_output("child_killed .*job=one")
        second = bench.heard("began", count=2)
        assert second["pid"] != first["pid"]
        assert first["pid"] not in {one.pid for one in process.family()}


class TestAborted:
    def test_an_attempt_that_cannot_be_renewed_is_given_up_in_time_and_released_when_redis_is_back(self, apart):
        process = apart.worker("patient", "--abort-after", "1s", "--redis-timeout", "300ms")
        apart.put("one")
        apart.heard("began")
        apart.server.freeze()
        told = apart.heard("LeaseLost")
        assert told["calls"] == ["LeaseLost"] * 3
        process.wait_for_output(r"WARNING aborted .*job=one .*abort_after 1 s")
        apart.server.thaw()
        apart.heard("began", count=2)
        body = apart.job("one")
        assert (body["attempt"], body["failures"], body["rescues"]) == ("2", "0", "0")
        assert apart.stats()["released"] == 1
        assert [e["cause"] for e in apart.events() if e["event"] == "released"] == ["abort"]

    def test_a_release_that_comes_too_late_is_refused_and_the_worker_goes_on(self, apart):
        process = apart.worker("patient", "--abort-after", "1s", "--redis-timeout", "300ms")
        apart.put("one")
        apart.heard("began")
        process.freeze()
        apart.take_away("one")
        apart.server.freeze()
        process.thaw()
        # The reclaim's message may have come through, or only the silence of the server is noticed.
        process.wait_for_output(r"(aborted|cancelled) .*job=one")
        apart.server.thaw()
        apart.heard("began", count=2)
        assert apart.job("one")["attempt"] == "2"
        assert apart.job("one")["rescues"] == "1"

    def test_a_finished_handler_is_reported_across_an_outage_longer_than_the_abort_time(self, apart):
        process = apart.worker("patient", "--abort-after", "1500ms", "--redis-timeout", "300ms")
        apart.put("one")
        apart.heard("began")
        apart.server.freeze()
        apart.go("one")
        process.wait_for_output("completion_failed .*job=one")
        process.wait_for_output(r"heartbeat_failed .*Redis at redis://")
        apart.server.thaw()
        apart.until_state("one", "done")
        assert apart.words() == ["began", "ended"]
        assert apart.job("one")["attempt"] == "1"

    def test_a_redis_that_restarts_in_the_middle_of_a_job_changes_nothing(self, apart):
        apart.worker("patient")
        apart.put("one")
        apart.heard("began")
        apart.server.restart()
        apart.go("one")
        wait_until(lambda: _state(apart.server, apart.name, "one") == "done", 20, "the job is done")
        assert apart.words() == ["began", "ended"]


class TestCancelled:
    @pytest.mark.parametrize("isolate", ["thread", "process"])
    def test_a_cancelled_job_is_told_over_the_control_channel_and_buried(self, bench, isolate):
        # A heartbeat every ten seconds: it is the channel that brings the word.
        process = bench.worker("patient", "--isolate", isolate, *SLOW, fast=False)
        bench.until_control(bench.name_of(process))
        bench.put("one")
        bench.heard("began")
        assert bench.queue.cancel("one") == "told"
        assert bench.heard("Cancelled")["calls"] == ["Cancelled", "", ""]
        assert bench.until_state("one", "dead")["cause"] == "cancelled"
        assert bench.stats()["failed" if "failed" in bench.stats() else "released"] == 1

    def test_a_message_for_an_older_attempt_touches_nobody(self, bench):
        process = bench.worker("patient")
        bench.until_control(bench.name_of(process))
        bench.put("one")
        bench.heard("began")
        channel = keys.control(bench.name, bench.name_of(process))
        for message in ('{"cancel":"one","token":"1.0000000000000000"}', "{", '["one"]', '{"cancel":"one"}', "\x00"):
            bench.client.execute_command("SPUBLISH", channel, message)
        process.wait_for_output(r"cancel_ignored job=one .*token=1\.0000000000000000")
        process.wait_for_output("control_unreadable")
        bench.go("one")
        bench.until_state("one", "done")

    def test_a_child_that_does_not_heed_a_cancel_is_ended(self, bench):
        process = bench.worker("deaf", "--isolate", "process")
        bench.put("one")
        bench.heard("began")
        bench.queue.cancel("one")
        process.wait_for_output("child_killed .*job=one")
        assert bench.until_state("one", "dead")["cause"] == "cancelled"
        bench.put("two")
        bench.heard("began", "two")


class TestControlChannel:
    def test_a_killed_process_takes_its_subscription_with_it_although_a_child_lives_on(self, bench):
        process = bench.worker("with_a_child")
        worker = bench.name_of(process)
        bench.until_control(worker)
        bench.put("one")
        bench.heard("began")
        process.kill()
        assert process.family(), "the handler's child lives on"
        wait_until(lambda: not bench.subscribed(worker), 5, "the subscription is gone")

    def test_a_killed_process_takes_its_warm_children_with_it(self, bench):
        process = bench.worker("patient", "--isolate", "process")
        worker = bench.name_of(process)
        bench.until_control(worker)
        bench.put("one")
        bench.heard("began")
        process.kill()
        wait_until(lambda: not bench.subscribed(worker), 5, "the subscription is gone")
        wait_until(lambda: not process.family(), 5, "its children are gone")

    def test_clients_that_are_all_killed_come_back_and_no_job_is_lost(self, bench):
        process = bench.worker("patient", "--concurrency", "2")
        worker = bench.name_of(process)
        bench.until_control(worker)
        bench.put("one")
        bench.heard("began")
        bench.client.execute_command("CLIENT", "KILL", "SKIPME", "yes")
        process.wait_for_output("control_lost")
        bench.until_control(worker)
        bench.go("one")
        bench.until_state("one", "done")
        assert bench.words() == ["began", "ended"]

    def test_without_its_control_channel_a_worker_says_so_and_beats_every_second(self, make_redis, processes):
        server = make_redis()
        admin = server.client()
        # A user that may do all but subscribe.
        admin.execute_command("ACL", "SETUSER", "nosub", "on", ">pw", "~*", "&*", "+@all", "-ssubscribe")
        bench = WorkerBench(server, processes)
        process = processes.unstuck(
            "worker",
            "mail",
            "support.handlers:quick",
            "--redis",
            f"redis://nosub:pw@127.0.0.1:{server.port}/0",
            env={"HANDLER_REDIS": server.url},
        )
        worker = bench.name_of(process)
        process.wait_for_output("control_lost .*reason=noperm")
        score = bench.client.zscore(keys.workers("mail"), worker)
        # The interval is five seconds; three beats within it come from the missing channel.
        for _ in range(3):
            before, score = score, None
            score = wait_until(
                lambda before=before: (now := bench.client.zscore(keys.workers("mail"), worker)) > before and now,
                4,
                "the next beat came early",
            )
        assert bench.record(worker)["control"] == "0"


SLOW = ("--heartbeat-interval", "6s", "--abort-after", "20s")


def _state(server: RedisServer, queue: str, job: str):
    return server.client().hget(keys.job(queue, job), "state")


def test_sigkill_leaves_the_job_active_with_its_evidence(bench):
    process = bench.worker("patient")
    bench.put("one")
    bench.heard("began")
    process.send(signal.SIGKILL)
    process.wait()
    body = bench.job("one")
    assert body["state"] == "active"
    assert body["worker"] == bench.name_of(process)
    assert bench.client.smembers(keys.held(bench.name, body["worker"])) == {"one"}
