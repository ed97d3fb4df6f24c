"""Pollers, a queue, a Redis and an agent on a virtual clock. Deterministic: the same scenario and seed give the same run.

What is modelled: Redis serves one command at a time, `command` seconds each, so a flood of polls makes every poll slow. A
poller claims, runs its job, claims again; what it does in between is the way of polling (`Way`). The agent looks every two
seconds at the same counters as the real one, smooths them with the real functions, decides with the real policy, and keeps
the value from flapping as the real one does. Arrivals and run times belong to the jobs, so that two ways of polling are
compared on the very same jobs.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from unstuck import pacing
from unstuck.duties.measuring import Trend, follow
from unstuck.model import Totals
from unstuck.policies import POLICIES
from unstuck.policy import Policy

AGENT_EVERY = 2.0
BYTES_PER_JOB = 1_000


@dataclass(frozen=True, slots=True)
class Way:
    """How a worker polls, and who sets its interval."""

    name: str
    policy: str = "fixed"
    after_jobs: bool = False  # waits after a job as well: what the worker contract forbids
    grows: bool = True  # doubles its wait with each empty poll in a row
    wakes: bool = True  # the wait ends when a job comes
    memory_limit: int | None = None  # bytes; the penalty of the formula


FIXED_EVERY_POLL = Way("fixed interval", after_jobs=True, grows=False, wakes=False)
FIXED = Way("fixed interval, after empty polls", grows=False, wakes=False)
CONTRACT = Way("contract: formula", policy="formula")
CONTRACT_SLEEPING = Way("contract, --wake off", policy="formula", wakes=False)
CONTRACT_MEMORY = Way("contract: formula, memory penalty", policy="formula", memory_limit=200_000)
FLEET = Way("contract: fleet", policy="fleet")
FLEET_SLEEPING = Way("contract: fleet, --wake off, no growth", policy="fleet", grows=False, wakes=False)
NAIVE = Way("naive: formula on every poll", policy="formula", after_jobs=True, grows=False, wakes=False)
NAIVE_MEMORY = replace(NAIVE, name="naive, memory penalty", memory_limit=200_000)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens: rates are jobs per second, times are seconds."""

    pollers: int = 20
    rate: float = 12.0
    run_time: float = 0.0  # mean; drawn for each job from half to one and a half of it
    base: float = 1.0
    longest: float = 10.0
    command: float = 0.0001  # of Redis, per command
    burst: int = 600
    burst_at: float = 300.0
    until: float = 1200.0
    seed: int = 1
    fleet_rate: float = 100.0


@dataclass(slots=True)
class Sample:
    """The state at one moment."""

    at: float
    backlog: int
    polls: int  # commands so far
    interval: float
    reply_time: float = 0.0  # of all commands so far together


