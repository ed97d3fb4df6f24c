"""The sweeper over real adapters: one system that refuses does not blind it for the others; a queue that stalls is told of."""

from typing import Any

import redis

from support.redis_server import RedisServer
from unstuck.adapters import adapters_for
from unstuck.clock import ManualClock
from unstuck.config import load
from unstuck.duties.sweeping import NOTHING_FINISHES_AFTER_SECONDS, Sweeper
from unstuck.protocol import Lease, Queue


def sweeper(url: str, clock: ManualClock) -> Sweeper:
    settings = load(None, {}, {"redis": url})
    client = redis.Redis.from_url(url)
    return Sweeper(settings, adapters_for(settings, client, client), client, clock, exchanged=lambda _op, _s: None)


def test_a_registry_of_the_wrong_type_blinds_it_for_that_system_only(
    redis_server: RedisServer, redis_client: Any
) -> None:
    redis_client.sadd("rq:queues", "rq:queue:letters")
    redis_client.set("unstuck:queues", "not a set")
    swept = sweeper(redis_server.url, ManualClock()).sweep()
    assert set(swept.unread) == {"unstuck"}
    assert [judged.place for judged in swept.queues] == [("rq", "letters")]


def test_work_that_runs_while_nothing_finishes_is_told_of_after_ten_minutes(
    redis_server: RedisServer, redis_client: Any
) -> None:
    queue, clock = Queue(redis_client, "mail"), ManualClock()
    queue.enqueue({"n": 1})
    lease = queue.claim("host:1:deadbeef", "0")
    assert isinstance(lease, Lease)
    watcher = sweeper(redis_server.url, clock)

    def kinds() -> list[str]:
        # The clock runs alone here, so the gate distrusts it; what is tested is the counting.
        watcher.gate = watcher.gate.restarted_watch(clock.monotonic())
        (judged,) = watcher.sweep().queues
        return [finding.kind for finding in judged.snapshot.side_findings if finding.kind == "nothing_finishes"]

    assert kinds() == []
    clock.advance(NOTHING_FINISHES_AFTER_SECONDS - 1)
    assert kinds() == []
    clock.advance(2)
    assert kinds() == ["nothing_finishes"]
    lease.complete()
    clock.advance(2)
    assert kinds() == []


def test_a_killed_worker_does_not_count_as_live_once_its_subscription_is_gone(
    redis_server: RedisServer, redis_client: Any
) -> None:
    queue = Queue(redis_client, "mail")
    queue.register("host:1:deadbeef", control=True)
    queue.register("host:2:deadbeef", control=False)
    (judged,) = sweeper(redis_server.url, ManualClock()).sweep().queues
    assert judged.snapshot.workers == {"busy": 0, "idle": 1, "lost": 1}


def test_queues_that_come_and_go_leave_nothing_behind_even_if_an_outage_lies_between(
    redis_server: RedisServer, redis_client: Any
) -> None:
    clock = ManualClock()
    watcher = sweeper(redis_server.url, clock)
    for number in range(3):
        Queue(redis_client, f"tenant-{number}").enqueue({})
        clock.advance(10)
        assert [judged.place for judged in watcher.sweep().queues] == [("unstuck", f"tenant-{number}")]
        watcher.failed(redis.ConnectionError("gone"))
        redis_client.flushall()
    places = {place for known in vars(watcher).values() if isinstance(known, dict) for place in known}
    assert places == {("unstuck", "tenant-2")}
