"""The agent as a whole on a real Redis: who leads, what it does about the dead, and what it leaves alone in every trouble.

Thresholds are a tenth of the defaults. Where the contract promises a time, the bound is multiplied by SLACK: the machine
that runs the tests may be busy with others.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from support.processes import Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.agent import Agent
from unstuck.config import Settings, load
from unstuck.duties.scheduling import DutyFailedError
from unstuck.protocol import Lease, Queue, Terms, keys
from unstuck_exporters.agency import Role

SLACK = 5.0
SWEEP, BEAT, STUCK, GONE, CONFIRM, LEASE = 0.5, 0.5, 3.0, 0.3, 0.3, 1.5
SETTINGS = {
    "mode": "reclaim", "sweep_interval": f"{SWEEP}s", "heartbeat_interval": f"{BEAT}s", "lock_ttl": f"{STUCK}s",
    "stuck_after": f"{STUCK}s", "gone_after": f"{GONE}s", "abort_after": "2s", "confirm_after": f"{CONFIRM}s",
    "leader.lease": f"{LEASE}s", "redis_timeout": "1s", "brake.patience": "1s",
}  # fmt: skip
TERMS = Terms(lock_ttl_ms=3_000, heartbeat_ms=500, abort_after_ms=2_000)


class Hands:
    """A worker in this process: it holds jobs, beats for them in a thread, and has a control connection."""

    def __init__(self, url: str, queue: str = "mail", *, connected: bool = True) -> None:
        self.name = f"host:1:{secrets.token_hex(4)}"
        self.client: Any = redis.Redis.from_url(url, decode_responses=True)
        self.queue = Queue(self.client, queue)
        self.leases: list[Lease] = []
        self.lost: set[str] = set()
        self.beats = 0
        self._control: Any = None
        if connected:
            self.connect()
        self.queue.register(self.name, control=connected, record_ttl_ms=3_000)
        self._quiet = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="hands", daemon=True)
        self._thread.start()

    def connect(self) -> None:
        self._control = self.client.pubsub()
        self._control.ssubscribe(keys.control(self.queue.name, self.name))
        assert self._control.get_message(timeout=10)

    def take(self, count: int = 1) -> list[Lease]:
        for _ in range(count):
            taken = self.queue.claim(self.name, str(len(self.leases)), TERMS)
            assert isinstance(taken, Lease), taken
            self.leases.append(taken)
        return self.leases[-count:]

    def _beat(self) -> None:
        while not self._quiet.wait(BEAT):
            with contextlib.suppress(redis.RedisError):
                held = list(self.leases)
                registered, answers = self.queue.heartbeat(self.name, held, record_ttl_ms=3_000)
                self.lost |= {lease.id for lease, said in zip(held, answers, strict=True) if said == "lost"}
                self.beats += 1
                if not registered:
                    self.queue.register(self.name, control=self._control is not None, record_ttl_ms=3_000)

    def fall_silent(self) -> None:
        """No beat from now on; the connections stay, as with a frozen process."""
        self._quiet.set()
        self._thread.join(20)

    def vanish(self) -> None:
        """What kill -9 does: no beat, no connection."""
        self.fall_silent()
        if self._control is not None:
            self._control.close()
            self._control = None

    def close(self) -> None:
        self.vanish()
        self.client.close()


class Stage:
    """Agents and workers of one test on one Redis."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.client: Any = server.client()
        self.queue = Queue(self.client, "mail")
        self._close: list[Callable[[], None]] = []

    def settings(self, **changes: str) -> Settings:
        given = {"redis": self.server.url, **SETTINGS, **{k.replace("__", "."): v for k, v in changes.items()}}
        return load(flags=given)

    def agent(self, name: str = "a", *, start: bool = True, **changes: str) -> Agent:
        agent = Agent(self.settings(**changes), owner=name)
        if start:
            agent.start()
            self._close.append(agent.stop)
        return agent

    def hands(self, *, connected: bool = True) -> Hands:
        hands = Hands(self.server.url, connected=connected)
        self._close.append(hands.close)
        return hands

    def put(self, count: int = 1) -> list[str]:
        return [self.queue.enqueue({"n": n}).id for n in range(count)]

    def state(self, job: str) -> dict[str, str]:
        return dict(self.client.hgetall(keys.job("mail", job)))

    def rescued(self) -> int:
        return int(self.client.hget(keys.stats("mail"), "rescued") or 0)

    def close(self) -> None:
        self.server.thaw()
        for close in reversed(self._close):
            close()


