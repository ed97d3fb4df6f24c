"""The promises as invariants of random interleavings: the real scripts on a real server beside a model of what must be true.

Workers, agents and people act in any order; calls are repeated as after a lost reply; locks lapse, time passes, bodies are
damaged, the script cache is lost, a replica with an older state is promoted. After every step the whole queue is compared
with the model. A longer run: `UNSTUCK_TEST_STEPS=80 UNSTUCK_TEST_EXAMPLES=5000 pytest tests/redis/test_statemachine.py`;
a failing run prints the steps and a blob for `@reproduce_failure`.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from support.own_queue import OwnQueue, authority, condemned
from support.redis_server import RedisServer
from unstuck.duties.reclaiming import condemned_of
from unstuck.errors import Deposed, WrongType
from unstuck.judging import Rules, Watched, judge
from unstuck.model import (
    Action,
    Authority,
    Condemned,
    GateState,
    Lock,
    QueueSnapshot,
    Reason,
    Reclaimed,
)
from unstuck.model import (
    Lease as Seen,
)
from unstuck.protocol import Claim, Lease, Queue, RetryLimits, Terms, client, keys
from unstuck.protocol.together import Handed, complete_and_claim
from unstuck.queue import Limits
from unstuck.queues import unstuck as adapter
from unstuck.queues.unstuck import UnstuckAdapter

Q = "mail"
STEM = keys.stem(Q)
JOBS = [f"job-{i}" for i in range(10)]
WORKERS = [f"host:{i}:0000000{i}" for i in range(3)]
SLOTS = ["0", "1"]
# All times lie on a grid of minutes, so that the seconds a run takes decide nothing.
MINUTE = 60
TERMS = Terms(lock_ttl_ms=180_000, heartbeat_ms=60_000, abort_after_ms=120_000)
RECORD_TTL_MS = 180_000
RETRY = RetryLimits(max_attempts=3, retry_delay_ms=60_000)
THRESHOLD = 3.0 * MINUTE
LIMITS = Limits(stuck_after=THRESHOLD, gone_after=1.0, max_rescues=2, retry_delay=60.0, page=2)
ACTS = [
    *["enqueue"] * 6, *["claim"] * 6, *["heartbeat"] * 2, *["finish"] * 4, *["hand over"] * 3, *["connect"] * 2, *["disconnect"] * 2,
    *["time"] * 4, *["sweep"] * 4, *["reclaim"] * 5, *["cancel"] * 2, "retry", "retry", "drop", "leave", "progress", "promote",
    "elect", "restart an agent", "forget record", "lose a lock", "lose a lock", "flush scripts", "copy", "copy", "fail over",
    "damage", "ghost",
]  # fmt: skip
OPEN = GateState(open=True)
TTL_FIELDS = ("started_at", "heartbeat_at", "expected_by", "ready_at", "enqueued_at")


class Repeating:
    """A client each of whose calls is made twice: the first reply was lost. The second answer is what the caller gets."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.twice = False

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if self.twice:
            self._swallow(lambda: self._client.execute_command(*args, **options))
        return self._client.execute_command(*args, **options)

    def pipeline(self, **options: Any) -> Any:
        pipe = self._client.pipeline(**options)
        execute = pipe.execute

        def again(**how: Any) -> Any:
            if self.twice:
                queued = list(pipe.command_stack)
                execute(**how)
                pipe.command_stack = queued
            return execute(**how)

        pipe.execute = again  # type: ignore[method-assign]
        return pipe

    @staticmethod
    def _swallow(call: Callable[[], Any]) -> None:
        try:
            call()
        except redis.ResponseError:
            return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@dataclass
class Job:
    """What must be true of one job."""

    state: str
    op: str = ""
    token: str = ""
    worker: str = ""
    attempt: int = 0
    failures: int = 0
    rescues: int = 0
    cancelled: bool = False
    damage: str = ""  # body: number, type, none


@dataclass
class World:
    """What must be true of the queue."""

    jobs: dict[str, Job] = field(default_factory=dict)
    ops: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    fence: int = 0

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by


