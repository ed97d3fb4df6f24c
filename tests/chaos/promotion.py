"""Chaos with promotions: a primary, a replica and three sentinels; what a promoted replica had not got is counted apart.

A promotion ends one history and begins another at `second_repl_offset`. An enqueue that was acknowledged beyond that point of
the old history, or in a history from which the last primary does not descend, may be gone; everything else is judged by the
streams as the last primary has them, which is the history that survived. Sentinels promote unasked, too, when a busy machine
lets a primary be silent for a second: so what descends from what is watched all the time, not taken from the faults. The old
primary lives on then, and whoever leads there, however open its gate, looks at no job that is accounted for.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from chaos import account
from chaos.account import ENDINGS, Tally
from chaos.faults import Faults
from chaos.histories import Histories
from chaos.report import Report
from chaos.run import Run, staged
from chaos.sentinel_stage import SentinelStage
from chaos.stage import ISOLATED, MIXED
from chaos.watching import Seen, without
from support.redis_server import RedisServer
from support.sentinels import PATIENCE_SECONDS
from support.waiting import wait_until
from unstuck.protocol import keys

PROMOTIONS = (
    "promotion after a kill",
    "promotion with a cut replication link",
    "promotion with a cut replication link",
    "promotion by command",
    "promotion after a kill",
)
AGENTS = ("leader killed", "leader stopped in mid-rescue")
FLEET = ("thread", "thread", "optimistic", "isolated")
COUNTED = "seconds that count for L1"


@dataclass(frozen=True)
class Promotion:
    """When the old primary went and the new one came (monotonic)."""

    begun: float
    ended: float


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
        old = wait_until(self._stage.primary, PATIENCE_SECONDS, "there is a primary")
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
        begun = time.monotonic()
        self._note(begun, self._stage.sentinels.failover())
        wait_until(self._stage.sentinels.agree, PATIENCE_SECONDS, "the old primary follows the new one")

    def _note(self, begun: float, new: RedisServer) -> None:
        wait_until(lambda: self._stage.primary() is new, PATIENCE_SECONDS, "the replica is promoted")
        ended = time.monotonic()
        self.promotions.append(Promotion(begun, ended))
        self.outages.append((begun, ended))

    def _rejoin(self, number: int, new: RedisServer) -> None:
        old = self._stage.servers[number]
        port = old.port
        old.close()
        self._stage.servers[number] = self._stage.sentinels.replica_of(new, port)
        new.wait_for_replicas(1, PATIENCE_SECONDS)
        wait_until(self._stage.sentinels.agree, PATIENCE_SECONDS, "the sentinels see both servers in order")


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
        events, lost = survived(client, [event for one in self.followers for event in one.events])
        tally.events_lost = len(lost)
        account.follow_tokens(events, tally)
        ledger = account.read_ledger(stage.effects, tally)
        ended = {event.token: event.at for event in lost if event.event in ENDINGS}
        for said in ledger:
            if said["kind"] == "commit" and any(one.begun - 3 < said["at"] < one.ended for one in faults.promotions):
                ended[said["token"]] = said["at"]
        ends = self.histories.ends()
        there = [
            span
            for member, opened in self.gates.opened
            for span in without([opened], self.histories.elsewhere(member, ends))
        ]
        fit = without(there, faults.outages)
        tally.more[COUNTED] = round(sum(end - begin for begin, end in fit), 1)
        given_up = lost_by_their_own_word(one.process.stderr for one in stage.members)
        cuts = [*faults.outages, *self.histories.cuts()]
        account.judge_rescues(events, stage, fit, cuts, tally, ended, given_up)
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


def survived(client: Any, followed: Iterable[Seen]) -> tuple[list[Seen], list[Seen]]:
    """(the events that the last primary has; those that were read from any server, and that it has not).

    Their times are those of the streams: a server's clock is the harness's own here, and what only a replica told for a while
    was read late.
    """
    offset = time.time() - time.monotonic()

    def dated(event: Seen) -> Seen:
        return replace(event, at=int(event.entry.partition("-")[0]) / 1000 - offset)

    kept: list[Seen] = []
    for queue in (MIXED, ISOLATED):
        for entry, fields in client.xrange(keys.events(queue)):
            names = tuple(fields.get(name, "") for name in ("event", "job", "worker", "token", "cause"))
            kept.append(dated(Seen(0.0, queue, entry, *names)))
    # Two primaries may give the same id in the same millisecond: it is the same event only if it says the same.
    read = {dated(event) for event in followed}
    return kept, sorted(read - set(kept), key=lambda event: event.at)


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
