"""Every adapter must pass this: real states, made by the system's own client and by workers that are really killed."""

import secrets
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from conformance.bench import Bench
from conformance.benches.rq import RQBench
from conformance.benches.unstuck import UnstuckBench
from support.processes import Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.errors import Deposed
from unstuck.model import Action, Authority, Condemned, Lease, Lock, Presence, QueueSnapshot, Reason
from unstuck.queue import Limits

BENCHES: dict[str, Callable[[RedisServer, Processes], Bench]] = {"unstuck": UnstuckBench, "rq": RQBench}


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest, redis_server: RedisServer, processes: Processes) -> Bench:
    return BENCHES[request.param](redis_server, processes)


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(redis_server.url)
    yield client
    client.close()


def look(bench: Bench, queue: str | None = None) -> QueueSnapshot:
    (snapshot,) = bench.adapter.look({queue or bench.queue: bench.limits})
    return snapshot


def lease_of(bench: Bench, job: str) -> Lease:
    (snapshot,) = bench.adapter.look({bench.queue: bench.closest})
    return next(lease for lease in snapshot.leases if lease.job == job)


def stored(bench: Bench, client: redis.Redis) -> dict[bytes, bytes]:
    """Everything in Redis but the notes that a reclaim may always take."""
    return {key: client.dump(key) for key in client.scan_iter() if key not in bench.notes}


def condemned(lease: Lease, reason: Reason = Reason.WORKER_GONE) -> Condemned:
    return Condemned(
        job=lease.job,
        worker=lease.worker,
        token=lease.token,
        heartbeat=lease.heartbeat,
        lock=lease.lock,
        reason=reason,
        threshold=lease.threshold,
        owner_beat=lease.owner_beat,
        evidence=lease.evidence,
    )


def authority(client: redis.Redis, epoch: int = 1000) -> Authority:
    info = client.info()
    return Authority(f"test-{secrets.token_hex(4)}", epoch, info["run_id"], info["master_replid"])


def reclaim(bench: Bench, client: redis.Redis, *leases: Lease, max_rescues: int = 3, epoch: int = 1000):
    return bench.adapter.reclaim(
        bench.queue,
        [condemned(lease) for lease in leases],
        Limits(max_rescues=max_rescues),
        authority(client, epoch),
    )


def killed_in_flight(bench: Bench) -> Lease:
    """Return the lease of a job whose worker was killed with all its processes while the job ran."""
    (job,) = bench.enqueue()
    _, worker = bench.start_worker()
    bench.wait_until_running(job)
    worker.kill_tree()
    return wait_until(
        lambda: next((one for one in look(bench).leases if one.job == job and one.connection is Presence.ABSENT), None),
        why="the connection is seen to be gone",
    )


def test_a_queue_that_does_not_exist_is_all_zeros(bench: Bench) -> None:
    snapshot = look(bench, "nowhere")
    assert (snapshot.backend, snapshot.queue) == (bench.adapter.backend, "nowhere")
    assert (snapshot.waiting, snapshot.scheduled, snapshot.running, snapshot.dead, snapshot.live_workers) == (0,) * 5
    assert snapshot.leases == snapshot.side_findings == ()
    assert snapshot.oldest_waiting is None
    assert not snapshot.error
    assert list(bench.adapter.discover()) == []


def test_waiting_jobs_are_counted_and_the_oldest_gives_the_age(bench: Bench) -> None:
    bench.enqueue(count=3, age=120.0)
    snapshot = look(bench)
    assert snapshot.waiting == 3
    assert snapshot.oldest_waiting == pytest.approx(120, abs=5)
    assert list(bench.adapter.discover()) == [bench.queue]
    assert "no_worker" in {finding.kind for finding in snapshot.side_findings}


def test_scheduled_and_dead_jobs_are_counted_apart(bench: Bench) -> None:
    bench.bury()
    bench.schedule(3600.0)
    snapshot = look(bench)
    assert (snapshot.waiting, snapshot.scheduled, snapshot.running, snapshot.dead) == (0, 1, 0, 1)
    assert snapshot.next_due_ms is not None
    assert snapshot.next_due_ms - snapshot.server_ms == pytest.approx(3_600_000, abs=10_000)


