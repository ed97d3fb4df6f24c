"""What is published, measured on real queues: who may, what stands in the hash, when it lapses, and what workers apply."""

from dataclasses import replace

import pytest

from support.cli import run_cli
from support.own_queue import OTHER, WORKER, OwnQueue
from support.waiting import wait_until
from unstuck.agent import Agent
from unstuck.config import OWN, Pacing, Seconds, Settings, Share
from unstuck.config.units import MemoryLimit
from unstuck.connections import Connections
from unstuck.duties.publishing import Publisher
from unstuck.duties.sweeping import Judged
from unstuck.errors import Deposed, WrongType
from unstuck.model import Capability, QueueSnapshot
from unstuck.protocol import BatchCache, keys
from unstuck.queue import Limits
from unstuck.queues.unstuck import UnstuckAdapter
from unstuck.redis_url import RedisUrl
from unstuck.server import read_server
from unstuck.worker.waiting import Board, OwnPace

EPOCH = 1000


class Leader:
    """An agent's publisher with its looks; time passes only when told."""

    def __init__(self, own: OwnQueue, settings: Settings | None = None) -> None:
        self.own = own
        self.settings = settings or Settings()
        self.publisher = Publisher(own.client, 2.0, self.settings)
        self.adapter = UnstuckAdapter(own.client, own.client)
        self.now = 1_000.0
        self.server = read_server(own.client)
        self.looks: list[Judged] = []

    def look(self, *queues: str) -> None:
        self.server = read_server(self.own.client)
        names = queues or (self.own.name,)
        self.looks = [
            Judged(one, self.settings.defaults()) for one in self.adapter.look({name: Limits() for name in names})
        ]

    def publish(self, epoch: int = EPOCH, *, look: bool = True):
        if look:
            self.look()
        self.now += 2.0
        return self.publisher.publish(self.looks, self.server, epoch, self.now)


@pytest.fixture
def own(redis_client):
    return OwnQueue(redis_client)


@pytest.fixture
def leader(own):
    return Leader(own)


def pacing_of(own: OwnQueue) -> dict[str, str]:
    return dict(own.client.hgetall(keys.pacing(own.name)))


def test_one_command_reads_the_interval_in_any_language(own, leader):
    own.queue.enqueue_many([1] * 500)
    leader.publish()
    assert own.client.execute_command("HGET", "unstuck:{mail}:pacing", "interval_ms") == "300"


def test_the_hash_has_every_field_of_the_contract_and_lapses_by_itself(own, leader):
    own.queue.enqueue_many([1] * 250)
    leader.publish()
    leader.publish()
    stands = pacing_of(own)
    assert set(stands) == {
        "interval_ms", "base_ms", "min_ms", "max_ms", "score", "score_raw", "reason", "jitter", "seq", "epoch",
        "computed_at_ms", "ttl_ms", "backlog", "oldest_age_ms", "growth_ratio", "eta_drain_ms",
    }  # fmt: skip
    told = {name: stands[name] for name in ("interval_ms", "base_ms", "score", "reason", "seq", "epoch", "backlog")}
    assert told == {
        "interval_ms": "250",
        "base_ms": "200",
        "score": "0.2500",
        "reason": "backlog",
        "seq": "2",
        "epoch": "1000",
        "backlog": "250",
    }
    assert 0 < own.client.pttl(keys.pacing("mail")) <= 15_000 == int(stands["ttl_ms"])
    seconds, micros = own.client.time()
    assert 0 <= seconds * 1000 + micros // 1000 - int(stands["computed_at_ms"]) < 15_000


def test_a_deposed_leader_cannot_overwrite_what_its_successor_has_published(own, leader):
    leader.publish(EPOCH)
    leader.publish(EPOCH + 1)
    stands = pacing_of(own)
    own.queue.enqueue_many([1] * 900)
    (refused,) = leader.publish(EPOCH).published
    assert isinstance(refused.error, Deposed)
    assert pacing_of(own) == stands
    assert own.client.get(keys.fence("mail")) == str(EPOCH + 1)


def test_a_damaged_queue_is_refused_and_the_others_are_published_all_the_same(own, leader):
    own.put("a")
    OwnQueue(own.client, "other").put("b")
    own.client.set(keys.pacing("other"), "wrong")
    looks = leader.adapter.look({"mail": Limits()})
    snapshot = replace(looks[0], queue="other")
    leader.looks = [Judged(one, leader.settings.defaults()) for one in (looks[0], snapshot)]
    mail, other = leader.publish(look=False).published
    assert mail.error is None
    assert isinstance(other.error, WrongType)
    assert pacing_of(own)["seq"] == "1"