@pytest.fixture
def stage(redis_server: RedisServer) -> Iterator[Stage]:
    stage = Stage(redis_server)
    yield stage
    stage.close()


@pytest.fixture
def make_stage(make_redis: Callable[..., RedisServer]) -> Iterator[Callable[..., Stage]]:
    stages: list[Stage] = []

    def make(**options: Any) -> Stage:
        stages.append(Stage(make_redis(**options)))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()


def role(agent: Agent) -> Role:
    return agent.board.view().agent.role


def kinds(agent: Agent) -> list[str]:
    return [event.kind for event in agent.board.view().events]


def gate(agent: Agent) -> tuple[bool, tuple[str, ...]]:
    state = agent.board.view().agent.gate
    return (state.open, state.reasons) if state else (False, ())


def sweeps(agent: Agent) -> int:
    return agent.board.view().agent.sweeps


def wait_for_role(agent: Agent, wanted: Role, timeout: float = 30.0) -> None:
    wait_until(lambda: role(agent) is wanted, timeout, f"{agent._owner} is {wanted}")


def wait_for_open_gate(agent: Agent) -> None:
    wait_until(lambda: gate(agent)[0], 150, "the gate is open")


def go_on(agent: Agent, count: int = 4) -> None:
    before = sweeps(agent)
    wait_until(lambda: sweeps(agent) >= before + count, 60, f"{count} more sweeps")


