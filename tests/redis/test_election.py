"""The election on a real Redis: one leads, the others cost next to nothing, and on any doubt nobody leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from support.redis_server import RedisServer
from unstuck.clock import ManualClock
from unstuck.connections import Connections
from unstuck.duties.electing import Election, Standing, owner_name
from unstuck.errors import Deposed
from unstuck.protocol import keys, scripts

LEASE = 10.0


class Candidate:
    """An agent's part in the election, with its own clock and what it was told."""

    def __init__(self, client: redis.Redis, name: str, clock: ManualClock, digest: str = "same") -> None:
        self.told: list[tuple[Standing, Standing]] = []
        self.clock = clock
        self.election = Election(
            client, clock, lease=LEASE, digest=digest, owner=name, changed=lambda *change: self.told.append(change)
        )

    def attempt(self) -> Standing:
        return self.election.attempt()

    @property
    def standing(self) -> Standing:
        return self.election.standing


@pytest.fixture
def connections(redis_server: RedisServer) -> Iterator[Connections]:
    with Connections(redis_server.url, timeout=1.0) as connections:
        yield connections


@pytest.fixture
def stand(connections: Connections) -> Callable[..., Candidate]:
    def stand(name: str, **options: Any) -> Candidate:
        return Candidate(connections.scripting(), name, options.pop("clock", ManualClock()), **options)

    return stand


def let_lapse(client: redis.Redis) -> None:
    """What time does to a lease that is not renewed."""
    client.hset(keys.LEADER, "until_ms", 1)


def test_of_many_agents_exactly_one_leads(stand, redis_client) -> None:
    agents = [stand(f"agent-{i}") for i in range(5)]
    for _ in range(3):
        for agent in agents:
            agent.attempt()
        assert [agent.standing.leading for agent in agents] == [True, False, False, False, False]
    assert {agent.standing.leader for agent in agents} == {"agent-0"}
    assert len({agent.standing.epoch for agent in agents}) == 1


def test_a_renewal_keeps_the_epoch_and_a_take_over_raises_it(stand, redis_client) -> None:
    first, second = stand("a"), stand("b")
    epoch = first.attempt().epoch
    assert first.attempt().epoch == epoch
    let_lapse(redis_client)
    assert second.attempt().leading
    assert second.standing.epoch > epoch


def test_the_epoch_grows_although_the_clock_of_redis_runs_back(stand, redis_client) -> None:
    """C76: it is the old one plus one, where that is more than the server's time."""
    redis_client.hset(keys.LEADER, mapping={"owner": "gone", "epoch": 9_000_000_000_000, "until_ms": 1})
    assert stand("a").attempt().epoch == 9_000_000_000_001


def test_only_the_own_record_is_renewed(stand, redis_client) -> None:
    """A leader that was paused for longer than its lease learns that another one leads."""
    paused, successor = stand("a"), stand("b")
    paused.attempt()
    let_lapse(redis_client)
    successor.attempt()
    record = redis_client.hgetall(keys.LEADER)
    assert not paused.attempt().leading
    assert redis_client.hgetall(keys.LEADER) == record
    assert paused.standing.leader == "b"


def test_a_leader_that_let_its_own_lease_lapse_comes_back_with_another_epoch(stand, redis_client) -> None:
    """Somebody may have led in between, and given up: the old epoch must not act again."""
    agent = stand("a")
    epoch = agent.attempt().epoch
    let_lapse(redis_client)
    assert agent.attempt().leading
    assert agent.standing.epoch > epoch


def test_a_leader_trusts_itself_only_until_the_begin_of_its_renewal_and_the_lease(stand) -> None:
    """C71: it stops when it cannot prove its lease, whatever Redis may say later."""
    agent = stand("a")
    agent.attempt()
    agent.clock.advance(LEASE - 1.0 - 0.001)
    agent.election.doubt()
    assert agent.election.trusted()
    agent.clock.advance(0.001)
    assert not agent.election.trusted()
    agent.election.doubt()
    assert not agent.standing.leading
    assert "not renewed in time" in agent.standing.trouble


def test_a_slow_answer_is_counted_from_when_it_was_asked_for(connections) -> None:
    clock = ManualClock()

    class Slow:
        def execute_command(self, *args: Any) -> Any:
            answer = connections.scripting().execute_command(*args)
            clock.advance(LEASE - 1.5)
            return answer

    agent = Candidate(Slow(), "a", clock)  # type: ignore[arg-type]
    assert agent.attempt().leading
    clock.advance(0.6)
    assert not agent.election.trusted()


