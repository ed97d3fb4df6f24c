"""Optimistic mode: completions compare versions, conflicts are counted; `transact` retries with jitter and gives up."""

import threading

import pytest

from support.own_queue import OTHER, OwnQueue
from support.worker_bench import WorkerBench
from unstuck.protocol import Terms, keys
from unstuck.protocol.optimistic import Conflict, transact

NO_LOCK = Terms(lock="none")


@pytest.fixture
def own(redis_client):
    return OwnQueue(redis_client)


class TestCompletion:
    def test_with_the_claimed_version_it_is_accepted(self, own):
        own.put("one")
        lease = own.claim(terms=NO_LOCK)
        assert own.queue.complete(lease, version=lease.version) == "completed"

    def test_with_another_version_it_is_a_conflict_is_counted_and_the_job_goes_back(self, own):
        own.put("one")
        lease = own.claim(terms=NO_LOCK)
        own.client.hincrby(keys.job("mail", "one"), "version", 1)
        assert own.queue.complete(lease, version=lease.version) == "conflict"
        assert own.stats()["conflicts"] == 1
        assert own.queue.release(lease, "conflict") == "released"
        own.in_one_place_each()

    def test_that_somebody_else_has_finished_it_is_a_conflict_not_a_refusal(self, own):
        own.put("one")
        lease = own.claim(terms=NO_LOCK)
        own.queue.release(lease, "test")
        own.queue.complete(own.claim(OTHER))
        assert own.queue.complete(lease, version=lease.version) == "conflict"
        assert own.stats()["conflicts"] == 1
        assert "refused" not in own.stats()
        assert own.places() == {"one": ["done"]}

    def test_a_worker_counts_a_conflict_and_tries_the_job_again(self, redis_server, processes):
        bench = WorkerBench(redis_server, processes)
        process = bench.worker("patient", "--lock", "optimistic")
        bench.put("one")
        bench.heard("began")
        assert bench.client.exists(keys.lock("mail", "one")) == 0
        bench.client.hincrby(keys.job("mail", "one"), "version", 1)
        bench.go("one")
        process.wait_for_output("WARNING conflict .*job=one")
        bench.heard("began", count=2)
        bench.go("one")
        assert bench.until_state("one", "done")["attempt"] == "2"


class TestTransact:
    def test_concurrent_changes_are_all_made(self, redis_client):
        def add(pipe):
            total = int(pipe.get("total") or 0)
            pipe.multi()
            pipe.set("total", total + 1)
            return total + 1

        def many():
            for _ in range(20):
                transact(redis_client, ["total"], add, retries=1000)

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert redis_client.get("total") == "80"

    def test_after_its_tries_it_raises_and_nothing_is_written(self, redis_client):
        lost, pauses = [], []

        def always_too_late(pipe):
            redis_client.incr("key")
            pipe.multi()
            pipe.set("written", "yes")

        with pytest.raises(Conflict, match="in each of 4 tries") as raised:
            transact(redis_client, ["key"], always_too_late, retries=3, on_conflict=lost.append, sleep=pauses.append)
        assert raised.value.tries == 4
        assert lost == [1, 2, 3, 4]
        assert redis_client.get("written") is None
        assert len(pauses) == 3
        assert all(0 <= pause <= 0.01 * 2**n for n, pause in enumerate(pauses))

    def test_an_error_of_the_function_is_its_own_and_nothing_is_repeated(self, redis_client):
        calls = []

        def broken(pipe):
            calls.append(1)
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            transact(redis_client, ["key"], broken)
        assert calls == [1]

    def test_watching_nothing_is_refused(self, redis_client):
        with pytest.raises(ValueError, match="name the keys"):
            transact(redis_client, [], lambda pipe: None)