class TestLeadership:
    def test_of_three_agents_one_leads_and_only_it_shows_queues(self, stage: Stage) -> None:
        stage.put()
        agents = [stage.agent(name) for name in "abc"]
        wait_until(lambda: sorted(map(role, agents)) == [Role.FOLLOWER, Role.FOLLOWER, Role.LEADER], 30)
        leader = next(agent for agent in agents if role(agent) is Role.LEADER)
        go_on(leader)
        assert [agent.board.view().exports_queues for agent in agents].count(True) == 1
        assert all(sweeps(agent) == 0 for agent in agents if agent is not leader)

    def test_a_standby_costs_redis_at_most_one_command_per_lease(self, stage: Stage) -> None:
        stage.put()
        leader = stage.agent("a")
        go_on(leader, 10)
        others = addresses(stage)
        standby = stage.agent("b")
        wait_for_role(standby, Role.FOLLOWER)
        theirs = addresses(stage) - others
        assert theirs
        sent, begun = 0, time.monotonic()
        with stage.client.monitor() as monitor:
            for told in monitor.listen():  # the leader makes sure that there is always something to hear
                sent += f"{told['client_address']}:{told['client_port']}" in theirs
                if time.monotonic() - begun > 5 * LEASE:
                    break
        assert 1 <= sent <= 5 + 1, "five leases, and one that began before"

    def test_a_standby_takes_over_when_the_leaders_process_is_gone(self, stage: Stage, processes: Processes) -> None:
        """Within two leases."""
        options = ("--redis", stage.server.url, "--http-listen", "127.0.0.1:0", "--leader-lease", f"{LEASE}s")
        process = processes.unstuck("run", *options)
        wait_until(lambda: stage.client.hget(keys.LEADER, "owner"), 60, "the process leads")
        standby = stage.agent("b")
        wait_for_role(standby, Role.FOLLOWER)
        process.kill()
        killed = time.monotonic()
        wait_for_role(standby, Role.LEADER, 60)
        assert time.monotonic() - killed <= 2 * LEASE * SLACK

    def test_an_agent_that_stops_hands_over_at_once(self, stage: Stage) -> None:
        leader = stage.agent("a", start=False)
        leader.start()
        wait_for_role(leader, Role.LEADER)
        standby = stage.agent("b")
        wait_for_role(standby, Role.FOLLOWER)
        leader.stop()
        assert stage.client.hget(keys.LEADER, "until_ms") == "0"
        wait_for_role(standby, Role.LEADER)

    def test_who_takes_over_judges_nothing_for_a_full_window(self, stage: Stage) -> None:
        """C52: and touches nothing that looked dead before it came."""
        stage.put(2)
        silent = stage.hands(connected=False)
        silent.take(2)
        silent.fall_silent()
        stage.client.zadd(keys.active("mail"), {lease.id: 1_000 for lease in silent.leases})
        for lease in silent.leases:
            stage.client.hset(keys.job("mail", lease.id), "heartbeat_at", 1_000)
        agent = stage.agent()
        led = time.monotonic()
        wait_until(lambda: stage.rescued() == 2, 60, "both are rescued")
        assert time.monotonic() - led >= STUCK
        assert "inconclusive" in kinds(agent)

    def test_a_paused_leader_that_wakes_in_mid_sweep_is_refused_by_the_fence_and_steps_down(self, stage: Stage) -> None:
        (job,) = stage.put()
        hands = stage.hands()
        hands.take()
        leader = stage.agent("a")
        wait_for_open_gate(leader)
        at_work, wake = threading.Event(), threading.Event()
        adapter = leader._adapters["unstuck"]
        reclaim = adapter.reclaim

        def paused(*args: Any) -> Any:
            at_work.set()
            wake.wait(60)
            return reclaim(*args)

        adapter.reclaim = paused  # type: ignore[method-assign]
        hands.vanish()
        assert at_work.wait(60)
        token = stage.state(job)["token"]
        successor_epoch = int(stage.client.hget(keys.LEADER, "epoch")) + 1
        stage.client.hset(
            keys.LEADER, mapping={"owner": "b", "epoch": successor_epoch, "until_ms": 9_999_999_999_999, "digest": ""}
        )
        stage.client.set(keys.fence("mail"), successor_epoch)
        wake.set()
        wait_for_role(leader, Role.FOLLOWER)
        assert stage.state(job)["token"] == token
        assert stage.rescued() == 0
        assert "leader_lost" in kinds(leader)

    def test_another_configuration_is_noticed_and_said(self, stage: Stage) -> None:
        """C13"""
        leader = stage.agent("a")
        wait_for_role(leader, Role.LEADER)
        follower = stage.agent("b", max_rescues="7")
        wait_until(lambda: "leader_differs" in kinds(follower), 30, "the follower says so")
        alike = stage.agent("c")
        wait_for_role(alike, Role.FOLLOWER)
        assert "leader_differs" not in kinds(alike)

    def test_without_rights_to_write_it_observes_alone_and_says_so(self, make_stage: Callable[..., Stage]) -> None:
        stage = make_stage()
        stage.put(3)
        stage.client.execute_command(
            "ACL", "SETUSER", "reader", "on", ">x", "~*", "&*", "+@read", "+@connection", "+info", "+time",
            "+evalsha_ro", "+eval_ro", "+pubsub", "+evalsha", "+eval",
        )  # fmt: skip
        agent = stage.agent(redis=stage.server.url.replace("://", "://reader:x@"))
        wait_for_role(agent, Role.ALONE)
        go_on(agent)
        assert [one.look.snapshot.waiting for one in agent.board.view().queues if one.look] == [3]
        assert stage.client.exists(keys.LEADER, keys.pacing("mail")) == 0

    def test_a_redis_that_is_read_only_is_observed_alone_and_the_cause_is_said(self, busy: Any) -> None:
        """C23: redis-py cuts the code off its message, so the message alone does not tell what kind of trouble it is."""
        stage, agent, _, _ = busy
        agent.stop()
        stage.client.execute_command("REPLICAOF", "127.0.0.1", "1")
        late = stage.agent("late")
        wait_for_role(late, Role.ALONE)
        go_on(late)
        assert {"readonly", "unwritable"} <= set(gate(late)[1])
        assert ("elect", "readonly") in late.board.view().agent.redis_errors
        stage.client.execute_command("REPLICAOF", "NO", "ONE")
        wait_for_role(late, Role.LEADER)


