"""The wire is cut at every exchange of every operation, before the request or before the reply: C85.

Whatever was lost, each job is there exactly once, what was done was done once, and who asks again (redis-py by itself, or
the caller with the same operation id) is told the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from conformance.benches.rq import RQBench
from conformance.benches.rq_states import fly
from support.cutproxy import Cut, CutProxy
from support.own_queue import OTHER, WORKER, OwnQueue
from support.processes import Processes
from support.redis_server import RedisServer
from unstuck.clock import ManualClock
from unstuck.connections import Connections
from unstuck.duties.electing import Election
from unstuck.duties.telling import write_streams
from unstuck.model import Action, Authority, Condemned, Event, Lock, Reason
from unstuck.protocol import Claim, Lease, Queue, Terms, keys, scripts
from unstuck.protocol.together import Handed, complete_and_claim
from unstuck.queue import Limits
from unstuck.queues.rq import RQAdapter
from unstuck.queues.unstuck import UnstuckAdapter

TERMS = Terms()
CUTS: list[Cut] = ["request", "reply"]
MOST_EXCHANGES = 40


@dataclass
class Scene:
    """Redis itself, seen without the proxy, and an operation on it through the proxy."""

    own: OwnQueue
    connections: Connections

    @property
    def queue(self) -> Queue:
        """A new client, so that what it does first is cut as well."""
        return Queue(self.connections.scripting(), self.own.name)

    def again(self, lease: Lease) -> Lease:
        """The same attempt, to be ended through the proxy."""
        lease.queue = self.queue
        return lease

    def authority(self, epoch: int = 1_000) -> Authority:
        return Authority("agent", epoch, self.own.run_id(), self.own.replication_id())


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[CutProxy]:
    proxy = CutProxy(redis_server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def own(redis_client: redis.Redis) -> OwnQueue:
    return OwnQueue(redis_client)


# -- the operations: prepared without the proxy, done through it; what is done and what is answered must always be the same --

Operation = tuple[Callable[[Scene], Any], Callable[[Scene, Any], Any]]


def _nothing(scene: Scene) -> None:
    return None


def _put(scene: Scene) -> None:
    scene.own.put("first")
    scene.own.put("second")


def _held(scene: Scene) -> Lease:
    lease = scene.own.held("first", expected=60)
    scene.own.put("second")
    return lease


def _buried(scene: Scene) -> None:
    scene.own.bury("first")


def _due(scene: Scene) -> None:
    scene.own.put("first", delay=60)
    scene.own.client.zadd(keys.scheduled("mail"), {"first": 1})


def _registered(scene: Scene) -> None:
    scene.own.queue.register(WORKER, control=True)


def _taken(answer: Lease | Claim) -> tuple[str, int]:
    assert isinstance(answer, Lease)
    return answer.id, answer.attempt


def _complete_and_claim(scene: Scene, lease: Lease) -> Any:
    done, taken = scene.queue.complete_and_claim(scene.again(lease), TERMS, op="c", claim_op="00000000000000aa")
    return done, _taken(taken)


def _two_held(scene: Scene) -> list[Lease]:
    for job in ("first", "second", "third", "fourth"):
        scene.own.put(job, expected=60)
    return [scene.own.claim(slot=slot) for slot in "01"]


def _complete_and_claim_both(scene: Scene, leases: list[Lease]) -> Any:
    some = [Handed(lease, op="c", claim_op=f"00000000000000a{lease.slot}") for lease in leases]
    answers = complete_and_claim(scene.queue, WORKER, TERMS, some)
    return [(answer[0], _taken(answer[1])) for answer in answers if answer is not None]


def _reclaim(scene: Scene, lease: Lease, reason: Reason = Reason.LOCK_EXPIRED) -> Any:
    adapter = UnstuckAdapter(scene.connections.reading(), scene.connections.scripting())
    beat = scene.own.job(lease.id)["heartbeat_at"]
    one = Condemned(lease.id, WORKER, lease.token, beat, Lock.HELD, reason, 0.0)
    return [(done.action, done.rescues) for done in adapter.reclaim("mail", [one], Limits(), scene.authority())]


def _reclaim_for_the_last_time(scene: Scene, lease: Lease) -> Any:
    scene.own.client.hset(keys.job("mail", "first"), "rescues", 3)
    return _reclaim(scene, lease)


def _publish(scene: Scene, _: None) -> Any:
    scripts.run(
        scene.connections.scripting(), "publish_pacing", keys.meta("mail"), 1000, 15_000, 30_000, "base_ms", 200
    )
    return scene.own.client.hget(keys.pacing("mail"), "base_ms")


def _elect(scene: Scene, _: None) -> Any:
    clock = ManualClock()
    election = Election(scene.connections.scripting(), clock, lease=10.0, digest="d", owner="agent")
    standing = election.attempt()
    record = scene.own.client.hgetall(keys.LEADER)
    return standing.leading, standing.epoch == int(record["epoch"]), record["owner"]


def _resign(scene: Scene, _: None) -> Any:
    election = Election(scene.own.client, ManualClock(), lease=10.0, digest="d", owner="agent")
    election.attempt()
    election._client = scene.connections.scripting()
    election.resign()
    return election.standing.leading, scene.own.client.hget(keys.LEADER, "until_ms")


OPERATIONS: dict[str, Operation] = {
    "enqueue": (_nothing, lambda scene, _: scene.queue.enqueue({}, id="first")),
    "enqueue for later": (_nothing, lambda scene, _: scene.queue.enqueue({}, id="first", delay=60)),
    "enqueue many": (_nothing, lambda scene, _: [one.created for one in scene.queue.enqueue_many(range(3))]),
    "enqueue what is there": (_put, lambda scene, _: scene.queue.enqueue({}, id="first").created),
    "claim": (_put, lambda scene, _: _taken(scene.queue.claim(WORKER, "0"))),
    "claim of nothing": (_nothing, lambda scene, _: isinstance(scene.queue.claim(WORKER, "0"), Claim)),
    "claim of a due one": (_due, lambda scene, _: _taken(scene.queue.claim(WORKER, "0"))),
    "heartbeat": (_held, lambda scene, lease: scene.queue.heartbeat(WORKER, [lease])),
    "progress": (_held, lambda scene, lease: scene.queue.report_progress(lease.id, lease.token, "half")),
    "complete": (_held, lambda scene, lease: scene.queue.complete(scene.again(lease))),
    "complete and claim": (_held, _complete_and_claim),
    "complete and claim of both": (_two_held, _complete_and_claim_both),
    "fail": (_held, lambda scene, lease: scene.queue.fail(scene.again(lease), "no")),
    "fail for good": (_held, lambda scene, lease: scene.queue.fail(scene.again(lease), "no", permanent=True)),
    "release": (_held, lambda scene, lease: scene.queue.release(scene.again(lease), "test")),
    "cancel of a waiting one": (_put, lambda scene, _: scene.queue.cancel("first")),
    "cancel of a running one": (_held, lambda scene, _: scene.queue.cancel("first")),
    "retry of a dead one": (_buried, lambda scene, _: scene.queue.retry_dead("first")),
    "drop of a dead one": (_buried, lambda scene, _: scene.queue.drop_dead("first")),
    "reclaim": (_held, _reclaim),
    "reclaim to dead": (_held, _reclaim_for_the_last_time),
    "publish": (_nothing, _publish),
    "elect": (_nothing, _elect),
    "resign": (_nothing, _resign),
    "register": (_nothing, lambda scene, _: scene.queue.register(WORKER, control=True)),
    "leave": (_registered, lambda scene, _: scene.queue.leave(WORKER, ["0"])),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_redis_py_repeats_after_a_cut_happened_once_and_is_told_as_it_is(
    own: OwnQueue, redis_server: RedisServer, proxy: CutProxy, name: str, cut: Cut
) -> None:
    prepare, operate = OPERATIONS[name]
    expected: Any = None
    for at in range(MOST_EXCHANGES):  # 0: nothing is cut, this is what must come out every time
        own.client.flushall()
        with Connections(proxy.url) as connections:
            scene = Scene(own, connections)
            prepared = prepare(scene)
            proxy.arm(at, cut)
            outcome = operate(scene, prepared), effect(own)
            lost = proxy.lost
            proxy.arm(0, cut)
        if at == 0:
            expected = outcome
        assert outcome == expected, f"{lost or 'nothing'} was lost ({cut} {at})"
        own.in_one_place_each()
        if at and not lost:
            assert at > 1, "nothing was ever cut"
            return
    pytest.fail(f"{name} never came to its end within {MOST_EXCHANGES} exchanges")


def effect(own: OwnQueue) -> Any:
    """What was done: where the jobs are and how often they were counted. Times, ids and digests differ from run to run."""
    jobs = sorted(
        (places, own.job(job).get("attempt"), own.job(job).get("rescues"), own.job(job).get("failures"))
        for job, places in own.places().items()
    )
    stats = {name: count for name, count in own.stats().items() if "_" not in name}
    events = sorted(event["event"] for event in own.events())
    sizes = {part: own.client.zcard(own.key(part)) for part in ("active", "started", "deadlines", "workers")}
    wake = own.client.llen(keys.wake(own.name))
    return jobs, stats, events, sizes, wake


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("claims", [False, True], ids=["complete", "complete and claim"])
def test_a_caller_without_retries_may_ask_again_with_the_same_operation_id(
    own: OwnQueue, redis_server: RedisServer, proxy: CutProxy, cut: Cut, *, claims: bool
) -> None:
    """The reference worker does so: what was in doubt is asked again, part by part."""
    for at in range(1, MOST_EXCHANGES):
        own.client.flushall()
        lease = own.held("first")
        own.put("second")
        with Connections(proxy.url) as connections:
            once = Queue(connections.reading(), "mail")  # a client that repeats nothing
            lease.queue = once
            proxy.arm(at, cut)
            try:
                if claims:
                    once.complete_and_claim(lease, TERMS, op="c1", claim_op="00000000000000aa")
                else:
                    once.complete(lease, op="c1")
            except redis.ConnectionError:
                pass
            lost = proxy.lost
            proxy.arm(0, cut)
            assert once.complete(lease, op="c1") == "completed"
            if claims:
                taken = once.claim(WORKER, lease.slot, TERMS, op="00000000000000aa")
                assert _taken(taken) == ("second", 1)
        own.in_one_place_each()
        assert own.stats()["completed"] == 1
        assert own.stats()["started"] == (2 if claims else 1)
        assert "refused" not in own.stats()
        if not lost:
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("cut", CUTS)
def test_a_promotion_that_was_cut_moves_each_due_job_once(own: OwnQueue, proxy: CutProxy, cut: Cut) -> None:
    for at in range(1, MOST_EXCHANGES):
        own.client.flushall()
        for job in ("a", "b", "c"):
            own.put(job, delay=60)
        own.client.zadd(keys.scheduled("mail"), {"a": 1, "b": 2, "c": 3})
        with Connections(proxy.url) as connections:
            proxy.arm(at, cut)
            Queue(connections.scripting(), "mail").promote()
            lost = proxy.lost
        assert sorted(own.client.lrange(keys.pending("mail"), 0, -1)) == ["a", "b", "c"]
        own.in_one_place_each()
        if not lost:
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("cut", CUTS)
def test_a_stale_worker_is_refused_however_its_completion_is_repeated(own: OwnQueue, proxy: CutProxy, cut: Cut) -> None:
    """S2 and S8 together: the job has another attempt by now."""
    for at in range(1, MOST_EXCHANGES):
        own.client.flushall()
        stale = own.held("first")
        own.queue.release(stale, "test")
        current = own.claim(OTHER)
        with Connections(proxy.url) as connections:
            proxy.arm(at, cut)
            stale.queue = Queue(connections.scripting(), "mail")
            assert stale.queue.complete(stale) == "refused"
            lost = proxy.lost
        assert own.job("first")["token"] == current.token
        assert own.stats()["refused"] == 1
        own.in_one_place_each()
        if not lost:
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("cut", CUTS)
def test_an_audit_note_is_never_lost_to_a_cut_and_stops_nothing(own: OwnQueue, proxy: CutProxy, cut: Cut) -> None:
    for at in range(1, MOST_EXCHANGES):
        own.client.flushall()
        with Connections(proxy.url) as connections:
            proxy.arm(at, cut)
            write_streams(connections.scripting(), [Event("stuck", 0.0, backend="unstuck", queue="mail", job="j")])
            lost = proxy.lost
        assert {event["event"] for event in own.events()} == {"stuck"}
        if not lost:
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("cut", CUTS)
def test_a_reclaim_from_rq_that_was_cut_leaves_exactly_one_copy(
    redis_server: RedisServer, processes: Processes, proxy: CutProxy, cut: Cut
) -> None:
    """The agent's next sweep asks again; then it moves the job, or learns that it has been moved."""
    for at in range(1, MOST_EXCHANGES):
        bench = RQBench(redis_server, processes)
        bench.client.flushall()
        lease = fly(bench)
        info = bench.client.info()
        authority = Authority("agent", 1_000, info["run_id"], info["master_replid"])
        one = Condemned(
            lease.job, lease.worker, lease.token, lease.heartbeat, lease.lock, Reason.LOCK_EXPIRED, 90.0,
            owner_beat=lease.owner_beat, evidence=lease.evidence,
        )  # fmt: skip
        with Connections(proxy.url) as connections:
            adapter = RQAdapter(connections.reading())
            proxy.arm(at, cut)
            try:
                first = adapter.reclaim("mail", [one], Limits(), authority)
            except redis.ConnectionError:
                first = []
            lost = proxy.lost
            proxy.arm(0, cut)
            then = adapter.reclaim("mail", [one], Limits(), authority)
        moved = [done.action for done in (*first, *then)].count(Action.REQUEUED)
        assert moved <= 1
        assert then[0].action in {Action.REQUEUED, Action.LOST_RACE}
        assert list(bench.places(lease.job)) == ["pending"], f"{lost} was lost ({cut} {at})"
        assert bench.client.hget("unstuck:{rq/mail}:rescues", lease.job) == b"1"
        bench.client.close()
        if not lost:
            assert moved == 1
            return
    pytest.fail("it never came to its end")