def test_any_error_on_renewal_is_a_step_down(stand, redis_client, redis_server) -> None:
    agent = stand("a")
    agent.attempt()
    redis_client.rename(keys.LEADER, "aside")
    redis_client.set(keys.LEADER, "of another type")
    standing = agent.attempt()
    assert (standing.leading, standing.may_write) == (False, True)
    assert standing.trouble
    redis_client.rename("aside", keys.LEADER)
    assert agent.attempt().leading, "and it competes again"


def test_a_redis_that_does_not_answer_is_a_step_down(stand, redis_server) -> None:
    """C70: the former leader competes again as soon as Redis is back."""
    agent = stand("a")
    agent.attempt()
    redis_server.stop()
    assert not agent.attempt().leading
    redis_server.start()
    assert agent.attempt().leading


def test_a_garbage_record_makes_nobody_the_leader_and_says_where(stand, redis_client) -> None:
    redis_client.hset(keys.LEADER, "epoch", "young")
    standing = stand("a").attempt()
    assert not standing.leading
    assert keys.LEADER in standing.trouble


def test_resigning_hands_over_at_once(stand, redis_client) -> None:
    leader, standby = stand("a"), stand("b")
    leader.attempt()
    assert not standby.attempt().leading
    leader.election.resign()
    assert not leader.standing.leading
    assert standby.attempt().leading
    assert standby.standing.epoch > leader.standing.epoch


def test_who_resigns_late_takes_nothing_from_the_successor(stand, redis_client) -> None:
    leader, successor = stand("a"), stand("b")
    leader.attempt()
    let_lapse(redis_client)
    successor.attempt()
    leader.election.resign()
    assert successor.attempt().epoch == successor.standing.epoch
    assert successor.standing.leading


def test_a_former_leader_is_refused_by_every_queue_that_its_successor_has_touched(stand, redis_client) -> None:
    """S6: the fence stands in the queue, not in anybody's memory."""
    former, successor = stand("a"), stand("b")
    former.attempt()
    let_lapse(redis_client)
    successor.attempt()

    def publish(epoch: int, queue: str) -> None:
        scripts.run(redis_client, "publish_pacing", keys.meta(queue), epoch, 15_000, 30_000, "interval_ms", 200)

    publish(successor.standing.epoch, "touched")
    with pytest.raises(Deposed):
        publish(former.standing.epoch, "touched")
    publish(former.standing.epoch, "untouched")
    publish(successor.standing.epoch, "untouched")
    with pytest.raises(Deposed):
        publish(former.standing.epoch, "untouched")


def test_what_an_election_without_rights_may_do_is_said(stand, redis_client, redis_server) -> None:
    redis_client.execute_command("ACL", "SETUSER", "reader", "on", ">x", "~*", "&*", "+@read", "+@connection", "+info")
    try:
        with Connections(redis_server.url.replace("://", "://reader:x@")) as connections:
            standing = Candidate(connections.scripting(), "a", ManualClock()).attempt()
        assert (standing.leading, standing.may_write) == (False, False)
    finally:
        redis_client.execute_command("ACL", "DELUSER", "reader")


def test_another_configuration_is_seen_by_every_follower(stand) -> None:
    """C13: agents that would act differently notice it."""
    stand("a", digest="one").attempt()
    assert stand("b", digest="two").attempt().leader_digest == "one"


def test_each_change_is_told_with_what_was_before(stand, redis_client) -> None:
    agent = stand("a")
    agent.attempt()
    agent.attempt()
    let_lapse(redis_client)
    stand("b").attempt()
    agent.attempt()
    assert [(before.leading, after.leading) for before, after in agent.told] == [
        (False, True), (True, True), (True, False),
    ]  # fmt: skip


def test_a_standby_asks_one_command_per_attempt(stand, redis_client) -> None:
    stand("a").attempt()
    standby = stand("b")
    standby.attempt()
    before = commands(redis_client)
    for _ in range(10):
        standby.attempt()
    assert commands(redis_client) - before == 10


def commands(client: redis.Redis) -> int:
    """EVALSHA and EVAL together: what agents send (the count itself is not among them)."""
    told: Any = client.info("commandstats")
    return sum(told[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in told)


def test_no_two_agents_ever_have_the_same_name() -> None:
    assert len({owner_name() for _ in range(1_000)}) == 1_000
