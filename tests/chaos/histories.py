"""The replication histories of a run with promotions: which came out of which, and which agent led in which, when."""

import contextlib
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis

from chaos.sentinel_stage import SentinelStage
from chaos.stage import Member
from chaos.watching import Span
from support.redis_server import RedisServer
from support.sentinels import PATIENCE_SECONDS
from support.waiting import wait_until
from unstuck.protocol import keys

LONGEST_SILENCE_SECONDS = 5.0  # of a primary, from its last answer until another is promoted


@dataclass(frozen=True)
class Renewal:
    """A leader's lease, renewed at a primary: whose, when (monotonic), in which history and how far on."""

    owner: str
    at: float
    history: str
    offset: int


class Histories(threading.Thread):
    """Which replication history came out of which other, at what offset, and who led in which: both servers are asked all the
    time.
    """

    def __init__(self, stage: SentinelStage) -> None:
        super().__init__(name="histories", daemon=True)
        self._stage = stage
        self._done = threading.Event()
        # History -> the one before it, and the offset at which that ended.
        self._before: dict[str, tuple[str, int]] = {}
        self._leases: dict[int, tuple[str, str]] = {}  # port -> (owner, until_ms) as last seen there
        self.renewals: list[Renewal] = []
        self._seen: dict[str, list[float]] = {}  # history -> when (monotonic) some primary had it: first and last

    def run(self) -> None:
        while not self._done.wait(0.05):
            for server in tuple(self._stage.servers.values()):
                with contextlib.suppress(redis.RedisError, OSError):
                    self._ask(server)

    def _ask(self, server: RedisServer) -> str:
        with contextlib.closing(redis.Redis(port=server.port, socket_timeout=2, decode_responses=True)) as client:
            pipe: Any = client.pipeline(transaction=False)
            owner, until, told = (
                pipe.hget(keys.LEADER, "owner").hget(keys.LEADER, "until_ms").info("replication").execute()
            )
        lease, history = (owner or "", until or ""), str(told["master_replid"])
        if self._leases.get(server.port) != lease and told["role"] == "master":
            self.renewals.append(Renewal(lease[0], time.monotonic(), history, int(told["master_repl_offset"])))
        self._leases[server.port] = lease
        if told["role"] == "master":
            self._seen.setdefault(history, [time.monotonic()] * 2)[1] = time.monotonic()
        if int(told["second_repl_offset"]) >= 0:
            self._before[history] = told["master_replid2"], int(told["second_repl_offset"])
        return history

    def ends(self) -> dict[str, float]:
        """The histories that the last primary descends from, and where each ends; its own does not end."""
        primary = wait_until(self._stage.primary, PATIENCE_SECONDS, "there is a primary")
        history = self._ask(primary)
        self._done.set()
        found: dict[str, float] = {history: math.inf}
        while history in self._before:
            history, end = self._before[history]
            if history in found:
                break
            found[history] = end
        return found

    def cuts(self) -> list[Span]:
        """The times in which a promotion, asked for or not, cut connections: from when the one before was last well until it was
        last seen as a primary, which sentinels end by closing what is left.
        """
        return [
            (at - LONGEST_SILENCE_SECONDS, max(at, self._seen.get(self._before.get(one, ("", 0))[0], [at, at])[1]) + 1)
            for one, (at, _) in self._seen.items()
        ]

    def elsewhere(self, member: Member, ends: Mapping[str, float]) -> list[Span]:
        """The times in which this agent led on a primary whose writes did not survive: from a renewal there to its next one
        where they did. It did not look at the jobs that are accounted for, whatever it said of its gate.
        """
        own = [one for one in self.renewals if self._stage.by_worker(one.owner) is member]
        found: list[Span] = []
        since: float | None = None
        for one in own:
            survived = one.offset <= ends.get(one.history, -1)
            if survived and since is not None:
                found.append((since, one.at))
                since = None
            elif not survived and since is None:
                since = one.at
        return found if since is None else [*found, (since, math.inf)]
