"""The faults, each by name, each counted, all drawn from one seed."""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import redis

from chaos.stage import Member, Stage, write_whole
from chaos.watching import Gates, Span

HOUR = 3600
DEAD_PORT = 1  # nobody listens there
BUSY = """local from = redis.call('TIME')
while true do
  local t = redis.call('TIME')
  if (t[1] - from[1]) * 1000 + (t[2] - from[2]) / 1000 >= tonumber(ARGV[1]) then return 1 end
end"""

REDIS_FAULTS = (
    "redis frozen",
    "redis restarted (AOF)",
    "redis killed (AOF)",
    "client pause all",
    "client pause write",
    "out of memory",
    "readonly",
    "noreplicas",
    "script flush",
    "busy script",
    "client kill normal",
    "client kill pubsub",
)
CLOCK_FAULTS = (
    "redis clock +1 h",
    "redis clock -1 h",
    "redis clock +1 h, a worker killed, and back",
    "redis clock +1 h, leader killed, and back",
)
AGENT_FAULTS = (
    "leader killed",
    "leader stopped",
    "leader stopped in mid-rescue",
    "agent clock +1 h",
    "agent clock -1 h",
)
FLEET_FAULTS = ("fleet killed",)
WORKER_FAULTS = (
    "worker killed",
    "worker stopped shortly",
    "worker stopped for long",
    "worker clock +1 h",
    "worker clock -1 h",
)
WORKER_WEIGHTS = (10, 6, 3, 1, 1)


