"""Caches that stay true: who may write, what is served, what the stamp decides, and what is counted."""

import threading

import pytest
import redis

from support.own_queue import OTHER, WORKER, OwnQueue
from support.waiting import wait_until
from unstuck.connections import Connections
from unstuck.errors import InvalidName, Refused, StampMoved
from unstuck.protocol import BatchCache, InvalidationListener, JobCache, LocalCache, Queue, keys


@pytest.fixture
def own(redis_client):
    return OwnQueue(redis_client)


@pytest.fixture
def jobs(own):
    with JobCache(own.queue) as cache:
        yield cache


@pytest.fixture
def batch(own):
    with BatchCache(own.queue) as cache:
        yield cache


def end_a_job(own: OwnQueue, job: str = "ended") -> None:
    own.held(job).complete()


def told(cache) -> dict[str, int]:
    cache.close()
    stats = OwnQueue(cache.queue.client).stats()
    return {name: stats.get(f"cache_{name}", 0) for name in ("hits", "misses", "stale")}


# -- metadata of a job ---------------------------------------------------------------------------------------------------


def test_the_holder_writes_and_anybody_reads(own, jobs):
    lease = own.held("a")
    assert jobs.write(lease.id, lease.token, {"step": 3, "of": 7}, ttl=60)
    assert jobs.write(lease.id, lease.token, {"step": 4})
    assert jobs.read("a") == {"step": "4", "of": "7"}
    assert 59_000 < own.client.pttl(keys.cache("mail", "a")) <= 60_000


@pytest.mark.parametrize("end", ["complete", "fail", "release", "reclaim"])
def test_whatever_ends_the_attempt_deletes_its_entry_and_refuses_its_later_writes(own, jobs, end):
    from support.own_queue import authority, condemned

    lease = own.held("a")
    jobs.write(lease.id, lease.token, {"step": 1})
    match end:
        case "complete":
            lease.complete()
        case "fail":
            lease.fail("no")
        case "release":
            lease.release()
        case "reclaim":
            own.call("reclaim_jobs", *authority(own), *condemned(lease, own))
    assert jobs.read("a") is None
    before = own.everything(without=("stats",))
    refused = own.stats().get("refused", 0)
    assert not jobs.write(lease.id, lease.token, {"step": 2})
    assert own.everything(without=("stats",)) == before
    assert own.stats()["refused"] == refused + 1


def test_an_attempt_that_lost_its_job_cannot_write_into_the_next_ones_entry(own, jobs):
    first = own.held("a")
    first.release()
    second = own.claim(OTHER)
    jobs.write("a", second.token, {"by": "second"})
    assert not jobs.write("a", first.token, {"by": "first"})
    assert jobs.read("a") == {"by": "second"}


@pytest.mark.parametrize(
    ("fields", "ttl", "refusal"),
    [({}, 60, Refused), ({"x": "y" * 65_537}, 60, Refused), ({"x": 1}, 0, Refused), ({"x": 1}, float("nan"), Refused)],
)
def test_a_write_that_cannot_be_meant_is_refused(own, jobs, fields, ttl, refusal):
    lease = own.held("a")
    with pytest.raises(refusal):
        jobs.write(lease.id, lease.token, fields, ttl)
    assert jobs.read("a") is None


def test_reads_are_counted_in_the_stats_of_the_queue(own, jobs):
    lease = own.held("a")
    jobs.read("a")
    jobs.write(lease.id, lease.token, {"step": 1})
    for _ in range(5):
        jobs.read("a")
    assert told(jobs) == {"hits": 5, "misses": 1, "stale": 0}


def test_counts_that_redis_would_not_take_are_told_later(own, jobs):
    own.client.hset(keys.stats("mail"), "cache_misses", "damaged")
    jobs.read("a")
    own.client.hdel(keys.stats("mail"), "cache_misses")
    assert told(jobs) == {"hits": 0, "misses": 1, "stale": 0}


# -- values computed from a queue --------------------------------------------------------------------------------------------


