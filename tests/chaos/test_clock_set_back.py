"""What a clock of Redis that was set back by an hour leaves behind must not be waited for: three cases of `redis clock -1 h`."""

import time
from typing import Any

import pytest

from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.clock import ManualClock, SystemClock
from unstuck.duties.electing import Election
from unstuck.gate import Gate
from unstuck.model import Action, Authority, Condemned, Lock, Reason, ServerSnapshot
from unstuck.protocol import Lease, Queue, keys
from unstuck.queue import Limits
from unstuck.queues.unstuck import UnstuckAdapter

HOUR_MS = 3_600_000


@pytest.fixture
def client(redis_server: RedisServer) -> Any:
    return redis_server.client()


def test_a_standby_leads_soon_although_the_lease_of_a_dead_leader_ends_in_an_hour(client: Any) -> None:
    Election(client, ManualClock(), lease=0.5, digest="d", owner="dead").attempt()
    client.hincrby(keys.LEADER, "until_ms", HOUR_MS)
    standby = Election(client, SystemClock(), lease=0.5, digest="d", owner="standby")
    begun = time.monotonic()
    wait_until(lambda: standby.attempt().leading, 5, "the standby leads")
    assert time.monotonic() - begun >= 0.4, "the lease of a leader that may be alive is granted once more"


def test_a_living_leader_keeps_its_lease_when_the_clock_is_set_back(client: Any) -> None:
    leader = Election(client, SystemClock(), lease=5.0, digest="d", owner="leader")
    epoch = leader.attempt().epoch
    client.hincrby(keys.LEADER, "until_ms", HOUR_MS)
    assert not Election(client, SystemClock(), lease=0.1, digest="d", owner="standby").attempt().leading
    time.sleep(0.15)  # the standby's own lease is no measure for that of another
    assert not Election(client, SystemClock(), lease=0.1, digest="d", owner="standby").attempt().leading
    assert (leader.attempt().leading, leader.standing.epoch) == (True, epoch)


def test_a_job_whose_last_beat_lies_in_the_future_is_seen_and_can_be_reclaimed(client: Any) -> None:
    queue = Queue(client, "mail")
    queue.enqueue({}, id="job-1")
    taken = queue.claim("host:1:00000000", "0")
    assert isinstance(taken, Lease)
    client.hincrby(keys.job("mail", "job-1"), "heartbeat_at", HOUR_MS)
    client.zincrby(keys.active("mail"), HOUR_MS, "job-1")
    client.delete(keys.lock("mail", "job-1"))
    adapter = UnstuckAdapter(client, client)
    (snapshot,) = adapter.look({"mail": Limits()})
    (lease,) = snapshot.leases
    assert lease.heartbeat_age is None, "no stored age: only watching counts"
    assert not lease.proven
    judged = Condemned(
        lease.job, lease.worker, lease.token, lease.heartbeat, Lock.MISSING, Reason.LOCK_EXPIRED, lease.threshold
    )
    info = client.info()
    authority = Authority("agent", 1000, info["run_id"], info["master_replid"])
    (answer,) = adapter.reclaim("mail", [judged], Limits(), authority)
    assert answer.action is Action.REQUEUED


def test_a_beat_that_is_a_little_ahead_is_a_fresh_one(client: Any) -> None:
    queue = Queue(client, "mail")
    queue.enqueue({}, id="job-1")
    queue.claim("host:1:00000000", "0")
    client.zincrby(keys.active("mail"), 5_000, "job-1")
    (snapshot,) = UnstuckAdapter(client, client).look({"mail": Limits()})
    assert snapshot.leases == ()


def test_a_server_whose_uptime_is_negative_is_not_young() -> None:
    server = ServerSnapshot("run", "replication", "master", "7.0.15", 1_000_000, uptime=-1800.0)
    gate = Gate(window=30.0, interval=2.0)
    for second in range(0, 40, 2):
        gate = gate.assess(
            ServerSnapshot(
                server.run_id, server.replication_id, "master", "7.0.15", 1_000_000 + second * 1000, -1800.0 + second
            ),
            100.0 + second,
        )
    assert gate.state.open, gate.state