def addresses(stage: Stage) -> set[str]:
    """Of the agents' connections."""
    return {one["addr"] for one in stage.client.client_list() if one["name"] == "unstuck:agent"}


class TestTheDead:
    """L1: in reclaim mode, with the gate open and the brake free, under an agent that has led for a full window."""

    def test_the_job_of_a_killed_worker_is_back_within_the_bound_of_the_fast_path(self, stage: Stage) -> None:
        (job,) = stage.put()
        hands = stage.hands()
        hands.take()
        agent = stage.agent()
        wait_for_open_gate(agent)
        hands.vanish()
        died = time.monotonic()
        wait_until(lambda: stage.state(job)["state"] == "pending", 60, "it is back in line")
        took = time.monotonic() - died
        assert took <= (GONE + CONFIRM + 3 * SWEEP) * SLACK
        assert took >= GONE + CONFIRM
        assert stage.state(job)["last_reason"] == "worker_gone"
        assert stage.state(job)["rescues"] == "1"

    def test_the_job_of_a_frozen_worker_is_back_within_the_bound_of_the_heartbeat(self, stage: Stage) -> None:
        (job,) = stage.put()
        hands = stage.hands()
        hands.take()
        agent = stage.agent()
        wait_for_open_gate(agent)
        hands.fall_silent()
        died = time.monotonic()
        wait_until(lambda: stage.state(job)["state"] == "pending", 60, "it is back in line")
        assert time.monotonic() - died <= (STUCK + CONFIRM + 3 * SWEEP) * SLACK
        assert stage.state(job)["last_reason"] in {"lock_expired", "lock_without_heartbeat", "worker_dead"}

    def test_the_old_attempt_is_refused_and_the_next_one_runs(self, stage: Stage) -> None:
        (job,) = stage.put()
        hands, other = stage.hands(), stage.hands()
        (old,) = hands.take()
        agent = stage.agent()
        wait_for_open_gate(agent)
        hands.vanish()
        wait_until(lambda: stage.state(job)["state"] == "pending", 60)
        assert stage.queue.complete(old) == "refused"
        (new,) = other.take()
        assert (new.id, new.attempt, new.rescues) == (job, 2, 1)
        assert stage.queue.complete(new) == "completed"

    def test_a_fleet_that_died_is_recovered_by_itself_after_patience(self, stage: Stage) -> None:
        jobs = stage.put(12)
        fleet = [stage.hands() for _ in range(3)]
        for hands in fleet:
            hands.take(4)
        agent = stage.agent()
        wait_for_open_gate(agent)
        for hands in fleet:
            hands.vanish()
        wait_until(lambda: all(stage.state(job)["state"] == "pending" for job in jobs), 90, "all are back")
        told = kinds(agent)
        assert "brake_engaged" in told
        assert told.index("brake_engaged") < told.index("requeued")
        assert stage.rescued() == 12

    def test_an_observing_agent_finds_and_tells_but_moves_nothing(self, stage: Stage) -> None:
        (job,) = stage.put()
        hands = stage.hands()
        hands.take()
        agent = stage.agent(mode="observe")
        wait_for_open_gate(agent)
        hands.vanish()
        wait_until(lambda: "confirmed" in kinds(agent), 60, "it is told")
        go_on(agent, 3)
        assert stage.state(job)["state"] == "active"
        assert stage.rescued() == 0