def test_a_queue_that_is_not_looked_at_any_more_is_not_published_on_and_on(own, leader):
    own.queue.enqueue_many([1] * 500)
    leader.publish()
    for _ in range(7):
        assert len(leader.publish(look=False).published) == 1
    assert leader.publish(look=False).unmeasured == ((OWN, "mail"),)
    last = leader.publish(look=False)
    assert (last.published, last.unmeasured, last.whole) == ((), (), None)
    assert pacing_of(own)["seq"] == "8"
    assert len(leader.publish().published) == 1


def test_a_queue_that_cannot_be_read_is_not_published(own, leader):
    leader.publish()
    leader.looks = [Judged(QueueSnapshot(OWN, "mail", Capability.RECLAIM, error="damaged"), leader.settings.defaults())]
    passed = leader.publish(look=False)
    assert (passed.published, passed.unmeasured) == ((), ((OWN, "mail"),))


def test_delay_throughput_growth_and_drain_are_measured_from_the_counters(own, leader):
    leader.publish()
    own.queue.enqueue_many([1] * 20)
    for number in range(10):
        own.queue.claim(WORKER, str(number)).complete()
    (one,) = leader.publish().published
    assert one.trend.growth == pytest.approx(2.0)
    assert one.trend.throughput is not None
    assert one.drain == pytest.approx(10 / one.trend.throughput)
    assert pacing_of(own)["growth_ratio"] == "2.000"
    assert int(pacing_of(own)["eta_drain_ms"]) == pytest.approx(one.drain * 1000, abs=1)
    # The same look again tells nothing new: rates must not sink because nobody looked.
    (again,) = leader.publish(look=False).published
    assert again.trend == one.trend


def test_the_share_of_reads_that_hit_is_measured_for_workers_and_for_the_keyspace(own, leader):
    leader.publish()
    with BatchCache(own.queue) as cache:
        for _ in range(4):
            cache.get_or_compute("report", lambda: 1)
    passed = leader.publish()
    assert passed.published[0].trend.cache_hit_ratio == pytest.approx(0.75)
    assert 0 < passed.whole.keyspace_hit_ratio <= 1


def test_every_change_says_from_what_to_what_and_why(own, leader):
    leader.publish()
    own.queue.enqueue_many([1] * 500)
    (one,) = leader.publish().published
    assert one.changed == "200 ms → 300 ms: average delay 0.0 s of 10 s, 500 waiting of 1000"
    own.client.delete(keys.pending("mail"))
    changes = [leader.publish().published[0] for _ in range(4)]
    assert [one.changed for one in changes if one.changed] == ["300 ms → 200 ms: no load"]
    assert [one.drained for one in changes].count(True) == 1


def test_the_memory_penalty_begins_at_the_limit_and_ends_below_it_by_the_hysteresis(own):
    limit = MemoryLimit(size_bytes=1_000_000)
    leader = Leader(own, Settings(pacing=Pacing(cache_limit=limit, hysteresis=Share(0.1))))
    seen = []
    for used in (900_000, 1_000_001, 950_000, 900_001, 899_999, 950_000):
        leader.look()
        leader.server = replace(leader.server, used_memory=used)
        seen.append(leader.publish(look=False).published[0].decision.penalty)
    # The last change is taken back only after three publications.
    assert seen[:4] == [1.0, 2.0, 2.0, 2.0]
    assert seen[-1] == 1.0


def test_the_fleet_policy_counts_the_slots_of_all_live_workers(own):
    leader = Leader(own, Settings(pacing=Pacing(policy="fleet", fleet_rate=100.0)))
    for worker, slots in ((WORKER, 150), (OTHER, 250)):
        own.queue.register(worker, control=False, record={"concurrency": slots, "applied_ms": 200})
    passed = leader.publish()
    assert pacing_of(own)["interval_ms"] == "4000"
    assert pacing_of(own)["reason"] == "pollers"
    assert passed.whole.pollers == 400


def test_the_value_for_the_whole_redis_is_made_over_all_queues_as_if_they_were_one(own, leader):
    own.queue.enqueue_many([1] * 300)
    OwnQueue(own.client, "other").queue.enqueue_many([1] * 400)
    leader.look("mail", "other")
    passed = leader.publish(look=False)
    assert [one.decision.score for one in passed.published] == [0.3, 0.4]
    assert (passed.whole.decision.score, passed.whole.pending) == (pytest.approx(0.7), 700)


# -- what workers apply ------------------------------------------------------------------------------------------------------


