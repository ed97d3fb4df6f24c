"""Chaos with promotions: a primary, a replica and three sentinels; what a promoted replica had not got is counted apart.

A promotion ends one history and begins another at `second_repl_offset`. An enqueue that was acknowledged beyond that point of
the old history, or in a history from which the last primary does not descend, may be gone; everything else is judged by the
streams as the last primary has them, which is the history that survived. Sentinels promote unasked, too, when a busy machine
lets a primary be silent for a second: so what descends from what is watched all the time, not taken from the faults.
"""

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import redis

from chaos import account
from chaos.account import ENDINGS, Tally
from chaos.faults import Faults
from chaos.report import Report
from chaos.run import Run, staged
from chaos.stage import ISOLATED, MIXED, Stage
from chaos.watching import Seen, Span, without
from support.ports import free_port
from support.programs import redis_server_program
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.protocol import keys

SERVICE = "chaos"
PROMOTIONS = (
    "promotion after a kill",
    "promotion with a cut replication link",
    "promotion with a cut replication link",
    "promotion by command",
    "promotion after a kill",
)
AGENTS = ("leader killed", "leader stopped in mid-rescue")
FLEET = ("thread", "thread", "optimistic", "isolated")


@dataclass(frozen=True)
class Promotion:
    """When the old primary went and the new one came (monotonic)."""

    begun: float
    ended: float


class SentinelStage(Stage):
    """The stage with two servers and three sentinels; `connect` goes to the primary that the sentinels name."""

    def start_servers(self) -> None:
        self.servers = {0: self._server()}
        self.servers[1] = self._server(replicaof=("127.0.0.1", self.servers[0].port))
        self.servers[0].wait_for_replicas(1)
        ports = [free_port() for _ in range(3)]
        for number, port in enumerate(ports):
            folder = self.folder / f"sentinel-{number}"
            folder.mkdir()
            (folder / "sentinel.conf").write_text(
                f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
                f"sentinel monitor {SERVICE} 127.0.0.1 {self.servers[0].port} 2\n"
                f"sentinel down-after-milliseconds {SERVICE} 1000\n"
                f"sentinel failover-timeout {SERVICE} 5000\n"
            )
            self.start(redis_server_program(), folder / "sentinel.conf", "--sentinel")
        self.sentinels = [
            redis.Redis(host="127.0.0.1", port=port, decode_responses=True, socket_timeout=2) for port in ports
        ]
        self.address = f"sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/{SERVICE}"
        wait_until(self.sentinels_agree, 30, "three sentinels know the replica and each other")

    def _server(self, **config: Any) -> RedisServer:
        return RedisServer(appendonly=True, min_replicas_max_lag=2, **config).start()

    def sentinels_agree(self) -> bool:
        """Whether every sentinel sees the replica in order, and both others."""
        for sentinel in self.sentinels:
            try:
                (told,) = sentinel.sentinel_masters().values()
                replicas = sentinel.sentinel_slaves(SERVICE)
            except (redis.RedisError, OSError, ValueError):
                return False
            well = [one for one in replicas if one["flags"] == "slave" and one["master-link-status"] == "ok"]
            if told["num-other-sentinels"] < 2 or told["flags"] != "master" or not well:
                return False
        return True

    def primary(self) -> RedisServer | None:
        """The server that the sentinels name, if it says so itself."""
        for sentinel in self.sentinels:
            with contextlib.suppress(redis.RedisError, OSError):
                _, port = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                for server in self.servers.values():
                    if server.port == int(port) and server.running:
                        with contextlib.closing(redis.Redis(port=server.port, socket_timeout=2)) as client:
                            return server if client.info("replication")["role"] == "master" else None
        return None

    def connect(self, **options: Any) -> Any:
        server = self.primary()
        if server is None:
            raise redis.ConnectionError("no primary now")
        given = {"socket_timeout": 3.0, "decode_responses": True, **options}
        return redis.Redis.from_url(server.url, retry=None, **given)

    def close(self) -> None:
        super().close()
        for server in self.servers.values():
            server.close()