@pytest.fixture
def busy(make_stage: Callable[..., Stage]) -> tuple[Stage, Agent, list[Hands], list[str]]:
    """Two healthy workers with four jobs each, and a leader with an open gate, on a Redis of their own."""
    stage = make_stage(appendonly=True, maxmemory="60mb")
    jobs = stage.put(8)
    fleet = [stage.hands() for _ in range(2)]
    for hands in fleet:
        hands.take(4)
    agent = stage.agent()
    wait_for_open_gate(agent)
    return stage, agent, fleet, jobs


def unharmed(stage: Stage, fleet: list[Hands], jobs: list[str]) -> None:
    """Nothing was taken from anybody, and every attempt can still be ended by its worker."""
    assert stage.rescued() == 0
    assert {stage.state(job)["state"] for job in jobs} == {"active"}
    assert not [hands.lost for hands in fleet if hands.lost]
    for hands in fleet:
        leases, hands.leases = hands.leases, []
        assert {stage.queue.complete(lease) for lease in leases} == {"completed"}


class TestTroubleOfRedis:
    def test_a_frozen_redis_costs_no_healthy_worker_a_job(self, busy: Any) -> None:
        stage, agent, fleet, jobs = busy
        stage.server.freeze()
        closed = wait_until(lambda: "unreachable" in gate(agent)[1], 60, "the gate closes")
        assert closed
        threading.Event().wait(STUCK)  # longer than any threshold
        stage.server.thaw()
        go_on(agent)
        wait_for_open_gate(agent)
        go_on(agent)
        unharmed(stage, fleet, jobs)

    def test_a_redis_out_of_memory_costs_no_healthy_worker_a_job(self, busy: Any) -> None:
        """C22"""
        stage, agent, fleet, jobs = busy
        stage.client.config_set("maxmemory", "1mb")
        with pytest.raises(redis.OutOfMemoryError):
            stage.client.set("more", "x")
        wait_until(lambda: "oom" in gate(agent)[1], 60, "the gate closes because of it")
        beats = fleet[0].beats
        wait_until(lambda: fleet[0].beats > beats + 5, 60, "heartbeats go on")
        stage.client.config_set("maxmemory", "60mb")
        wait_for_open_gate(agent)
        go_on(agent)
        unharmed(stage, fleet, jobs)

    def test_a_redis_that_is_read_only_for_a_while_costs_no_healthy_worker_a_job(self, busy: Any) -> None:
        """C23"""
        stage, agent, fleet, jobs = busy
        stage.client.execute_command("REPLICAOF", "127.0.0.1", "1")
        wait_until(lambda: set(gate(agent)[1]) & {"readonly", "role"}, 60, "the gate closes because of it")
        threading.Event().wait(STUCK)
        stage.client.execute_command("REPLICAOF", "NO", "ONE")
        wait_for_open_gate(agent)
        go_on(agent)
        unharmed(stage, fleet, jobs)

    def test_a_busy_redis_ends_the_sweep_and_the_next_one_works(self, busy: Any) -> None:
        """C77"""
        stage, agent, fleet, jobs = busy
        stage.client.config_set("busy-reply-threshold", "100")
        slow = redis.Redis.from_url(stage.server.url, socket_timeout=60)
        script = "local t = redis.call('TIME') local e = t[1] + 3 repeat t = redis.call('TIME') until t[1] + 0 >= e"
        noticed = threading.Event()

        def occupy() -> None:
            for _ in range(5):  # until the agent has fallen into it
                if not noticed.is_set():
                    slow.eval(script, 0)

        busy_thread = threading.Thread(target=occupy, daemon=True)
        busy_thread.start()
        wait_until(lambda: set(gate(agent)[1]) & {"busy", "unreachable"}, 60, "the gate closes because of it")
        noticed.set()
        busy_thread.join(60)
        slow.close()
        wait_for_role(agent, Role.LEADER)
        go_on(agent)
        wait_until(lambda: "busy" in gate(agent)[1] or gate(agent)[0], 60)
        wait_for_open_gate(agent)
        unharmed(stage, fleet, jobs)

    def test_trouble_that_costs_the_lease_before_a_sweep_falls_into_it_closes_the_gate_too(self, stage: Stage) -> None:
        agent = stage.agent(start=False)
        agent._elect()
        agent._sweep()
        stage.server.stop()
        with pytest.raises(DutyFailedError):
            agent._elect()
        agent._sweep()
        assert "unreachable" in gate(agent)[1]
        agent.stop()

    def test_connections_cut_for_everybody_cost_no_worker_a_job(self, busy: Any) -> None:
        """They come back at once, which is sooner than gone_after and confirm_after."""
        stage, agent, fleet, jobs = busy
        for kind in ("pubsub", "normal"):
            stage.client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        for hands in fleet:
            hands.connect()
        go_on(agent, 6)
        unharmed(stage, fleet, jobs)

    def test_a_restarted_redis_makes_all_subscriptions_vanish_and_costs_no_job(self, busy: Any) -> None:
        stage, agent, fleet, jobs = busy
        stage.server.restart()
        for hands in fleet:
            wait_until(lambda hands=hands: _connected(hands), 30, "the worker is back")
        wait_until(lambda: set(gate(agent)[1]) & {"restarted", "unreachable", "young"}, 60)
        wait_for_open_gate(agent)
        go_on(agent)
        unharmed(stage, fleet, jobs)