@dataclass
class Agent:
    """A leader, former or present, and what it remembers."""

    epoch: int
    house: tuple[str, str] = ("", "")
    now: float = 0.0
    memory: dict[str, Watched] = field(default_factory=dict)
    seen: list[tuple[Seen, tuple[str, str]]] = field(default_factory=list)  # evidence, fresh and stale

    @property
    def authority(self) -> Authority:
        return Authority(f"agent-{self.epoch}", self.epoch, *self.house)


class Interleavings(RuleBasedStateMachine):
    server: RedisServer
    plain: Any
    raw: Any  # gives bytes

    def __init__(self) -> None:
        super().__init__()
        self.plain.flushall()
        self.plain.script_flush()
        self.client = Repeating(self.plain)
        self.queue = Queue(self.client, Q, limits=RETRY)  # type: ignore[arg-type]
        self.adapter = UnstuckAdapter(self.plain, self.client)  # type: ignore[arg-type]
        self.world = World()
        self.handles: list[Lease] = []
        self.agents = [Agent(1)]
        self.listeners: dict[str, Any] = {}
        self.backup: tuple[dict[str, tuple[int, bytes]], World] | None = None
        self.serial = 0

    def teardown(self) -> None:
        for listener in self.listeners.values():
            listener.close()

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _fresh(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def _dump(self) -> dict[str, bytes]:
        names = sorted(self.plain.scan_iter(count=1000))
        pipe = self.raw.pipeline(transaction=False)
        for name in names:
            pipe.dump(name)
        return dict(zip(names, pipe.execute(), strict=True))

    def _contents(self) -> dict[str, Any]:
        """What every key holds, to be compared; a set has no order."""
        sets = [f"{STEM}held:{worker}" for worker in WORKERS]
        return {**self._dump(), **{name: self.plain.smembers(name) for name in sets}}

    def _state(self, job: str) -> str:
        return str(self.plain.hget(keys.job(Q, job), "state"))

    def _after_taking(self) -> None:
        """What a claim or a promotion may have done on its way: due jobs became pending, unusable ids were put aside."""
        aside = set(self.plain.lrange(keys.quarantine(Q), 0, -1))
        pending = set(self.plain.lrange(keys.pending(Q), 0, -1))
        for name, job in self.world.jobs.items():
            if job.state in {"pending", "scheduled"} and job.damage and name in aside:
                job.state = "quarantine"
            elif job.state == "scheduled" and name in pending:
                job.state = "pending"

    def _current(self, lease: Lease) -> bool:
        job = self.world.jobs.get(lease.id)
        return job is not None and job.state == "active" and job.token == lease.token

    def _ended(self, job: Job, state: str) -> None:
        job.state, job.worker, job.cancelled = state, "", False

    # -- acts: one rule for all, so that none is ever left out of a run ------------------------------------------------

    @rule(act=st.sampled_from(ACTS), data=st.data(), twice=st.booleans())
    def act(self, act: str, data: st.DataObject, *, twice: bool) -> None:
        def draw(*choices: Any) -> Any:
            return data.draw(st.sampled_from(choices))

        acts: dict[str, Callable[[], None]] = {
            "enqueue": lambda: self.enqueue(
                draw(*JOBS),
                delayed=draw(False, False, True),
                timed=draw(False, True),
                again=draw(False, True),
                twice=twice,
            ),
            "claim": lambda: self.claim(draw(*WORKERS), draw(*SLOTS), locked=draw(True, False), twice=twice),
            "heartbeat": lambda: self.heartbeat(draw(*WORKERS), draw("", "half"), twice=twice),
            "finish": lambda: self.finish(
                data, draw("complete", "fail", "fail", "fail for good", "release"), twice=twice
            ),
            "hand over": lambda: self.hand_over(draw(*WORKERS), twice=twice),
            "progress": lambda: self.progress(data),
            "connect": lambda: self.connect(draw(*WORKERS)),
            "disconnect": lambda: self.disconnect(draw(*WORKERS)),
            "forget record": lambda: self.forget_record(draw(*WORKERS)),
            "leave": lambda: self.leave(draw(*WORKERS), twice=twice),
            "cancel": lambda: self.cancel(draw(*JOBS), twice=twice),
            "retry": lambda: self.retry(draw(*JOBS), twice=twice),
            "drop": lambda: self.drop(draw(*JOBS), twice=twice),
            "promote": self.promote,
            "sweep": lambda: self.sweep(data, twice=twice),
            "reclaim": lambda: self.reclaim_on_forged_or_stale_evidence(data, draw(*Reason), twice=twice),
            "elect": self.elect_another,
            "restart an agent": lambda: self.restart_agent(data),
            "time": lambda: self.time_passes(draw(1, 2, 5, 5, 70)),
            "lose a lock": lambda: self.lose_lock(draw(*JOBS), draw("delete", "expire")),
            "flush scripts": self.script_flush,
            "copy": self.replica_copies,
            "fail over": self.failover,
            "damage": lambda: self.damage_body(draw(*JOBS), draw("number", "type")),
            "ghost": lambda: self.an_id_without_a_body(draw("pending", "scheduled", "active")),
        }
        acts[act]()

    # -- putting -----------------------------------------------------------------------------------------------------

    def enqueue(self, name: str, *, delayed: bool, timed: bool, again: bool, twice: bool) -> None:
        there = self.world.jobs.get(name)
        if there and there.damage == "type":
            return
        op = there.op if there and again else self._fresh("op")
        self.client.twice = twice
        answer = self.queue.enqueue(
            {"n": name}, id=name, delay=60.0 * MINUTE if delayed else 0, expected=2.0 * MINUTE if timed else None, op=op
        )
        state = "scheduled" if delayed else "pending"
        if there is None:
            self.world.jobs[name] = Job(state, op)
            self.world.count("enqueued")
            assert (answer.created, answer.state) == (True, state)
        else:
            assert (answer.created, answer.state) == (op == there.op, there.state)

    # -- workers -----------------------------------------------------------------------------------------------------

    def claim(self, worker: str, slot: str, *, locked: bool, twice: bool) -> None:
        terms = TERMS if locked else replace(TERMS, lock="none")
        self.client.twice = twice
        taken = self.queue.claim(worker, slot, terms, op=self._fresh("claim"))
        self._after_taking()
        self._took(worker, taken)

    def _took(self, worker: str, taken: Lease | Claim) -> None:
        if isinstance(taken, Claim):
            return
        job = self.world.jobs[taken.id]
        assert job.state in {"pending", "scheduled"}
        assert not job.damage
        assert (taken.attempt, taken.rescues, taken.failures) == (job.attempt + 1, job.rescues, job.failures)
        assert taken.token not in {lease.token for lease in self.handles}, "every attempt has a token of its own"
        job.state, job.token, job.worker, job.attempt = "active", taken.token, worker, taken.attempt
        self.world.count("started")
        self.handles = [*self.handles, taken][-14:]

    def heartbeat(self, worker: str, progress: str, *, twice: bool) -> None:
        held = [lease for lease in self.handles if lease.worker == worker]
        self.client.twice = twice
        _, answers = self.queue.heartbeat(
            worker, held, record_ttl_ms=RECORD_TTL_MS, progress={lease.id: progress for lease in held}
        )
        for lease, answer in zip(held, answers, strict=True):
            cancelled = self._current(lease) and self.world.jobs[lease.id].cancelled
            assert answer == ("lost" if not self._current(lease) else "cancelled" if cancelled else "ok")
            if self._current(lease) and self.plain.hget(keys.job(Q, lease.id), "lock") == "ttl":
                assert self.plain.get(keys.lock(Q, lease.id)) == lease.token, "a heartbeat sets a missing lock again"

    def progress(self, data: st.DataObject) -> None:
        if not self.handles:
            return
        lease = data.draw(st.sampled_from(self.handles))
        self.client.twice = False
        before = self._contents()
        job = self.world.jobs.get(lease.id)
        answer = self._unless_damaged(job, lambda: self.queue.report_progress(lease.id, lease.token, "x"))
        if answer is None:
            return
        assert (answer == "lost") is not self._current(lease)
        if answer == "lost":
            self.world.count("refused")
            self._nothing_but(before, "stats")

    def finish(self, data: st.DataObject, how: str, *, twice: bool) -> None:
        if not self.handles:
            return
        lease = data.draw(st.sampled_from(self.handles))
        current, job = self._current(lease), self.world.jobs.get(lease.id)
        op = f"{how}{lease.token}"
        slot = (lease.worker, f"{lease.slot}f")
        before = self._contents()
        self.client.twice = twice
        end: dict[str, Callable[[], str]] = {
            "complete": lambda: self.queue.complete(lease, op=op),
            "fail": lambda: self.queue.fail(lease, "boom", op=op),
            "fail for good": lambda: self.queue.fail(lease, "boom", permanent=True, op=op),
            "release": lambda: self.queue.release(lease, "test", op=op),
        }
        answer = self._unless_damaged(job, end[how])
        if answer is None:
            return
        if self.world.ops.get(slot, ("", ""))[0] == op:  # S8: the answer of the last call of this slot
            assert answer == self.world.ops[slot][1]
            self._nothing_but(before)
            return
        if not current:
            if how == "complete" and job and job.state == "done" and job.token == lease.token:
                assert answer == "completed"
                self._nothing_but(before)
                return
            assert answer == "refused"  # S2
            self.world.count("refused")
            self.world.ops[slot] = op, answer
            self._nothing_but(before, "stats", "ops")
            return
        assert job is not None
        self.world.ops[slot] = op, answer
        if how == "complete":
            assert answer == "completed"
            self.world.count("completed")
            self._ended(job, "done")
        elif how == "release":
            assert answer == ("dead" if job.cancelled else "released")
            self.world.count("released")
            self._ended(job, "dead" if job.cancelled else "pending")
        else:
            job.failures += 1
            buried = job.cancelled or how == "fail for good" or job.failures >= RETRY.max_attempts
            assert answer == ("dead" if buried else "scheduled")
            self.world.count("failed")
            self._ended(job, answer)

    def hand_over(self, worker: str, *, twice: bool) -> None:
        """Complete what the slots of a worker hold, or once held, and claim anew, in one script."""
        last = {lease.slot: lease for lease in self.handles if lease.worker == worker}
        if not last:
            return
        some = [
            Handed(lease, op=f"complete{lease.token}", claim_op=f"{int(self._fresh('')):016x}")
            for lease in last.values()
        ]
        self.client.twice = twice
        answers = complete_and_claim(self.queue, worker, TERMS, some)
        self._after_taking()
        for one, answer in zip(some, answers, strict=True):
            job = self.world.jobs.get(one.lease.id)
            if answer is None:
                # Nothing was done for it, or this is the repetition of a completion whose claim was empty.
                if job is None or not self._current(one.lease) or job.damage or self._state(one.lease.id) != "done":
                    continue
                assert twice
            assert job is not None
            assert self._current(one.lease)
            assert (job.damage, job.cancelled) == ("", False)
            self.world.ops[worker, f"{one.lease.slot}f"] = f"complete{one.lease.token}", "completed"
            self.world.count("completed")
            self._ended(job, "done")
            if answer is not None:
                assert answer[0] == "completed"
                self._took(worker, answer[1])

    def _nothing_but(self, before: dict[str, Any], *parts: str) -> None:
        after = self._contents()
        changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        assert changed <= {STEM + part for part in parts}, f"a refusal or a repetition changed {changed}"

    def connect(self, worker: str) -> None:
        self.client.twice = False
        if worker not in self.listeners:
            listener = self.plain.pubsub()
            listener.ssubscribe(keys.control(Q, worker))
            assert listener.get_message(timeout=10)
            self.listeners[worker] = listener
        self.queue.register(worker, control=True, record_ttl_ms=RECORD_TTL_MS)

    def disconnect(self, worker: str) -> None:
        if listener := self.listeners.pop(worker, None):
            listener.sunsubscribe()
            while (message := listener.get_message(timeout=10)) and message["type"] != "sunsubscribe":
                pass
            listener.close()

    def forget_record(self, worker: str) -> None:
        self.plain.delete(keys.worker(Q, worker))

    def leave(self, worker: str, *, twice: bool) -> None:
        self.client.twice = twice
        holds = any(job.state == "active" and job.worker == worker for job in self.world.jobs.values())
        assert self.queue.leave(worker, SLOTS) is not holds
        if not holds:
            for slot in SLOTS:
                self.world.ops.pop((worker, f"{slot}f"), None)

    # -- people ------------------------------------------------------------------------------------------------------

    def cancel(self, name: str, *, twice: bool) -> None:
        job = self.world.jobs.get(name)
        self.client.twice = twice
        answer = self._unless_damaged(job, lambda: self.queue.cancel(name, op=self._fresh("cancel")))
        if job is None or answer is None:
            assert answer in {None, "missing"}
        elif job.state == "active":
            assert answer == "told"
            job.cancelled = True
        elif job.state in {"pending", "scheduled"}:
            assert answer == "dead"
            job.state = "dead"
        else:
            assert answer == "ended"

    def retry(self, name: str, *, twice: bool) -> None:
        job = self.world.jobs.get(name)
        self.client.twice = twice
        answer = self._unless_damaged(job, lambda: self.queue.retry_dead(name, op=self._fresh("retry")))
        if job is None or answer is None:
            assert answer in {None, "missing"}
        elif job.state == "dead" or (job.state == "quarantine" and not job.damage):
            assert answer == "retried"
            job.state, job.failures, job.rescues = "pending", 0, 0
        else:
            assert answer == "not_dead"

    def drop(self, name: str, *, twice: bool) -> None:
        job = self.world.jobs.get(name)
        self.client.twice = twice
        answer = self.queue.drop_dead(name, op=self._fresh("drop"))
        gone = job is not None and job.state in {"dead", "quarantine"}
        assert (answer == "dropped") is gone
        if gone:
            del self.world.jobs[name]

    def _unless_damaged(self, job: Job | None, call: Callable[[], str]) -> str | None:
        before = self._contents()
        try:
            return call()
        except WrongType:
            assert job is not None
            assert job.damage
            self._nothing_but(before)
            return None

    # -- agents ------------------------------------------------------------------------------------------------------

    def elect_another(self) -> None:
        self.agents = [*self.agents, Agent(self.agents[-1].epoch + 1)][-3:]

    def restart_agent(self, data: st.DataObject) -> None:
        agent = data.draw(st.sampled_from(self.agents))
        agent.memory, agent.seen = {}, []

    def promote(self) -> None:
        self.client.twice = False
        self.queue.promote()
        self._after_taking()

    def _look(self, agent: Agent) -> QueueSnapshot:
        before = self._contents()
        (snapshot,) = self.adapter.look({Q: LIMITS})
        self._nothing_but(before)
        assert snapshot.error == ""
        agent.house = (self.plain.info("server")["run_id"], self.plain.info("replication")["master_replid"])
        agent.seen = [*agent.seen, *((lease, agent.house) for lease in snapshot.leases)][-20:]
        return snapshot

    def sweep(self, data: st.DataObject, *, twice: bool) -> None:
        """Two honest observations confirm_after apart, then a reclaim of what is confirmed."""
        agent = data.draw(st.sampled_from(self.agents))
        for _ in range(data.draw(st.sampled_from([1, 2, 3]))):
            agent.now += 1.0
            verdicts, agent.memory = judge(self._look(agent), agent.memory, OPEN, Rules(1.0, 1.0), agent.now)
        confirmed = [v for v in verdicts if v.confirmed and v.reason is not Reason.DEADLINE_PASSED]
        self._reclaim(agent, [condemned_of(verdict) for verdict in confirmed], agent.house, twice=twice)

    def reclaim_on_forged_or_stale_evidence(self, data: st.DataObject, reason: Reason, *, twice: bool) -> None:
        agent = data.draw(st.sampled_from(self.agents))
        if not agent.seen or data.draw(st.booleans()):
            self._look(agent)
        if not agent.seen:
            return
        lease, house = data.draw(st.sampled_from(agent.seen[::-1]))
        condemned = Condemned(
            lease.job, lease.worker, lease.token, lease.heartbeat, lease.lock, reason, THRESHOLD, lease.owner_beat
        )
        self._reclaim(agent, [condemned], house, twice=twice)

    def _reclaim(self, agent: Agent, condemned: list[Condemned], house: tuple[str, str], *, twice: bool) -> None:
        if not condemned:
            return
        holds = [self._evidence_holds(one, house) for one in condemned]
        before = self._contents()
        self.client.twice = twice
        authority = Authority(agent.authority.owner, agent.epoch, *house)
        try:
            answers = self.adapter.reclaim(Q, condemned, LIMITS, authority)
        except Deposed:
            assert agent.epoch < self.world.fence
            self._nothing_but(before)
            return
        assert agent.epoch >= self.world.fence, "S6: only the agent whose epoch stands in the fence reclaims"
        self.world.fence = agent.epoch
        for one, told, held in zip(condemned, answers, holds, strict=True):
            self._reclaimed(one, told, held=held)
        if not any(holds):
            self._nothing_but(before, "fence", "ops")

    def _reclaimed(self, one: Condemned, told: Reclaimed, *, held: bool) -> None:
        if not held:
            assert told.action is Action.LOST_RACE, (one, told)
            return
        job = self.world.jobs[one.job]
        if job.damage:
            assert told.action is Action.DEAD_LETTERED
            job.state = "quarantine"
            return
        assert (job.state, job.token) == ("active", one.token), "S4"
        job.rescues += 1  # S7
        self.world.count("rescued")
        assert told.rescues == job.rescues
        if job.cancelled:
            assert (told.action, told.cause) == (Action.DEAD_LETTERED, "cancelled")
            self._ended(job, "dead")
        elif job.rescues > LIMITS.max_rescues:
            assert (told.action, told.cause) == (Action.DEAD_LETTERED, "max_rescues")
            self._ended(job, "dead")
        else:
            assert told.action is Action.REQUEUED
            self._ended(job, "scheduled" if job.rescues > 1 else "pending")

    def _evidence_holds(self, one: Condemned, house: tuple[str, str]) -> bool:
        """S4, said once more: what must still be so for the reclaim to be allowed."""
        if house != (self.plain.info("server")["run_id"], self.plain.info("replication")["master_replid"]):
            return False
        known = self.world.jobs.get(one.job)
        if known is not None and known.damage == "none":
            return self.plain.zscore(keys.active(Q), one.job) is not None
        if known is None or known.state != "active" or (known.token, known.worker) != (one.token, one.worker):
            return False
        body = self.plain.hgetall(keys.job(Q, one.job))
        seconds, micros = self.plain.time()
        now = seconds * 1000 + micros // 1000
        if one.reason is Reason.DEADLINE_PASSED:
            return "expected_by" in body and now > int(body["expected_by"])
        if body["heartbeat_at"] != one.heartbeat:
            return False
        if one.lock is Lock.MISSING and self.plain.exists(keys.lock(Q, one.job)):
            return False
        score = self.plain.zscore(keys.workers(Q), one.worker)
        same_beat = ("" if score is None else str(int(score))) == one.owner_beat
        if one.reason is Reason.WORKER_GONE:
            return same_beat and one.worker not in self.listeners
        if one.reason is Reason.WORKER_DEAD:
            return same_beat and not self.plain.exists(keys.worker(Q, one.worker))
        return now - int(one.heartbeat) >= THRESHOLD * 1000

    # -- what happens to Redis ---------------------------------------------------------------------------------------

    def time_passes(self, minutes: int) -> None:
        """Everything stored is that much older; what lives for a time lives that much shorter."""
        by = minutes * MINUTE * 1000
        for part in ("active", "started", "deadlines", "scheduled", "workers", "dead"):
            for member in self.plain.zrange(STEM + part, 0, -1):
                self.plain.zincrby(STEM + part, -by, member)
        for name, job in self.world.jobs.items():
            if job.damage in {"", "number"}:
                body = self.plain.hgetall(keys.job(Q, name))
                older = {name: int(body[name]) - by for name in TTL_FIELDS if name in body}
                if older:
                    self.plain.hset(keys.job(Q, name), mapping=older)
        for key in [*self.plain.scan_iter(f"{STEM}lock:*"), *self.plain.scan_iter(f"{STEM}worker:*")]:
            self.plain.pexpire(key, max(0, self.plain.pttl(key) - by))

    def lose_lock(self, name: str, how: str) -> None:
        if how == "delete":
            self.plain.delete(keys.lock(Q, name))
        else:
            self.plain.pexpire(keys.lock(Q, name), 0)

    def script_flush(self) -> None:
        self.plain.script_flush()

    def replica_copies(self) -> None:
        """A replica has everything up to here."""
        dump = {key: (max(0, self.plain.pttl(key)), value) for key, value in self._dump().items()}
        self.backup = {key: kept for key, kept in dump.items() if kept[1]}, copy.deepcopy(self.world)

    def failover(self) -> None:
        """The replica is promoted: what came after its copy is lost, and Redis has another history."""
        if self.backup is None:
            return
        dump, world = self.backup
        self.plain.flushdb()
        for key, (ttl, value) in dump.items():
            self.plain.restore(key, ttl, value)
        self.plain.execute_command("DEBUG", "CHANGE-REPL-ID")
        self.world = copy.deepcopy(world)

    # -- damage ------------------------------------------------------------------------------------------------------

    def damage_body(self, name: str, how: str) -> None:
        job = self.world.jobs.get(name)
        if job is None or job.state != "pending" or job.damage:
            return
        job.damage = how
        if how == "number":
            self.plain.hset(keys.job(Q, name), "attempt", "many")
        else:
            self.plain.set(keys.job(Q, name), "not a hash")

    def an_id_without_a_body(self, place: str) -> None:
        name = self._fresh("ghost-")
        self.world.jobs[name] = Job(place, damage="none")
        if place == "pending":
            self.plain.rpush(keys.pending(Q), name)
        else:
            self.plain.zadd(STEM + place, {name: 1})

    # -- what must be true -------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for number, job in enumerate(JOBS[:3]):
            self.enqueue(job, delayed=False, timed=number == 1, again=False, twice=False)
        for worker in WORKERS[:2]:
            self.connect(worker)
            self.claim(worker, "0", locked=True, twice=False)
        self._look(self.agents[0])

    @invariant()
    def every_job_is_in_exactly_one_place_and_everything_agrees(self) -> None:
        pipe = self.plain.pipeline(transaction=True)
        pipe.lrange(keys.pending(Q), 0, -1)
        pipe.lrange(keys.quarantine(Q), 0, -1)
        for part in ("scheduled", "active", "dead", "started", "deadlines"):
            pipe.zrange(STEM + part, 0, -1, withscores=True)
        pipe.hgetall(keys.stats(Q))
        pipe.get(keys.fence(Q))
        for worker in WORKERS:
            pipe.smembers(keys.held(Q, worker))
        names = list(self.world.jobs)
        for name in names:
            pipe.hgetall(keys.job(Q, name)).get(keys.lock(Q, name))
        pending, quarantine, scheduled, active, dead, started, deadlines, stats, fence, *rest = pipe.execute(
            raise_on_error=False
        )
        held = dict(zip(WORKERS, rest, strict=False))
        bodies = dict(zip(names, zip(rest[len(WORKERS) :: 2], rest[len(WORKERS) + 1 :: 2], strict=True), strict=True))
        places: dict[str, list[str]] = {name: [] for name in names}
        for place, ids in (("pending", pending), ("quarantine", quarantine)):
            for name in ids:
                places.setdefault(name, []).append(place)
        for place, scores in (("scheduled", scheduled), ("active", active), ("dead", dead)):
            for name, _ in scores:
                places.setdefault(name, []).append(place)
        beats = dict(active)
        for name, job in self.world.jobs.items():
            body, lock = bodies[name]
            if isinstance(body, dict) and body.get("state") == "done":
                places[name].append("done")
            assert places.pop(name) == [job.state], f"S3: {name}"
            running = job.state == "active" and not job.damage
            assert not running or (body["worker"], int(body["heartbeat_at"])) == (job.worker, beats[name])
            assert lock is None or (running and lock == job.token), f"{name} is {job.state} and has the lock {lock}"
            if not job.damage:
                self._body_agrees(name, job, body)
        assert not places, f"jobs that nobody knows: {places}"
        running = {name for name, job in self.world.jobs.items() if job.state == "active" and not job.damage}
        assert {name for name, _ in started} == running
        assert {name for name, _ in deadlines} <= running
        assert held == {
            worker: {name for name in running if self.world.jobs[name].worker == worker} for worker in WORKERS
        }
        assert int(fence or 0) == self.world.fence
        for name in ("enqueued", "started", "completed", "failed", "released", "rescued", "refused"):
            assert int(stats.get(name, 0)) == self.world.counts.get(name, 0), name

    @staticmethod
    def _body_agrees(name: str, job: Job, body: dict[str, str]) -> None:
        assert body["state"] == job.state
        counted = [int(body[field]) for field in ("attempt", "failures", "rescues")]
        assert counted == [job.attempt, job.failures, job.rescues], f"S1, S7: {name}"
        assert ("payload" in body) is (job.state != "done")
        assert body.get("token", "") == job.token or job.state not in {"active", "done"}
        assert ("cancelled_at" in body) is job.cancelled


def test_no_interleaving_breaks_a_promise(
    make_redis: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1, S2, S3, S4, S6, S7, S8, and the conservation of jobs; C1, C2, C11, C76."""
    # Compact all the time: in what order DUMP gives a hash table changes with every look, by its rehashing.
    redis_server = make_redis(
        **{f"{kind}_max_listpack_{what}": 1_000_000 for kind in ("hash", "zset") for what in ("entries", "value")}
    )
    monkeypatch.setattr(Interleavings, "server", redis_server, raising=False)
    monkeypatch.setattr(Interleavings, "plain", redis_server.client(), raising=False)
    monkeypatch.setattr(Interleavings, "raw", redis_server.client(decode_responses=False), raising=False)
    monkeypatch.setattr(client, "jitter_thousandths", lambda: 1_000)
    monkeypatch.setattr(adapter, "random", SimpleNamespace(randint=lambda least, most: 1_000))
    run_state_machine_as_test(
        Interleavings,
        settings=settings(
            max_examples=int(os.environ.get("UNSTUCK_TEST_EXAMPLES", "60")),
            stateful_step_count=int(os.environ.get("UNSTUCK_TEST_STEPS", "40")),
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_job_that_somebody_has_cancelled_does_not_run_again_when_its_worker_dies(redis_client: redis.Redis) -> None:
    """S7 all the same: the reclaim counts."""
    own = OwnQueue(redis_client)
    lease = own.held("running")
    assert own.queue.cancel("running") == "told"
    (answer,) = own.call("reclaim_jobs", *authority(own), *condemned(lease, own))
    assert answer == "dead_lettered:cancelled:1"
    body = own.job("running")
    assert (body["state"], body["cause"], body["rescues"]) == ("dead", "cancelled", "1")
    own.in_one_place_each()
    assert own.queue.retry_dead("running") == "retried"
    assert "cancelled_at" not in own.job("running")