class PromotionFaults(Faults):
    """Promotions among the faults."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.promotions: list[Promotion] = []
        self.plays |= {
            "promotion after a kill": lambda: self._promote(cut=False),
            "promotion with a cut replication link": lambda: self._promote(cut=True),
            "promotion by command": self._by_command,
        }

    @property
    def _stage(self) -> SentinelStage:
        assert isinstance(self.stage, SentinelStage)
        return self.stage

    def _pair(self) -> tuple[int, int]:
        old = self._stage.primary()
        (number,) = [number for number, server in self._stage.servers.items() if server is old]
        return number, 1 - number

    def _promote(self, *, cut: bool) -> None:
        stage = self._stage
        number, other = self._pair()
        old, new = stage.servers[number], stage.servers[other]
        if cut:  # the replica cannot log in again, so that its copy grows old
            with contextlib.closing(new.client()) as client:
                client.config_set("masterauth", "wrong")
            with contextlib.closing(old.client()) as client:
                client.execute_command("CLIENT", "KILL", "TYPE", "replica")
            time.sleep(self._choice.uniform(0.6, 1.2))
        begun = time.monotonic()
        old.kill()
        self._note(begun, new)
        with contextlib.closing(new.client()) as client:
            client.config_set("masterauth", "")
        self._rejoin(number, new)

    def _by_command(self) -> None:
        number, other = self._pair()
        begun = time.monotonic()
        self._stage.sentinels[0].execute_command("SENTINEL", "FAILOVER", SERVICE)
        self._note(begun, self._stage.servers[other])
        wait_until(self._stage.sentinels_agree, 30, "the old primary follows the new one")
        self.outages.append((begun, time.monotonic()))
        assert number in self._stage.servers

    def _note(self, begun: float, new: RedisServer) -> None:
        wait_until(lambda: self._stage.primary() is new, 30, "the replica is promoted")
        ended = time.monotonic()
        self.promotions.append(Promotion(begun, ended))
        self.outages.append((begun, ended))

    def _rejoin(self, number: int, new: RedisServer) -> None:
        old = self._stage.servers[number]
        port = old.port
        old.close()
        self._stage.servers[number] = RedisServer(
            port=port, appendonly=True, min_replicas_max_lag=2, replicaof=("127.0.0.1", new.port)
        ).start()
        new.wait_for_replicas(1, 30)
        wait_until(self._stage.sentinels_agree, 30, "the sentinels see both servers in order")


class Histories(threading.Thread):
    """Which replication history came out of which other, and at what offset: both servers are asked all the time."""

    def __init__(self, stage: SentinelStage) -> None:
        super().__init__(name="histories", daemon=True)
        self._stage = stage
        self._done = threading.Event()
        # History -> the one before it, and the offset at which that ended.
        self._before: dict[str, tuple[str, int]] = {}
        self._primaries: list[tuple[float, str, int]] = []  # (monotonic time, history, offset) of whoever was a primary

    def run(self) -> None:
        while not self._done.wait(0.05):
            for server in tuple(self._stage.servers.values()):
                with contextlib.suppress(redis.RedisError, OSError):
                    self._ask(server)

    def _ask(self, server: RedisServer) -> str:
        with contextlib.closing(redis.Redis(port=server.port, socket_timeout=2, decode_responses=True)) as client:
            told = client.info("replication")
        if told["role"] == "master":
            self._primaries.append((time.monotonic(), told["master_replid"], int(told["master_repl_offset"])))
        if int(told["second_repl_offset"]) >= 0:
            self._before[told["master_replid"]] = told["master_replid2"], int(told["second_repl_offset"])
        return str(told["master_replid"])

    def ends(self) -> dict[str, float]:
        """The histories that the last primary descends from, and where each ends; its own does not end."""
        primary = wait_until(self._stage.primary, 30, "there is a primary")
        history = self._ask(primary)
        self._done.set()
        found: dict[str, float] = {history: math.inf}
        while history in self._before:
            history, end = self._before[history]
            if history in found:
                break
            found[history] = end
        return found

    def doomed(self, ends: Mapping[str, float]) -> list[Span]:
        """The times in which a primary took writes that did not survive, until the history that did goes on elsewhere: an
        agent that led there, with whatever gate, did not look at the jobs that are accounted for.
        """
        found = []
        for history, (parent, end) in self._before.items():
            if history in ends and parent in ends:
                beyond = [at for at, one, offset in self._primaries if one == parent and offset >= end]
                after = [at for at, one, _ in self._primaries if one == history]
                if beyond and after and beyond[0] < after[0]:
                    found.append((beyond[0], after[0]))
        return found


class PromotionRun(Run):
    """Accounts by the history that survived."""

    def begin(self) -> None:
        assert isinstance(self.stage, SentinelStage)
        self.histories = Histories(self.stage)
        self.histories.start()
        super().begin()

    def account(self) -> Report:
        faults, stage = self.faults, self.stage
        assert isinstance(faults, PromotionFaults)
        tally = Tally(promotions=len(faults.promotions))
        client = stage.connect(socket_timeout=20)
        events, lost = survived(client, self.follower.events)
        tally.events_lost = len(lost)
        account.follow_tokens(events, tally)
        ledger = account.read_ledger(stage.effects, tally)
        ended = {event.token: event.at for event in lost if event.event in ENDINGS}
        for said in ledger:
            if said["kind"] == "commit" and any(one.begun - 3 < said["at"] < one.ended for one in faults.promotions):
                ended[said["token"]] = said["at"]
        ends = self.histories.ends()
        fit = without(self.gates.open, [*faults.outages, *self.histories.doomed(ends)])
        given_up = lost_by_their_own_word(one.process.stderr for one in stage.members)
        account.judge_rescues(events, stage, fit, faults.outages, tally, ended, given_up)
        account.settle(client, self.load.acknowledged, events, tally)
        self._excuse_lost(tally, ends)
        return self.report(tally)

    def _excuse_lost(self, tally: Tally, ends: Mapping[str, float]) -> None:
        """An enqueue beyond the end of its history is lost to replication; nothing else may be lost."""
        lost, tally.lost = tally.lost, []
        for one in lost:
            history, offset = self.load.marks.get(one.partition(":")[0], ("", 0))
            beyond = bool(history) and offset >= ends.get(history, 0)
            (tally.lost_to_replication if beyond and "state None" in one else tally.lost).append(one)


def lost_by_their_own_word(logs: Iterable[str]) -> dict[str, float]:
    """Tokens of attempts that workers logged as lost, with the earliest Unix time of that."""
    said: dict[str, float] = {}
    for line in (line for log in logs for line in log.splitlines() if '"event": "lost"' in line):
        told = json.loads(line)
        at = datetime.fromisoformat(told["time"]).timestamp()
        said[told["token"]] = min(at, said.get(told["token"], at))
    return said


def survived(client: Any, followed: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
    """(the events that the last primary has, with the times at which they were read; those that it has not)."""
    read = {(event.queue, event.entry): event for event in followed}
    offset = time.time() - time.monotonic()
    kept: list[Seen] = []
    for queue in (MIXED, ISOLATED):
        for entry, fields in client.xrange(keys.events(queue)):
            names = tuple(fields.get(name, "") for name in ("event", "job", "worker", "token", "cause"))
            now_there = Seen(int(entry.partition("-")[0]) / 1000 - offset, queue, entry, *names)
            seen = read.get((queue, entry))
            # Two primaries may give the same id in the same millisecond: what was followed is it only if it says the same.
            if seen is not None and replace(seen, at=now_there.at) == now_there:
                del read[queue, entry]
            else:
                seen = now_there
            kept.append(seen)
    return kept, list(read.values())


def run_promotions(
    *,
    jobs: int = 600,
    seed: int = 1,
    agents: int = 5,
    seconds: float = 60.0,
    folder: Path | None = None,
    log: Callable[[str], None] = print,
) -> Report:
    """Five agents, and promotions while workers and leaders are killed."""
    with staged(folder, seed, log, SentinelStage) as stage:
        assert isinstance(stage, SentinelStage)
        stage.start_servers()
        run = PromotionRun(
            "promotions",
            stage,
            jobs=jobs,
            seconds=seconds,
            seed=seed,
            agents=agents,
            fleet=FLEET,
            faults=PromotionFaults,
        )
        run.load.with_marks = True
        run.begin()
        run.play(lambda number: PROMOTIONS + AGENTS if number == 0 else PROMOTIONS[: 2 * (number % 2 + 1)])
        run.drain()
        return run.account()
