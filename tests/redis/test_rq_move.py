"""What a reclaim writes into RQ, and when it refuses to."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
import redis
import rq
from rq.job import Job
from rq.registry import FailedJobRegistry

from conformance.benches.rq import RQBench
from conformance.benches.rq_states import everything, fly, kinds, lease_of, look, reclaim, reclaim_all, take
from support.processes import Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.model import Action, Lock, Presence, Reason, Reclaimed
from unstuck.queue import Limits
from unstuck.queues.rq import RQAdapter


@pytest.fixture
def bench(redis_server: RedisServer, processes: Processes) -> Iterator[RQBench]:
    bench = RQBench(redis_server, processes)
    yield bench
    bench.client.close()


# ── the move ──


def test_a_requeue_is_written_as_rq_writes_it(bench: RQBench) -> None:
    lease = fly(bench, retry=rq.Retry(max=2), ttl=3600)
    assert reclaim(bench, lease).rescues == 1
    job = Job.fetch(lease.job, connection=bench.client)
    assert job.is_queued
    assert (job.started_at, job.ended_at, job.worker_name, job.retries_left) == (None, None, None, 1)
    assert abs((datetime.now(UTC) - job.enqueued_at).total_seconds()) < 30
    assert 3590 <= bench.client.ttl(f"rq:job:{job.id}") <= 3600
    assert not bench.client.exists(f"rq:executions:{job.id}", f"rq:execution:{job.id}:{lease.token}")
    assert bench.client.smembers("rq:worker:ghost:executions") == set()
    ((_, event),) = bench.client.xrange("unstuck:{rq/mail}:events")
    assert event == {
        b"event": b"requeued", b"job": job.id.encode(), b"worker": b"ghost", b"token": lease.token.encode(),
        b"cause": b"lock_expired", b"rescues": b"1",
    }  # fmt: skip
    assert 71 * 3600 < bench.client.ttl("unstuck:{rq/mail}:rescues") <= 72 * 3600


def test_a_job_without_retries_is_put_back_too(bench: RQBench) -> None:
    lease = fly(bench)
    assert reclaim(bench, lease).action is Action.REQUEUED
    assert bench.client.hget(f"rq:job:{lease.job}", "retries_left") is None


def test_a_dead_lettered_job_is_shown_by_rqs_own_tools_and_can_be_retried_there(bench: RQBench) -> None:
    lease = fly(bench)
    assert reclaim(bench, lease, max_rescues=0).action is Action.DEAD_LETTERED
    registry = FailedJobRegistry(queue=bench.rq)
    assert registry.get_job_ids() == [lease.job]
    job = Job.fetch(lease.job, connection=bench.client)
    assert job.is_failed
    result = job.latest_result()
    assert result is not None
    assert result.type is result.Type.FAILED
    assert "lock_expired" in result.exc_string
    assert "ghost" in result.exc_string
    year = 365 * 86_400
    assert bench.client.zscore("rq:failed:mail", job.id) == pytest.approx(datetime.now(UTC).timestamp() + year, abs=60)
    assert bench.client.ttl(f"rq:job:{job.id}") == pytest.approx(year, abs=60)
    registry.requeue(job.id)
    bench.let_end(job.id)
    bench.start_worker()
    bench.wait_until_done(job.id)
    assert bench.counts(job.id) == (1, 1)


def test_the_failure_ttl_of_a_job_is_kept(bench: RQBench) -> None:
    lease = fly(bench, failure_ttl=500)
    reclaim(bench, lease, max_rescues=0)
    assert bench.client.ttl(f"rq:job:{lease.job}") == pytest.approx(500, abs=5)
    assert bench.client.ttl(f"rq:results:{lease.job}") == pytest.approx(500, abs=5)
    lease = fly(bench, failure_ttl=0)  # "delete it at once": the evidence stays for a day
    reclaim(bench, lease, max_rescues=0)
    assert bench.client.ttl(f"rq:job:{lease.job}") == pytest.approx(86_400, abs=5)


def test_two_agents_at_once_move_each_job_once(bench: RQBench, redis_server: RedisServer) -> None:
    leases = [fly(bench) for _ in range(50)]
    adapters = [RQAdapter(redis.Redis.from_url(redis_server.url)) for _ in range(3)]
    answers: list[list[Reclaimed]] = []
    threads = [
        threading.Thread(target=lambda adapter=adapter: answers.append(reclaim_all(adapter, bench, leases)))
        for adapter in adapters
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one.action is Action.REQUEUED for each in answers for one in each) == 50
    assert sorted(bench.client.lrange("rq:queue:mail", 0, -1)) == sorted(one.job.encode() for one in leases)
    assert set(bench.client.hvals("unstuck:{rq/mail}:rescues")) == {b"1"}


def test_a_job_with_two_executions_runs_once_more_at_most(bench: RQBench) -> None:
    first = fly(bench)
    take(bench, first.job, "phantom")
    assert "duplicate" in kinds(bench)
    answers = reclaim_all(bench.adapter, bench, list(look(bench).leases))
    assert sorted(answer.action for answer in answers) == [Action.LOCK_RELEASED, Action.REQUEUED]
    assert bench.places(first.job) == ["pending"]


def test_a_job_that_is_waiting_again_loses_only_its_old_lease(bench: RQBench) -> None:
    lease = fly(bench)
    with bench.client.pipeline() as pipe:
        pipe.rpush("rq:queue:mail", lease.job)
        pipe.hset(f"rq:job:{lease.job}", "status", "queued")
        pipe.execute()
    assert "duplicate" in kinds(bench)
    assert reclaim(bench, lease_of(bench, lease.job)).action is Action.LOCK_RELEASED
    assert bench.places(lease.job) == ["pending"]


# ── refusals ──


def test_a_rate_limited_job_is_exempt_and_refused(bench: RQBench) -> None:
    lease = fly(bench)
    bench.client.hset(f"rq:job:{lease.job}", "rate_limit_key", "api")
    assert "rate limit" in lease_of(bench, lease.job).exempt
    answer = reclaim(bench, lease)
    assert (answer.action, answer.cause) == (Action.SKIPPED, "rate_limited")
    assert bench.places(lease.job) == ["active"]


def test_suspended_workers_mean_a_paused_queue_that_is_not_touched(bench: RQBench) -> None:
    lease = fly(bench)
    bench.client.set("rq:suspended", 1)
    assert look(bench).paused
    answer = reclaim(bench, lease)
    assert (answer.action, answer.cause) == (Action.SKIPPED, "paused")
    assert bench.places(lease.job) == ["active"]


@pytest.mark.parametrize(
    "key",
    ["rq:queue:mail", "rq:failed:mail", "rq:queue:mail:intermediate", "rq:worker:ghost:executions",
     "unstuck:{rq/mail}:rescues", "unstuck:{rq/mail}:events", "unstuck:{rq/mail}:fence"],
)  # fmt: skip
def test_a_wrong_type_anywhere_refuses_before_the_first_write(bench: RQBench, key: str) -> None:
    lease = fly(bench)
    bench.client.delete(key)
    bench.client.pfadd(key, "x") if key != "unstuck:{rq/mail}:fence" else bench.client.lpush(key, "x")
    if key == "rq:worker:ghost:executions":
        assert look(bench).running == 1
    before = everything(bench)
    answer = reclaim(bench, lease)
    assert (answer.action, answer.cause) == (Action.SKIPPED, "wrong_type")
    after = everything(bench)
    after.pop(b"unstuck:{rq/mail}:fence")
    before.pop(b"unstuck:{rq/mail}:fence", None)
    assert after == before


def test_a_count_that_is_no_number_refuses_before_the_first_write(bench: RQBench) -> None:
    lease = fly(bench)
    bench.client.hset("unstuck:{rq/mail}:rescues", lease.job, "many")
    assert reclaim(bench, lease).cause == "wrong_type"
    assert bench.places(lease.job) == ["active"]


def test_a_lease_that_still_runs_is_not_taken_for_an_expired_one(bench: RQBench) -> None:
    lease = fly(bench, silent=0.0)
    assert lease.lock is Lock.HELD
    assert reclaim(bench, lease).cause == "lock"
    assert reclaim(bench, lease, reason=Reason.WORKER_GONE).action is Action.REQUEUED


def test_a_worker_that_came_back_between_look_and_reclaim_refuses(bench: RQBench) -> None:
    lease = fly(bench)
    with bench.client.pubsub() as listener:
        listener.subscribe("rq:pubsub:ghost")
        listener.get_message(timeout=5)
        assert reclaim(bench, lease).cause == "connection"
    wait_until(lambda: not bench.listeners("ghost"))
    bench.client.client_setname("ghost")
    assert reclaim(bench, lease).cause == "connection"
    bench.client.client_setname("")
    assert reclaim(bench, lease).action is Action.REQUEUED


def test_a_full_redis_refuses_and_the_job_stays(make_redis: Callable[..., RedisServer], processes: Processes) -> None:
    bench = RQBench(make_redis(maxmemory="20mb"), processes)
    lease = fly(bench)
    bench.client.config_set("maxmemory", "1mb")
    answer = reclaim(bench, lease)
    assert (answer.action, answer.cause) == (Action.SKIPPED, "oom")
    assert bench.places(lease.job) == ["active"]
    bench.client.config_set("maxmemory", "20mb")
    assert reclaim(bench, lease).action is Action.REQUEUED


def test_without_the_right_to_client_list_absence_is_not_claimed(
    make_redis: Callable[..., RedisServer], processes: Processes
) -> None:
    bench = RQBench(make_redis(), processes)
    lease = fly(bench)
    assert lease.connection is Presence.ABSENT
    bench.client.execute_command("ACL", "SETUSER", "agent", "on", ">secret", "~*", "&*", "+@all", "-client|list")
    url = bench.url.replace("redis://", "redis://agent:secret@")
    adapter = RQAdapter(redis.Redis.from_url(url))
    (snapshot,) = adapter.look({bench.queue: Limits()})
    (seen,) = snapshot.leases
    assert seen.connection is Presence.UNKNOWN
    assert seen.evidence["client_name"] == "unknown"
    assert not snapshot.error
    assert reclaim_all(adapter, bench, [seen])[0].action is Action.REQUEUED
