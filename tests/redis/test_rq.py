"""Partial deaths, names that are reused, and RQ's own cleaner beside ours."""

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import redis
import rq
from rq.registry import StartedJobRegistry

from conformance.benches.rq import ISO, RQBench
from conformance.benches.rq_states import everything, fly, kinds, lease_of, look, reclaim, reclaim_all
from support.processes import Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.model import Action, Presence, Reason

CLEANER = "rq:clean_registries:mail"


@pytest.fixture
def bench(redis_server: RedisServer, processes: Processes) -> Iterator[RQBench]:
    bench = RQBench(redis_server, processes)
    yield bench
    bench.client.close()


# ── partial deaths ──


def test_a_horse_that_outlives_its_killed_parent_is_left_to_finish(bench: RQBench) -> None:
    (job,) = bench.enqueue()
    name, worker = bench.start_worker()
    bench.wait_until_running(job)
    worker.kill()  # the parent alone
    assert bench.listeners(name) == 1  # its horse holds the connection
    bench.age_lease(lease_of(bench, job), 600.0)
    lease = lease_of(bench, job)
    assert lease.connection is Presence.PRESENT
    assert "work horse" in lease.exempt
    assert not lease.proven
    answer = reclaim(bench, lease)
    assert (answer.action, answer.cause) == (Action.LOST_RACE, "connection")
    bench.let_end(job)
    bench.wait_until_done(job)
    assert bench.counts(job) == (1, 1)


def test_a_killed_horse_is_the_parents_business(bench: RQBench) -> None:
    (job,) = bench.enqueue()
    _, worker = bench.start_worker()
    bench.wait_until_running(job)
    lease = lease_of(bench, job)
    (horse,) = [member for member in worker.family() if member.pid != worker.pid]
    os.kill(horse.pid, signal.SIGKILL)
    wait_until(lambda: bench.status(job) == "failed" and not bench.members(job), why="RQ has failed the job")
    assert look(bench).leases == ()
    assert reclaim(bench, lease, reason=Reason.WORKER_GONE).action is Action.LOST_RACE
    assert bench.places(job) == ["dead"]


def test_a_simple_worker_is_silent_during_its_job_and_its_threshold_says_so(bench: RQBench) -> None:
    (job,) = bench.enqueue(job_timeout=300)
    _, worker = bench.start_worker("--kind", "SimpleWorker")
    bench.wait_until_running(job)
    lease = lease_of(bench, job)
    assert lease.threshold == pytest.approx(360, abs=2)
    worker.kill_tree()
    wait_until(lambda: lease_of(bench, job).connection is Presence.ABSENT, why="its connection is gone")
    assert reclaim(bench, lease_of(bench, job), reason=Reason.WORKER_GONE).action is Action.REQUEUED
    assert bench.places(job) == ["pending"]


def test_the_threshold_is_never_below_rqs_own_lease_and_may_be_longer(bench: RQBench) -> None:
    fly(bench)
    assert look(bench, stuck_after=1.0).leases[0].threshold == 90.0
    assert look(bench, stuck_after=500.0).leases[0].threshold == 500.0


def test_a_job_killed_before_its_start_was_written_is_put_back(bench: RQBench) -> None:
    lease = fly(bench)
    bench.client.hset(f"rq:job:{lease.job}", "status", "queued")
    assert not lease_of(bench, lease.job).exempt
    assert reclaim(bench, lease_of(bench, lease.job)).action is Action.REQUEUED
    assert bench.places(lease.job) == ["pending"]


# ── names are reused ──


def test_a_new_worker_of_the_same_name_keeps_no_old_job_alive(bench: RQBench) -> None:
    bench.start_worker(
        name="web", queues=[bench.busy]
    )  # not here: it would take the job, and the old lease at its start
    lease = fly(bench, worker="web")
    for name in ("birth", "last_heartbeat"):
        bench.client.hset("rq:worker:web", name, datetime.now(UTC).strftime(ISO))
    now = lease_of(bench, lease.job)
    assert now.heartbeat == lease.heartbeat
    assert (now.record, now.exempt) == (Presence.ABSENT, "")
    assert now.connection is Presence.UNKNOWN  # the one subscription is the new worker's
    assert reclaim(bench, now, reason=Reason.WORKER_DEAD).action is Action.REQUEUED