def test_a_value_is_computed_once_and_served_until_a_job_ends(own, batch):
    calls = []

    def compute():
        calls.append(1)
        return {"jobs": len(calls)}

    assert [batch.get_or_compute("report", compute) for _ in range(3)] == [{"jobs": 1}] * 3
    end_a_job(own)
    assert batch.get_or_compute("report", compute) == {"jobs": 2}
    assert batch.get_or_compute("report", compute) == {"jobs": 2}
    assert told(batch) == {"hits": 3, "misses": 1, "stale": 1}


@pytest.mark.parametrize("end", ["complete", "fail", "release", "reclaim", "cancel", "by hand"])
def test_whatever_ends_an_attempt_makes_what_was_computed_before_stale(own, batch, end):
    from support.own_queue import authority, condemned

    lease = own.held("a")
    assert batch.get_or_compute("report", lambda: "old") == "old"
    before = batch.stamp()
    match end:
        case "complete":
            lease.complete()
        case "fail":
            lease.fail("no")
        case "release":
            lease.release()
        case "reclaim":
            own.call("reclaim_jobs", *authority(own), *condemned(lease, own))
        case "cancel":
            own.put("b")
            own.queue.cancel("b")
        case "by hand":
            assert batch.invalidate() == batch.stamp()
    assert batch.stamp() > before
    assert batch.get_or_compute("report", lambda: "new") == "new"


def test_a_value_computed_while_a_job_ended_is_neither_served_nor_stored(own, batch):
    seen = []

    def compute():
        seen.append(batch.stamp())
        if len(seen) == 1:
            end_a_job(own)  # between reading and storing
        return f"under {seen[-1]}"

    value = batch.get_or_compute("report", compute)
    assert value == f"under {batch.stamp()}"
    assert len(seen) == 2
    assert own.client.hget(keys.batch("mail", "report"), "stamp") == str(batch.stamp())


def test_a_slow_computation_never_covers_a_newer_value(own, batch, redis_server):
    """Two processes: the slow one began before a job ended, the quick one after."""
    slow = BatchCache(Queue(redis_server.client(), "mail"))
    began, go_on = threading.Event(), threading.Event()
    results = []

    def compute_slowly():
        first = not began.is_set()
        began.set()
        if first:
            assert go_on.wait(20)
        return "slow and old" if first else "slow, again"

    thread = threading.Thread(target=lambda: results.append(slow.get_or_compute("report", compute_slowly)))
    thread.start()
    assert began.wait(20)
    end_a_job(own)
    assert batch.get_or_compute("report", lambda: "quick and new") == "quick and new"
    go_on.set()
    thread.join(20)
    assert results == ["quick and new"]
    assert batch.get_or_compute("report", lambda: "not needed") == "quick and new"


def test_a_queue_that_never_rests_is_told_apart_and_the_last_value_handed_over(own, batch):
    runs = []

    def compute():
        runs.append(1)
        end_a_job(own, f"job{len(runs)}")
        return len(runs)

    with pytest.raises(StampMoved) as moved:
        batch.get_or_compute("report", compute, attempts=3)
    assert moved.value.value == 3
    assert not own.client.exists(keys.batch("mail", "report"))


def test_an_entry_that_is_no_json_is_computed_anew(own, batch):
    batch.get_or_compute("report", lambda: 1)
    own.client.hset(keys.batch("mail", "report"), "value", "{broken")
    assert batch.get_or_compute("report", lambda: 2) == 2


def test_a_stamp_that_was_lost_with_a_failover_makes_old_entries_stale(own, batch):
    end_a_job(own)
    batch.get_or_compute("report", lambda: "of a lost history")
    own.client.delete(keys.stamp("mail"))
    assert batch.get_or_compute("report", lambda: "anew") == "anew"


def test_a_full_redis_still_computes(make_redis):
    server = make_redis(maxmemory_policy="noeviction")
    own = OwnQueue(server.client())
    end_a_job(own)
    batch = BatchCache(own.queue)
    own.client.config_set("maxmemory", 1)
    assert batch.get_or_compute("report", lambda: 7) == 7
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        JobCache(own.queue).write("a", "1.x", {"step": 1})


def test_a_key_of_another_form_is_refused_before_anything_is_computed(batch):
    with pytest.raises(InvalidName, match="cache key"):
        batch.get_or_compute("no spaces", pytest.fail)