def test_a_job_in_flight_has_a_lease_with_its_evidence(bench: Bench) -> None:
    (job,) = bench.enqueue()
    name, _ = bench.start_worker()
    bench.wait_until_running(job)
    snapshot = look(bench)
    assert (snapshot.waiting, snapshot.running) == (0, 1)
    assert snapshot.complete is bench.lists_everything
    assert len(snapshot.leases) == (1 if bench.lists_everything else 0)  # a healthy lease
    assert snapshot.workers["busy"] == snapshot.live_workers == 1
    lease = lease_of(bench, job)
    assert (lease.job, lease.worker) == (job, name)
    assert lease.token
    assert lease.heartbeat
    assert lease.lock is Lock.HELD
    assert (lease.record, lease.connection) == (Presence.PRESENT, Presence.PRESENT)
    assert lease.running is not None
    assert 0 <= lease.running < 30
    assert lease.threshold >= bench.adapter.least_stuck_after
    assert not lease.exempt
    assert not lease.proven
    assert snapshot.side_findings == ()


def test_an_idle_worker_is_live_and_a_killed_one_is_not(bench: Bench) -> None:
    _, worker = bench.start_worker()
    assert look(bench).live_workers == 1
    worker.kill_tree()
    wait_until(lambda: look(bench).live_workers == 0, why="the killed worker is counted no more")


def test_the_heartbeat_of_a_live_worker_changes_and_that_of_a_killed_one_stays(bench: Bench) -> None:
    (job,) = bench.enqueue()
    _, worker = bench.start_worker()
    bench.wait_until_running(job)
    before = lease_of(bench, job).heartbeat
    wait_until(lambda: lease_of(bench, job).heartbeat != before, 3 * bench.beats_every + 2, "it beats")
    worker.kill_tree()
    dead = lease_of(bench, job).heartbeat
    until = time.monotonic() + 2.2 * bench.beats_every
    with pytest.raises(AssertionError):
        wait_until(lambda: lease_of(bench, job).heartbeat != dead, until - time.monotonic())


def test_the_connection_of_a_killed_worker_is_seen_to_be_gone(bench: Bench) -> None:
    lease = killed_in_flight(bench)
    assert not lease.exempt
    assert lease.proven


def test_a_look_writes_nothing(bench: Bench, client: redis.Redis) -> None:
    killed_in_flight(bench)
    bench.enqueue(count=2)
    bench.schedule(600.0)
    bench.break_a_key(bench.busy)
    before = {key: client.dump(key) for key in client.scan_iter()}
    client.config_resetstat()
    bench.adapter.discover()
    bench.adapter.look({bench.queue: Limits(), bench.busy: Limits()})
    used = [name.removeprefix("cmdstat_").split("|")[0] for name in client.info("commandstats")]
    assert {key: client.dump(key) for key in client.scan_iter()} == before
    told = client.execute_command("COMMAND", "INFO", *used)
    assert [name for name, _, flags, *_ in told if {"write", b"write"} & set(flags)] == []


def test_a_reclaimed_job_runs_to_its_end_with_a_fresh_worker(bench: Bench, client: redis.Redis) -> None:
    lease = killed_in_flight(bench)
    bench.enqueue()
    (answer,) = reclaim(bench, client, lease)
    assert (answer.job, answer.action, answer.rescues) == (lease.job, Action.REQUEUED, 1)
    assert bench.places(lease.job) == ["pending"]
    assert look(bench).running == 0
    bench.start_worker()
    bench.wait_until_running(lease.job)  # before the one that had waited: it is taken next
    assert look(bench).waiting == 1
    bench.let_end(lease.job)
    bench.wait_until_done(lease.job)
    assert bench.counts(lease.job) == (2, 1)


def test_a_second_reclaim_of_the_same_lease_changes_nothing(bench: Bench, client: redis.Redis) -> None:
    lease = killed_in_flight(bench)
    reclaim(bench, client, lease)
    before = stored(bench, client)
    (answer,) = reclaim(bench, client, lease)
    assert answer.action is Action.LOST_RACE
    assert answer.cause
    assert stored(bench, client) == before


def test_a_job_that_ended_after_the_look_is_left_alone(bench: Bench, client: redis.Redis) -> None:
    (job,) = bench.enqueue()
    bench.start_worker()
    bench.wait_until_running(job)
    lease = lease_of(bench, job)
    bench.let_end(job)
    bench.wait_until_done(job)
    (answer,) = reclaim(bench, client, lease)
    assert answer.action is Action.LOST_RACE
    assert bench.counts(job) == (1, 1)
    assert "pending" not in bench.places(job)