def test_a_lease_that_its_idle_worker_forgot_is_reclaimable(bench: RQBench) -> None:
    name, _ = bench.start_worker(queues=[bench.busy])
    lease = fly(bench, worker=name)
    now = lease_of(bench, lease.job)
    assert (now.record, now.connection, now.exempt) == (Presence.PRESENT, Presence.UNKNOWN, "")
    assert reclaim(bench, now, reason=Reason.WORKER_DEAD).cause == "worker"
    assert reclaim(bench, now).action is Action.REQUEUED


# ── RQ's own cleaner ──


def test_a_queue_that_rqs_cleaner_works_on_is_skipped(bench: RQBench) -> None:
    lease = fly(bench)
    bench.rq.acquire_maintenance_lock()
    before = everything(bench)
    answer = reclaim(bench, lease)
    assert (answer.action, answer.cause) == (Action.SKIPPED, "library_cleaner_active")
    after = everything(bench)
    after.pop(b"unstuck:{rq/mail}:fence")
    assert after == before
    bench.rq.release_maintenance_lock()
    assert reclaim(bench, lease).action is Action.REQUEUED


def test_the_cleaners_lock_is_held_during_the_act_and_given_back(bench: RQBench, redis_server: RedisServer) -> None:
    lease = fly(bench)
    with redis.Redis.from_url(redis_server.url).monitor() as monitor:
        reclaim(bench, lease)
        bench.client.set("end", 1)
        seen = []
        for entry in monitor.listen():
            if entry["command"].startswith("SET end"):
                break
            seen.append(entry["command"])
    ours = [command for command in seen if CLEANER in command and not command.startswith("EVALSHA")]
    assert any(command.startswith(f"SET {CLEANER} unstuck:") and command.endswith("PX 10000") for command in ours)
    assert ours[-1] == f"DEL {CLEANER}"
    assert not bench.client.exists(CLEANER)


def test_rqs_cleaner_after_ours_finds_nothing_to_do(bench: RQBench) -> None:
    lease = fly(bench)
    assert reclaim(bench, lease).action is Action.REQUEUED
    StartedJobRegistry(queue=bench.rq).cleanup()
    assert bench.places(lease.job) == ["pending"]
    assert bench.status(lease.job) == "queued"
    bench.let_end(lease.job)
    bench.start_worker()  # runs RQ's maintenance first
    bench.wait_until_done(lease.job)
    assert bench.counts(lease.job) == (1, 1)


def test_a_job_that_rqs_cleaner_was_faster_with_is_left_alone(bench: RQBench) -> None:
    retried, failed = fly(bench, retry=rq.Retry(max=2)), fly(bench)
    StartedJobRegistry(queue=bench.rq).cleanup()
    answers = reclaim_all(bench.adapter, bench, [retried, failed])
    assert [answer.action for answer in answers] == [Action.LOST_RACE] * 2
    assert bench.places(retried.job) == ["pending"]
    assert bench.places(failed.job) == ["dead"]


def test_a_lease_left_over_by_a_finished_job_goes_without_touching_the_job(bench: RQBench) -> None:
    lease = fly(bench)
    bench.client.hset(f"rq:job:{lease.job}", "status", "finished")
    lease = lease_of(bench, lease.job)
    assert "debris" in kinds(bench)
    assert (lease.exempt, lease.proven) == ("", "")
    answer = reclaim(bench, lease)
    assert (answer.action, answer.cause, answer.rescues) == (Action.LOCK_RELEASED, "debris", 0)
    assert bench.places(lease.job) == []
    assert bench.status(lease.job) == "finished"
    assert "debris" not in kinds(bench)
    assert reclaim(bench, lease).action is Action.LOST_RACE


def test_a_job_that_was_ended_while_it_runs_keeps_its_lease(bench: RQBench) -> None:
    (job,) = bench.enqueue()
    _, worker = bench.start_worker()
    bench.wait_until_running(job)
    bench.client.hset(f"rq:job:{job}", "status", "canceled")
    worker.freeze()
    answer = reclaim(bench, lease_of(bench, job), reason=Reason.LOCK_WITHOUT_HEARTBEAT)
    assert (answer.action, answer.cause) == (Action.LOST_RACE, "state")
    assert len(bench.members(job)) == 1
    assert "debris" not in kinds(bench)
    worker.thaw()