def test_what_workers_apply_is_seen_through_their_records(own, leader):
    own.queue.register(
        WORKER, control=False, record={"concurrency": 4, "applied_ms": 200, "pacing_doubt": "old", "pacing_doubts": 3}
    )
    own.queue.register(
        OTHER, control=False, record={"concurrency": 2, "applied_ms": 400, "pacing_doubt": "", "pacing_doubts": 0}
    )
    leader.look()
    pollers = leader.looks[0].snapshot.pollers
    assert (pollers.slots, pollers.on_own_base, pollers.doubts) == (6, 1, 3)
    assert (pollers.applied_least, pollers.applied_mean, pollers.applied_most) == (0.2, pytest.approx(0.3), 0.4)


def test_of_a_large_fleet_a_sample_stands_for_all(own, leader):
    for number in range(450):
        own.queue.register(f"host:{number}:0123abcd", control=False, record={"concurrency": 2, "applied_ms": 200})
    leader.look()
    assert leader.looks[0].snapshot.pollers.slots == 900


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (None, "missing"),
        ({"interval_ms": None}, "incomplete"),
        ({"ttl_ms": None}, "incomplete"),
        ({"interval_ms": "1000000000"}, "out_of_bounds"),
        ({"interval_ms": "-1"}, "out_of_bounds"),
        ({"interval_ms": "nan"}, "unreadable"),
        ({"computed_at_ms": "1"}, "old"),
        ("wrong type", "redis_other"),
    ],
)
def test_a_worker_that_doubts_what_is_published_uses_its_own_base_and_counts_it(own, leader, redis_url, change, doubt):
    own.queue.enqueue_many([1] * 500)
    leader.publish()
    key = keys.pacing("mail")
    match change:
        case None:
            own.client.delete(key)
        case str():
            own.client.set(key, "wrong")
        case dict():
            for name, value in change.items():
                _ = own.client.hdel(key, name) if value is None else own.client.hset(key, name, value)
    with Connections(redis_url) as connections:
        board = Board(connections, "mail", OwnPace(base=0.25))
        seconds, micros = own.client.time()
        pace = board.look(seconds * 1000 + micros // 1000)
    assert (pace.interval, pace.doubt.split("_")[0]) == (0.25, doubt.split("_")[0])
    assert sum(board.doubts.values()) == 1
    assert board.applied_ms == 250


def test_a_worker_applies_what_is_published_and_goes_back_to_its_base_when_the_agent_is_dead(own, leader, redis_url):
    """C104: the hash has a time to live, so the last word of a dead agent does not rule on."""
    own.queue.enqueue_many([1] * 1000)
    leader.publish()
    seconds, micros = own.client.time()
    now = seconds * 1000 + micros // 1000
    with Connections(redis_url) as connections:
        assert Board(connections, "mail", OwnPace()).look(now).interval == 0.4
        assert Board(connections, "mail", OwnPace()).look(now + 15_001).interval == 0.2  # frozen with its hash
        own.client.pexpire(keys.pacing("mail"), 1)
        wait_until(lambda: not own.client.exists(keys.pacing("mail")))
        assert Board(connections, "mail", OwnPace()).look(now).interval == 0.2


# -- the whole agent -----------------------------------------------------------------------------------------------------


def test_inspect_shows_the_interval_and_why(own, leader, redis_url):
    own.queue.enqueue_many([1] * 500)
    leader.publish()
    shown = run_cli("inspect", "--redis", redis_url, "--window", "100ms")
    assert "300 ms backlog" in shown.stdout


def test_an_agent_publishes_exports_and_tells_why(own, redis_url):
    own.queue.enqueue_many([1] * 900)
    settings = Settings(redis=RedisUrl.parse(redis_url), sweep_interval=Seconds(0.2))
    agent = Agent(settings)
    agent.start()
    try:
        ledger = wait_until(
            lambda: next((one for one in agent.board.view().queues if one.paced), None), 20, "an interval was published"
        )
        assert (ledger.paced.interval, ledger.paced.reason) == (pytest.approx(0.38), "backlog")
        assert agent.board.view().agent.paced.interval == pytest.approx(0.38)
        own.client.delete(keys.pending("mail"))
        events = lambda: [one for one in own.events() if one["event"] == "pacing_changed"]  # noqa: E731
        (told,) = wait_until(events, 20, "the change was told")
        assert told["cause"] == "idle"
        wait_until(lambda: agent.board.view().queues[0].counts.resets["drained",], 20, "the reset was counted")
        assert agent.board.view().queues[0].counts.resets == {("drained",): 1, ("no_data",): 0}
    finally:
        agent.stop()