def test_a_job_whose_worker_has_beaten_after_the_look_is_left_alone(bench: Bench, client: redis.Redis) -> None:
    (job,) = bench.enqueue()
    _, worker = bench.start_worker()
    bench.wait_until_running(job)
    lease = lease_of(bench, job)
    wait_until(lambda: lease_of(bench, job).heartbeat != lease.heartbeat, 3 * bench.beats_every + 2, "it beats")
    worker.kill_tree()
    (answer,) = reclaim(bench, client, lease)
    assert (answer.action, answer.cause) == (Action.LOST_RACE, "heartbeat")
    assert bench.places(job) == ["active"]


def test_a_job_whose_worker_is_connected_is_left_alone(bench: Bench, client: redis.Redis) -> None:
    (job,) = bench.enqueue()
    _, worker = bench.start_worker()
    bench.wait_until_running(job)
    worker.freeze()  # its beat stands still, its connection is open
    (answer,) = reclaim(bench, client, lease_of(bench, job))
    assert (answer.action, answer.cause) == (Action.LOST_RACE, "connection")
    assert bench.places(job) == ["active"]
    worker.thaw()


def test_a_run_id_of_another_server_moves_nothing(bench: Bench, client: redis.Redis) -> None:
    lease = killed_in_flight(bench)
    right = authority(client)
    for wrong in (
        Authority(right.owner, right.epoch, "0" * 40, right.replication_id),
        Authority(right.owner, right.epoch, right.run_id, "0" * 40),
    ):
        (answer,) = bench.adapter.reclaim(bench.queue, [condemned(lease)], Limits(), wrong)
        assert answer.action is Action.LOST_RACE
    assert bench.places(lease.job) == ["active"]


def test_a_deposed_leader_moves_nothing(bench: Bench, client: redis.Redis) -> None:
    lease = killed_in_flight(bench)
    other = Lease(job="no-such-job", worker=lease.worker, token=lease.token, heartbeat=lease.heartbeat)
    (answer,) = reclaim(bench, client, other, epoch=2000)  # the successor has touched this queue
    assert answer.action is Action.LOST_RACE
    with pytest.raises(Deposed):
        reclaim(bench, client, lease, epoch=1999)
    assert bench.places(lease.job) == ["active"]
    (answer,) = reclaim(bench, client, lease, epoch=2001)
    assert answer.action is Action.REQUEUED


def test_a_job_past_its_rescues_is_dead_lettered(bench: Bench, client: redis.Redis) -> None:
    lease = killed_in_flight(bench)
    (answer,) = reclaim(bench, client, lease, max_rescues=0)
    assert (answer.action, answer.rescues) == (Action.DEAD_LETTERED, 1)
    assert bench.places(lease.job) == ["dead"]
    assert look(bench).dead == 1


def test_each_rescue_counts_and_the_one_after_the_last_is_the_end(bench: Bench, client: redis.Redis) -> None:
    (job,) = bench.enqueue()
    actions = []
    for _ in range(3):
        _, worker = bench.start_worker()
        bench.wait_until_running(job)
        worker.kill_tree()
        wait_until(lambda: lease_of(bench, job).connection is Presence.ABSENT, why="the connection is gone")
        (answer,) = reclaim(bench, client, lease_of(bench, job), max_rescues=2)
        actions.append((answer.action, answer.rescues))
    assert actions == [(Action.REQUEUED, 1), (Action.REQUEUED, 2), (Action.DEAD_LETTERED, 3)]
    assert bench.places(job) == ["dead"]


def test_a_key_of_the_wrong_type_stops_no_other_queue(bench: Bench) -> None:
    key = bench.break_a_key(bench.busy)
    bench.enqueue(count=2)
    broken, good = bench.adapter.look({bench.busy: Limits(), bench.queue: Limits()})
    assert (good.queue, good.waiting) == (bench.queue, 2)
    assert key in broken.error + "".join(finding.detail for finding in broken.side_findings)


def test_a_lease_whose_times_ran_out_is_proven_stuck_and_reclaimable(bench: Bench, client: redis.Redis) -> None:
    lease = killed_in_flight(bench)
    bench.age_lease(lease, 600.0)
    old = lease_of(bench, lease.job)
    assert old.lock is Lock.MISSING
    assert old.proven
    assert not old.exempt
    (answer,) = bench.adapter.reclaim(bench.queue, [condemned(old, Reason.LOCK_EXPIRED)], Limits(), authority(client))
    assert answer.action is Action.REQUEUED


def test_more_than_a_hundred_at_once_are_refused(bench: Bench, client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="100"):
        reclaim(bench, client, *[Lease(job=f"job-{i}", token="t", heartbeat="1|") for i in range(101)])
    assert list(reclaim(bench, client)) == []