# -- listening -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def connections(redis_url):
    with Connections(redis_url, role="listener") as made:
        yield made


def in_step(listener: InvalidationListener, stamp: int) -> None:
    wait_until(lambda: listener.stamp == stamp, why=f"the listener knows the stamp {stamp}")


def test_a_listener_follows_the_stamp_and_hears_what_happened(own, batch, connections):
    heard = []
    with InvalidationListener(connections, "mail", heard=heard.append) as listener:
        wait_until(lambda: listener.stamp == 0, why="it is in step with a queue of which nothing has ended")
        end_a_job(own)
        in_step(listener, batch.stamp())
        wait_until(lambda: [(one.id, one.event) for one in heard] == [("ended", "completed")])
    assert own.stats().get("unheard", 0) == 0


def test_events_that_nobody_listens_to_are_counted(own):
    end_a_job(own)
    own.held("b").fail("no", permanent=True)
    own.held("c").release()
    own.queue.cancel("c")
    assert own.stats()["unheard"] == 4


def test_a_value_in_memory_is_served_without_redis_and_dropped_when_a_job_ends(own, connections):
    with (
        InvalidationListener(connections, "mail") as listener,
        BatchCache(own.queue, local=LocalCache(listener)) as batch,
    ):
        end_a_job(own, "first")
        in_step(listener, batch.stamp())
        assert batch.get_or_compute("report", lambda: 1) == 1
        own.client.delete(keys.batch("mail", "report"))  # only the memory can know it now
        assert batch.get_or_compute("report", lambda: 2) == 1
        end_a_job(own, "second")
        in_step(listener, batch.stamp())
        assert batch.get_or_compute("report", lambda: 3) == 3


def test_what_was_missed_while_the_connection_was_lost_leaves_no_stale_entry(own, connections, redis_server):
    resynchronised = []
    listener = InvalidationListener(connections, "mail", resynchronised=resynchronised.append, check_every=30.0)
    with listener, BatchCache(own.queue, local=LocalCache(listener)) as batch:
        end_a_job(own, "first")
        in_step(listener, batch.stamp())
        assert batch.get_or_compute("report", lambda: "old") == "old"
        subscriptions, resyncs = listener.subscriptions, listener.resyncs
        # One step for Redis: the subscription breaks, and a job ends before it can be made again.
        lease = own.held("second")
        pipe = redis_server.client().pipeline(transaction=True)
        pipe.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        from unstuck.protocol import scripts

        args = (WORKER, "0f", "op", lease.id, lease.token, 60_000, "")
        pipe.execute_command("EVAL", scripts.script("complete_job").text, 1, keys.meta("mail"), *args)
        assert pipe.execute()[1] == "completed"
        assert own.stats()["unheard"] >= 1
        wait_until(lambda: listener.subscriptions > subscriptions, why="it subscribed again")
        in_step(listener, batch.stamp())
        assert listener.resyncs > resyncs
        assert resynchronised[-1] == batch.stamp()
        assert batch.get_or_compute("report", lambda: "new") == "new"


def test_a_listener_that_cannot_reach_redis_knows_no_stamp_and_memory_serves_nothing(own, connections, redis_server):
    with InvalidationListener(connections, "mail", check_every=0.1) as listener:
        local = LocalCache(listener)
        end_a_job(own)
        stamp = int(own.client.get(keys.stamp("mail")))
        in_step(listener, stamp)
        local.put("report", "1", stamp)
        assert local.get("report") == "1"
        redis_server.freeze()  # no event, no answer, and the connection stays open
        wait_until(lambda: listener.stamp is None, why="it says that it is out of step")
        assert local.get("report") is None
        redis_server.thaw()
        in_step(listener, stamp)
        assert local.get("report") == "1"


def test_memory_is_bounded_and_an_old_value_never_covers_a_new_one(connections):
    local = LocalCache(InvalidationListener(connections, "mail"), size=2)
    local.put("a", "new", 5)
    local.put("a", "old", 4)
    assert local._entries["a"] == (5, "new")
    local.put("b", "1", 5)
    local.put("c", "1", 5)
    assert list(local._entries) == ["b", "c"]