def _connected(hands: Hands) -> bool:
    try:
        hands.connect()
    except redis.RedisError:
        return False
    return True


class TestARedisThatComesAndGoes:
    def test_it_may_be_away_at_the_start(self, stage: Stage) -> None:
        stage.server.stop()
        agent = stage.agent()
        wait_until(lambda: agent.board.view().not_ready(), 30)
        wait_until(lambda: agent.board.view().agent.redis_trouble, 30, "it says what is wrong")
        stage.server.start()
        wait_for_role(agent, Role.LEADER)
        go_on(agent)
        assert agent.board.view().not_ready() == ""

    def test_restarted_five_times_it_goes_on_and_no_thread_is_left_over(self, stage: Stage) -> None:
        """C83"""
        agent = stage.agent()
        wait_for_role(agent, Role.LEADER)
        go_on(agent)
        before = threading.active_count()
        for _ in range(5):
            stage.server.restart()
            go_on(agent, 2)
        wait_until(lambda: threading.active_count() <= before, 30, "there are as many threads as before")
        stage.put()
        wait_until(lambda: any(one.queue == "mail" for one in agent.board.view().queues), 30, "it sees what is new")

    def test_a_lost_script_cache_is_not_noticed(self, stage: Stage) -> None:
        stage.put()
        agent = stage.agent()
        wait_for_role(agent, Role.LEADER)
        for _ in range(5):
            stage.client.script_flush()
            go_on(agent, 1)
        assert role(agent) is Role.LEADER
        assert agent.board.view().agent.redis_up


def test_a_hung_look_turns_health_red_and_the_election_goes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.put()
    agent = stage.agent()
    wait_for_role(agent, Role.LEADER)
    go_on(agent)
    let_go = threading.Event()
    adapter = agent._adapters["unstuck"]
    look = adapter.look
    monkeypatch.setattr(adapter, "look", lambda queues: let_go.wait(60) and look(queues))
    wait_until(lambda: [d.name for d in agent.board.view().overdue] == ["sweep"], 60, "the sweep is overdue")
    assert agent.board.view().agent.duties["sweep"].missed
    assert role(agent) is Role.LEADER
    let_go.set()
    wait_until(lambda: not agent.board.view().overdue, 60, "health is green again")


def test_it_may_be_stopped_twice_and_leaves_no_thread(stage: Stage) -> None:
    before = set(threading.enumerate())
    agent = stage.agent(start=False)
    agent.start()
    wait_for_role(agent, Role.LEADER)
    agent.stop()
    agent.stop()
    wait_until(lambda: not [one for one in threading.enumerate() if one not in before], 30, "its threads have ended")
