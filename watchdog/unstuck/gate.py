"""The gate: may verdicts be trusted now? While it is closed every verdict is inconclusive and nothing is reclaimed.

A Redis that refuses writes, restarts or loses keys makes every healthy job look dead; so does an agent that slept. Each
cause closes the gate at once and keeps it closed for one full window after it was last seen. Pure: no I/O, no clock of its
own; the caller hands in a `ServerSnapshot` and monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from unstuck.model import GateState, ServerSnapshot

CAUSES: Mapping[str, str] = MappingProxyType(
    {
        "loading": "Redis is loading its data",
        "readonly": "Redis refused writes as a replica, or is one",
        "oom": "Redis is out of memory and refuses writes",
        "busy": "a script or module kept Redis busy",
        "noreplicas": "Redis refused writes for want of replicas",
        "misconf": "Redis refused writes because it cannot save",
        "restarted": "another Redis process answers (run id changed)",
        "failover": "the replication history changed (a replica was promoted)",
        "role": "Redis changed its role",
        "evicting": "Redis evicts keys: missing locks and heartbeats prove nothing",
        "young": "Redis has been up for less than one window",
        "clock": "the clocks of Redis and of this agent advanced by different amounts",
        "late": "this agent's own sweep came late by more than one interval",
        "unreachable": "Redis did not answer this agent",
        "unwritable": "this agent's own write to Redis failed or hung",
        "watching": "this agent has watched for less than one full window",
    }
)
WRITE_ERRORS: Mapping[str, str] = MappingProxyType(
    {
        "OOM": "oom",
        "READONLY": "readonly",
        "BUSY": "busy",
        "NOREPLICAS": "noreplicas",
        "MISCONF": "misconf",
        "LOADING": "loading",
        "MASTERDOWN": "readonly",
    }
)
CLOCK_SLACK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate remembers between two sweeps. `window` and `interval` are seconds."""

    window: float = 30.0
    interval: float = 2.0
    watching_since: float | None = None  # monotonic; None: not watching yet
    last: ServerSnapshot | None = None
    last_at: float | None = None  # monotonic time of the last assessed look
    closed_until: Mapping[str, float] = field(default_factory=dict)  # cause -> monotonic
    trouble_at: float | None = None  # monotonic; when any cause was last seen
    state: GateState = field(default_factory=lambda: GateState(False, ("watching",)))

    def assess(self, server: ServerSnapshot, now: float) -> Gate:
        """The gate after a look at the server that ended at `now` (monotonic seconds)."""
        causes = present_causes(server)
        if self.last is not None and self.last_at is not None:
            causes |= changes(self.last, server, now - self.last_at)
            if now - self.last_at > 2 * self.interval:
                causes.add("late")
        since = now if self.watching_since is None else self.watching_since
        return replace(self, watching_since=since, last=server, last_at=now)._closed(causes, now)

    def failed(self, cause: str, now: float) -> Gate:
        """The gate after an exchange failed: cause is `unreachable`, `unwritable` or a write error's class."""
        return self._closed({cause}, now)

    def restarted_watch(self, now: float) -> Gate:
        """The gate of an agent that begins to watch now (it took over the lease, or its watch had a gap)."""
        return replace(self, watching_since=now, last=None, last_at=None)._closed(set(), now)

    def _closed(self, causes: set[str], now: float) -> Gate:
        until = {cause: end for cause, end in self.closed_until.items() if end > now}
        for cause in causes:
            until[cause] = now + self.window
        reasons = dict(until)
        up = self._uptime(now)
        if 0 <= up < self.window:  # below zero: its clock was set back since it started, which `clock` has told
            reasons["young"] = now + self.window - up
        if self.watching_since is None:
            reasons["watching"] = now + self.window
        elif now - self.watching_since < self.window:
            reasons["watching"] = self.watching_since + self.window
        state = GateState(
            open=not reasons,
            reasons=tuple(sorted(reasons)),
            opens_in=max((end - now for end in reasons.values()), default=0.0),
        )
        return replace(self, closed_until=until, trouble_at=now if causes else self.trouble_at, state=state)

    def _uptime(self, now: float) -> float:
        """Seconds for which Redis has been up, as far as is known; infinite where nothing is known."""
        if self.last is None or self.last_at is None:
            return math.inf
        return self.last.uptime + (now - self.last_at)

    def steady(self, now: float) -> float:
        """Seconds for which this agent has watched a Redis that was up, without a gap and without any cause."""
        if self.watching_since is None:
            return 0.0
        begun = self.watching_since if self.trouble_at is None else max(self.watching_since, self.trouble_at)
        up = self._uptime(now)
        return max(0.0, min(now - begun, up if up >= 0 else math.inf))

    @property
    def trustworthy_memory(self) -> bool:
        """Whether what was watched so far still counts: waiting for a full window does not spoil it."""
        return set(self.state.reasons) <= {"watching", "young"}


def present_causes(server: ServerSnapshot) -> set[str]:
    """Causes that one look shows by itself."""
    causes = set()
    if server.loading:
        causes.add("loading")
    if server.role != "master":
        causes.add("readonly")
    if server.maxmemory and server.used_memory >= server.maxmemory and server.policy == "noeviction":
        causes.add("oom")
    if server.good_replicas is not None and server.good_replicas < server.min_replicas:
        causes.add("noreplicas")
    return causes


def changes(before: ServerSnapshot, now: ServerSnapshot, elapsed: float) -> set[str]:
    """Causes that show between two looks `elapsed` seconds (monotonic) apart."""
    causes = set()
    if before.run_id != now.run_id:
        causes.add("restarted")
    if before.replication_id != now.replication_id:
        causes.add("failover")
    if before.role != now.role:
        causes.add("role")
    if now.evicted_keys > before.evicted_keys:
        causes.add("evicting")
    if abs((now.server_ms - before.server_ms) / 1000 - elapsed) > CLOCK_SLACK_SECONDS:
        causes.add("clock")
    if before.run_id == now.run_id:
        for error, cause in WRITE_ERRORS.items():
            if now.write_errors.get(error, 0) > before.write_errors.get(error, 0):
                causes.add(cause)
    return causes