@dataclass(slots=True)
class Run:
    """What came of it."""

    way: Way
    scenario: Scenario
    samples: list[Sample] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)  # when it became ready, how long it waited
    polls: int = 0
    reply_time: float = 0.0  # of all commands together
    left: list[float] = field(default_factory=list)  # ready times of the jobs that nobody took

    def waits_since(self, at: float) -> list[float]:
        """Waits of the jobs that came from then on; of those still waiting, as long as they have waited so far."""
        begun = [wait for ready, wait in self.waits if ready >= at]
        return sorted(begun + [self.scenario.until - ready for ready in self.left if ready >= at])

    def p95(self, since: float | None = None) -> float:
        """The 95th percentile of the waits, in seconds."""
        waits = self.waits_since(self.scenario.burst_at if since is None else since)
        return waits[min(len(waits) - 1, int(0.95 * len(waits)))] if waits else 0.0

    def recovery(self, calm: int = 20) -> float:
        """Seconds from the burst until the backlog is at most `calm` for the first time; infinite if it never is."""
        after = (s.at for s in self.samples if s.at > self.scenario.burst_at and s.backlog <= calm)
        return next(after, float("inf")) - self.scenario.burst_at

    def p95_over_time(self, window: float = 30.0) -> list[tuple[float, float]]:
        """The 95th percentile of the waits of the jobs claimed in each window; nothing where none was."""
        claimed: dict[int, list[float]] = {}
        for ready, wait in self.waits:
            claimed.setdefault(int((ready + wait) // window), []).append(wait)
        return [((n + 1) * window, sorted(one)[int(0.95 * (len(one) - 1))]) for n, one in sorted(claimed.items())]

    def reply_time_between(self, since: float, until: float) -> float:
        """Mean time between sending a command and its reply, in seconds."""
        inside = [s for s in self.samples if since <= s.at <= until]
        polls = inside[-1].polls - inside[0].polls
        return (inside[-1].reply_time - inside[0].reply_time) / polls if polls else 0.0

    def polls_per_second(self, since: float, until: float) -> float:
        """Commands per second between two moments."""
        inside = [s for s in self.samples if since <= s.at <= until]
        return (inside[-1].polls - inside[0].polls) / (inside[-1].at - inside[0].at)


class Simulation:
    """One run. Events are (time, number, kind, poller); the number keeps equal times in order."""

    def __init__(self, way: Way, scenario: Scenario, every: float = 1.0) -> None:
        self.way, self.scenario, self.every = way, scenario, every
        self.run_of = Run(way, scenario)
        self._policy: Policy = POLICIES[way.policy]
        self._rules = pacing.PacingRules(
            base_interval=scenario.base, max_interval=scenario.longest, fleet_rate=scenario.fleet_rate
        )
        self._interval = scenario.base
        self._held: pacing.Held | None = None
        self._trend = Trend()
        self._events: list[tuple[float, int, str, int]] = []
        self._number = 0
        self._redis_free = 0.0
        self._pending: deque[tuple[float, float]] = deque()  # ready at, run time
        self._tokens = 0
        self._blocked: deque[tuple[int, int]] = deque()  # poller, number of its wait
        self._wait_of = [0] * scenario.pollers
        self._misses = [0] * scenario.pollers
        self._counts = [0, 0, 0, 0.0]  # enqueued, started, completed, delay in ms
        self._chance = random.Random(scenario.seed + 7919)  # of the pollers; jobs have their own

    def run(self) -> Run:
        """All of it."""
        scenario = self.scenario
        for poller in range(scenario.pollers):
            self._push(self._chance.uniform(0, scenario.base), "poll", poller)
        jobs = self._jobs()
        upcoming = next(jobs, None)
        self._push(0.0, "look", 0)
        self._push(0.0, "sample", 0)
        while self._events:
            at, _, kind, who = heapq.heappop(self._events)
            while upcoming is not None and upcoming[0] <= at:
                self._arrive(*upcoming)
                upcoming = next(jobs, None)
                if self._events and self._events[0][0] < at:  # an arrival woke somebody who comes first
                    self._events_put_back(at, kind, who)
                    at, _, kind, who = heapq.heappop(self._events)
            if at > scenario.until:
                break
            self._handle(at, kind, who)
        self.run_of.left = [ready for ready, _ in self._pending]
        return self.run_of

    def _jobs(self) -> Iterator[tuple[float, float]]:
        """Arrival and run time of every job, in order."""
        scenario, chance = self.scenario, random.Random(self.scenario.seed)
        at, burst = 0.0, scenario.burst
        while True:
            at = at + chance.expovariate(scenario.rate) if scenario.rate > 0 else float("inf")
            while burst and at >= scenario.burst_at:
                burst -= 1
                yield scenario.burst_at, scenario.run_time * chance.uniform(0.5, 1.5)
            if at > scenario.until:
                return
            yield at, scenario.run_time * chance.uniform(0.5, 1.5)

    def _push(self, at: float, kind: str, who: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, kind, who))

    def _events_put_back(self, at: float, kind: str, who: int) -> None:
        # With number 0 it stays ahead of what was pushed since for the same time.
        heapq.heappush(self._events, (at, 0, kind, who))

    def _command(self, at: float) -> float:
        """One command sent at this time: when it has been carried out."""
        self._redis_free = max(self._redis_free, at) + self.scenario.command
        self.run_of.polls += 1
        self.run_of.reply_time += self._redis_free - at
        return self._redis_free

    def _arrive(self, at: float, run_time: float) -> None:
        self._pending.append((at, run_time))
        self._counts[0] += 1
        while self._blocked:
            poller, number = self._blocked.popleft()
            if self._wait_of[poller] == number:
                self._wake(poller, at)
                return
        self._tokens = min(1000, self._tokens + 1)

    def _wake(self, poller: int, at: float) -> None:
        self._wait_of[poller] += 1
        self._misses[poller] = 0
        self._push(at, "poll", poller)

    def _handle(self, at: float, kind: str, who: int) -> None:
        match kind:
            case "poll":
                self._push(self._command(at), "answer", who)
            case "answer":
                self._answer(at, who)
            case "done":
                self._counts[2] += 1
                if self.way.after_jobs:
                    self._sleep(at, who, self._interval)
                else:
                    self._push(at, "poll", who)
            case "block":
                self._block(at, who)
            case "look":
                self._look(at)
            case "sample":
                self.run_of.samples.append(
                    Sample(at, len(self._pending), self.run_of.polls, self._interval, self.run_of.reply_time)
                )
                self._push(at + self.every, "sample", 0)
            case _:  # the end of a wait: `kind` is its number
                if self._wait_of[who] == int(kind):
                    self._wait_of[who] += 1
                    self._push(at, "poll", who)

    def _answer(self, at: float, who: int) -> None:
        if self._pending:
            ready, run_time = self._pending.popleft()
            self.run_of.waits.append((ready, at - ready))
            self._counts[1] += 1
            self._counts[3] += (at - ready) * 1000
            self._misses[who] = 0
            self._push(at + run_time, "done", who)
            return
        self._tokens = 0
        self._misses[who] += 1
        if self.way.wakes:
            self._push(self._command(at), "block", who)
        else:
            self._sleep(at, who, self._wait(who))

    def _wait(self, who: int) -> float:
        factor = 2.0 ** min(30, self._misses[who] - 1) if self.way.grows else 1.0
        return min(self.scenario.longest, self._interval * factor)

    def _block(self, at: float, who: int) -> None:
        """BLPOP on the wake list."""
        if self._tokens:
            self._tokens -= 1
            self._wake(who, at)
            return
        self._blocked.append((who, self._wait_of[who]))
        self._sleep(at, who, self._wait(who))

    def _sleep(self, at: float, who: int, seconds: float) -> None:
        seconds *= self._chance.uniform(0.8, 1.2)
        if seconds > self.scenario.longest:
            seconds = 2 * self.scenario.longest - seconds
        self._push(at + seconds, str(self._wait_of[who]), who)

    def _look(self, at: float) -> None:
        """The agent's part: measure, decide, publish."""
        enqueued, started, completed, delay = self._counts
        totals = Totals(int(enqueued), int(started), int(completed), delay_ms=int(delay))
        waiting = len(self._pending)
        self._trend = follow(self._trend, totals, at, waiting=waiting)
        limit = self.way.memory_limit
        over = limit is not None and waiting * BYTES_PER_JOB > limit
        load = pacing.Load(self._trend.average_delay, waiting, over, self.scenario.pollers)
        self._held = pacing.steady(self._held, self._policy.decide(load, self._rules), self._rules)
        self._interval = self._held.decision.interval
        self._push(at + AGENT_EVERY, "look", 0)


def simulate(way: Way, scenario: Scenario, every: float = 1.0) -> Run:
    """Run one way of polling through a scenario; a sample every `every` seconds."""
    return Simulation(way, scenario, every).run()