class Faults:
    """Plays faults on a stage. `outages` are the times in which Redis or the leader was made unfit."""

    def __init__(self, stage: Stage, gates: Gates, seed: int, replace: Callable[[Member], None]) -> None:
        self.stage = stage
        self.gates = gates
        self.counts: Counter[str] = Counter()
        self.outages: list[Span] = []
        self.played: list[tuple[float, str]] = []
        self.trouble: list[str] = []
        self._ahead = 0  # seconds by which the clock of Redis is ahead
        self._replace = replace
        self._choice = random.Random(seed)
        self._workers_choice = random.Random(seed + 1)
        self.hold_workers = threading.Event()  # set: leave the workers alone for now
        self.plays: dict[str, Callable[[], None]] = {
            "redis frozen": self._frozen,
            "redis restarted (AOF)": lambda: self._restarted(kill=False),
            "redis killed (AOF)": lambda: self._restarted(kill=True),
            "client pause all": lambda: self._paused("ALL"),
            "client pause write": lambda: self._paused("WRITE"),
            "out of memory": self._full,
            "readonly": self._readonly,
            "noreplicas": self._noreplicas,
            "script flush": self._flushed,
            "busy script": self._busy,
            "client kill normal": lambda: self._cut("normal"),
            "client kill pubsub": lambda: self._cut("pubsub"),
            "redis clock +1 h": lambda: self._server_clock(HOUR),
            "redis clock -1 h": lambda: self._server_clock(-HOUR),
            "redis clock +1 h, a worker killed, and back": lambda: self._there_and_back(self._worker_killed),
            "redis clock +1 h, leader killed, and back": lambda: self._there_and_back(self._leader_killed),
            "leader killed": self._leader_killed,
            "leader stopped": self._leader_stopped,
            "leader stopped in mid-rescue": self._leader_stopped_in_rescue,
            "agent clock +1 h": lambda: self._clock_of("agent", HOUR),
            "agent clock -1 h": lambda: self._clock_of("agent", -HOUR),
            "fleet killed": self._fleet,
        }

    # -- playing

    def play(self, name: str) -> None:
        """One fault of Redis, of an agent or of the fleet, from its beginning to its end."""
        begun = time.monotonic()
        self.played.append((begun, name))
        self.stage.log(f"fault: {name}")
        self.plays[name]()
        self.counts[name] += 1
        if name in REDIS_FAULTS + CLOCK_FAULTS:
            self.outages.append((begun, time.monotonic()))

    def on_workers(self, until: threading.Event) -> None:
        """Play faults on single workers until told to stop."""
        chance = self._workers_choice
        while not until.wait(chance.uniform(1.0, 3.5)):
            name = chance.choices(WORKER_FAULTS, WORKER_WEIGHTS)[0]
            which, long, short = chance.random(), chance.uniform(0.6, 1.6), chance.uniform(0.2, 1.0)
            if self.hold_workers.is_set() or self.gates.brakes():  # a brake waits for signs of life to cease
                continue
            clock = "clock" in name
            candidates = [one for one in self.stage.of("worker") if not one.busy and (one.clock or not clock)]
            ready = [one for one in candidates if time.monotonic() - one.life[0][0] > 2.5]
            if not ready:
                continue
            member = ready[int(which * len(ready))]
            self.played.append((time.monotonic(), name))
            self.counts[name] += 1
            if clock:
                member.set_clock("+3600" if "+" in name else "-3600")
            elif name == "worker killed":
                member.kill()
                self._replace(member)
            else:
                times = self.stage.times
                seconds = short if "shortly" in name else times.bound_stuck + long
                member.busy = True
                threading.Thread(target=self._stop_for, args=(member, seconds), daemon=True).start()

    def _stop_for(self, member: Member, seconds: float) -> None:
        member.stop()
        time.sleep(seconds)
        member.go_on()
        member.busy = False

    # -- Redis

    def _admin(self, timeout: float = 20.0) -> Any:
        return contextlib.closing(self.stage.connect(socket_timeout=timeout))

    @property
    def _outage(self) -> float:
        return self.stage.times.stuck + self._choice.uniform(0.5, 1.5)

    def _frozen(self) -> None:
        assert self.stage.server
        self.stage.server.freeze()
        time.sleep(self._outage)
        self.stage.server.thaw()

    def _restarted(self, *, kill: bool) -> None:
        assert self.stage.server
        if kill:
            self.stage.server.kill()
            time.sleep(self._choice.uniform(0, 1))
            self.stage.server.start()
        else:
            self.stage.server.restart()

    def _paused(self, what: str) -> None:
        seconds = self._outage
        with self._admin() as client:
            client.execute_command("CLIENT", "PAUSE", round(seconds * 1000), what)
        time.sleep(seconds)

    def _full(self) -> None:
        with self._admin() as client:
            client.config_set("maxmemory", "100kb")
            time.sleep(self._outage)
            client.config_set("maxmemory", "0")

    def _readonly(self) -> None:
        with self._admin() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", str(DEAD_PORT))
            time.sleep(self._outage)
            client.execute_command("REPLICAOF", "NO", "ONE")

    def _noreplicas(self) -> None:
        with self._admin() as client:
            client.config_set("min-replicas-to-write", 1)
            time.sleep(self._outage)
            client.config_set("min-replicas-to-write", 0)

    def _flushed(self) -> None:
        for _ in range(3):
            with self._admin() as client:
                client.script_flush()
            time.sleep(self._choice.uniform(0.1, 0.4))

    def _busy(self) -> None:
        with self._admin() as client:
            client.config_set("busy-reply-threshold", 300)
            client.eval(BUSY, 0, str(round(self._choice.uniform(2000, 3000))))
            client.config_set("busy-reply-threshold", 5000)

    def _cut(self, kind: str) -> None:
        for _ in range(3):
            with self._admin() as client, contextlib.suppress(redis.ConnectionError):
                client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
            time.sleep(self._choice.uniform(0.05, 0.5))

    def _server_clock(self, seconds: int) -> None:
        """Set the clock of Redis for good; libfaketime looks at its file once a second."""
        assert self.stage.server_clock
        self._ahead += seconds
        write_whole(self.stage.server_clock, f"{self._ahead:+d}")
        time.sleep(1.5)  # its second, and a half: nothing tells when it has looked

    def _there_and_back(self, meanwhile: Callable[[], None]) -> None:
        self._server_clock(HOUR)
        time.sleep(2 * self.stage.times.heartbeat)  # what is written now is of the future afterwards
        meanwhile()
        self._server_clock(-HOUR)

    def _worker_killed(self) -> None:
        ready = [one for one in self.stage.of("worker") if not one.busy]
        if ready:
            member = self._in_the_middle_of_a_job(ready) or self._choice.choice(ready)
            member.kill()
            self._replace(member)

    def _in_the_middle_of_a_job(self, ready: list[Member]) -> Member | None:
        """One that holds a job at this moment; None if no such moment comes within 3 s."""
        until = time.monotonic() + 3
        with self._admin() as client:
            while time.monotonic() < until:
                names = client.keys("unstuck:*:held:*")  # …:held:<host>:<pid>:<8 hex>
                holding = {int(str(name).split(":")[-2]) for name in names}
                if found := [one for one in ready if one.pid in holding]:
                    return self._choice.choice(found)
                time.sleep(0.005)
        return None

    # -- agents

    def _leader_killed(self) -> None:
        leader = self.stage.leader()
        if leader is None:
            self.trouble.append("leader killed: nobody led")
            return
        leader.kill()
        time.sleep(self._choice.uniform(0.5, 2.0))
        self._replace(leader)

    def _leader_stopped(self, leader: Member | None = None) -> None:
        leader = leader or self.stage.leader()
        if leader is None:
            self.trouble.append("leader stopped: nobody led")
            return
        leader.stop()
        # The fault itself: frozen for longer than a lease and a window, so that another leads and judges meanwhile.
        time.sleep(2 * self.stage.times.lease + self.stage.times.stuck + self._choice.uniform(1.5, 2.5))
        leader.go_on()

    def _leader_stopped_in_rescue(self) -> None:
        """Kill a worker, then stop the leader about when it hands in the reclaim; its successor does it, and the fence stands."""
        times, leader = self.stage.times, self.stage.leader()
        ready = [one for one in self.stage.of("worker") if not one.busy]
        if leader is None or not ready:
            self.trouble.append("leader stopped in mid-rescue: nobody led")
            return
        victim = self._choice.choice(ready)
        victim.kill()
        self._replace(victim)
        time.sleep(times.gone + times.confirm + self._choice.uniform(0, 2 * times.sweep))
        self._leader_stopped(leader)

    def _clock_of(self, role: str, seconds: int) -> None:
        for member in self.stage.of(role):
            if member.clock:
                member.set_clock(f"{seconds:+d}")

    # -- the whole fleet

    def _fleet(self) -> None:
        self.hold_workers.set()
        time.sleep(0.1)
        fleet = [one for one in self.stage.of("worker") if not one.busy]
        for member in fleet:
            member.kill()
        for member in fleet:
            self._replace(member)
        time.sleep(self.stage.times.bound_stuck)
        self.hold_workers.clear()
