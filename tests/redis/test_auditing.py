"""The slow pass: what only a SCAN finds, at one percent of Redis' time, and what is put back where its state says."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from support.redis_server import RedisServer
from unstuck.clock import ManualClock, SystemClock
from unstuck.duties import auditing
from unstuck.duties.auditing import Auditor
from unstuck.errors import Deposed
from unstuck.protocol import Lease, Queue, keys

WORKER = "host:1:deadbeef"


def audit(client: Any) -> Auditor:
    auditor = Auditor(client, SystemClock(), lambda seconds: False)
    assert auditor.run()
    return auditor


def kinds(auditor: Auditor, queue: str = "mail") -> dict[str, int]:
    return {one.kind: one.count for one in auditor.findings.get(("unstuck", queue), ())}


def one_running(client: Any) -> tuple[Queue, Lease]:
    queue = Queue(client, "mail")
    queue.enqueue({"n": 1})
    lease = queue.claim(WORKER, "0")
    assert isinstance(lease, Lease)
    return queue, lease


def test_a_healthy_queue_has_no_findings(redis_client: Any) -> None:
    queue, lease = one_running(redis_client)
    for n in range(300):
        queue.enqueue({"n": n})
    queue.enqueue({"later": True}, delay=60)
    queue.cancel(queue.enqueue({"never": True}).id)
    assert kinds(audit(redis_client)) == {}
    lease.complete()
    assert kinds(audit(redis_client)) == {}


def test_a_lock_without_expiry_and_a_lock_of_nobody_are_found(redis_client: Any) -> None:
    _queue, lease = one_running(redis_client)
    redis_client.persist(keys.lock("mail", lease.id))
    redis_client.set(keys.lock("mail", "nobody"), "1.0123456789abcdef", px=60_000)
    auditor = audit(redis_client)
    assert kinds(auditor) == {"lock_without_expiry": 1, "orphan_lock": 1}
    assert auditor.without_expiry == {("unstuck", "mail"): 1}


def test_a_key_of_the_wrong_type_is_found_and_does_not_stop_the_pass(redis_client: Any) -> None:
    one_running(redis_client)
    redis_client.rpush(keys.job("mail", "bad"), "x")
    redis_client.set(keys.held("mail", "w"), "x")
    assert kinds(audit(redis_client)) == {"wrong_type": 2}


def test_a_running_job_that_its_index_has_lost_is_found_and_put_back_to_be_judged(redis_client: Any) -> None:
    _queue, lease = one_running(redis_client)
    redis_client.zrem(keys.active("mail"), lease.id)
    auditor = audit(redis_client)
    assert kinds(auditor) == {"orphan_body": 1}
    beat = int(redis_client.hget(keys.job("mail", lease.id), "heartbeat_at"))
    assert auditing.restore(redis_client, 1, auditor.orphans) == 1
    assert redis_client.zscore(keys.active("mail"), lease.id) == beat
    assert auditing.restore(redis_client, 1, auditor.orphans) == 0
    lease.complete()


def test_a_waiting_job_that_its_list_has_lost_is_put_back_once(redis_client: Any) -> None:
    queue = Queue(redis_client, "mail")
    kept = [queue.enqueue({"n": n}).id for n in range(50)]
    lost = queue.enqueue({"n": "lost"}).id
    redis_client.lrem(keys.pending("mail"), 0, lost)
    auditor = audit(redis_client)
    assert auditor.orphans == {"mail": [lost]}
    assert auditing.restore(redis_client, 1, auditor.orphans) == 1
    assert sorted(redis_client.lrange(keys.pending("mail"), 0, -1)) == sorted([*kept, lost])
    assert kinds(audit(redis_client)) == {}


def test_a_job_that_moved_while_the_pass_went_on_is_no_finding(redis_client: Any) -> None:
    queue = Queue(redis_client, "mail")
    job = queue.enqueue({"n": 1}).id
    taken: list[Any] = []

    def rest(_seconds: float) -> bool:
        if not taken:
            taken.append(queue.claim(WORKER, "0"))
        return False

    auditor = Auditor(redis_client, SystemClock(), rest)
    assert auditor.run()
    assert taken[0].id == job
    assert kinds(auditor) == {}


def test_a_restore_under_an_old_epoch_is_refused(redis_client: Any) -> None:
    _queue, lease = one_running(redis_client)
    redis_client.zrem(keys.active("mail"), lease.id)
    redis_client.set(keys.fence("mail"), 7)
    orphans = {"mail": [lease.id]}
    with pytest.raises(Deposed):
        auditing.restore(redis_client, 6, orphans)
    assert redis_client.zscore(keys.active("mail"), lease.id) is None


def test_locks_of_other_systems_that_never_expire_are_found(redis_client: Any) -> None:
    redis_client.set("unacked_mutex", "x")
    redis_client.set("autoclaim:group:stream", "x")
    redis_client.set("rq:clean_registries:mail", "1", ex=899)
    auditor = audit(redis_client)
    assert set(auditor.findings) == {("celery", "default"), ("taskiq", "group:stream")}


def test_it_rests_ninety_nine_times_as_long_as_it_asked(make_redis: Callable[..., RedisServer]) -> None:
    server = make_redis()
    client = redis.Redis.from_url(server.url)
    client.mset({f"other:{n}": "x" for n in range(1000)})
    clock, rests = ManualClock(), []

    class Timed:
        """The client, on a clock that moves by 10 ms with every page."""

        def scan(self, *args: Any, **options: Any) -> Any:
            clock.advance(0.010)
            return client.scan(*args, **options)

    def rest(seconds: float) -> bool:
        rests.append(seconds)
        return False

    assert Auditor(Timed(), clock, rest).run()  # type: ignore[arg-type]
    scans = [seconds for seconds in rests if seconds > 0]
    assert len(scans) >= 3
    assert all(abs(seconds - 0.99) < 1e-6 for seconds in scans)
    client.close()
