"""Alarms: what the agent itself finds worth telling a receiver, for people without Prometheus. Pure, no I/O.

`Watch.look(view)` is called every few seconds and answers which alarms are active now. A condition must hold for a while
before it becomes one, and must be gone for a while before it ends. What may go wrong is not knowing: while a queue's
data is old, the gate is closed or Redis is away, alarms about queues neither begin nor end.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from unstuck.model import QueueSnapshot, Standing, Verdict
from unstuck_exporters.agency import Role
from unstuck_exporters.ledger import QueueLedger

if TYPE_CHECKING:
    from unstuck.config.settings import Alarms
    from unstuck_exporters.view import View

CALM_SECONDS: Final = 10.0
"""How long a condition must be gone before its alarm ends, so that a flickering one is told once."""
MOST_JOBS: Final = 20
"""Jobs named in one alarm; the rest is counted."""
_LONGEST_TEXT: Final = 300

SEVERITIES: Final[Mapping[str, str]] = {
    "stuck_jobs": "warning",
    "dead_letters": "warning",
    "brake_engaged": "critical",
    "redis_away": "critical",
    "backlog_rising": "critical",
}
"""Every rule, with its severity."""

Key = tuple[str, str, str]
"""Rule, backend, queue; the last two are empty for what concerns no queue."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing worth telling, as it stands now."""

    rule: str
    summary: str  # one sentence
    since: float  # Unix time at which the condition began, seconds
    value: float
    backend: str = ""
    queue: str = ""
    jobs: tuple[Mapping[str, Any], ...] = ()  # ids and evidence, at most MOST_JOBS; never arguments
    jobs_omitted: int = 0
    evidence: Mapping[str, str | int | float] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What makes two alarms the same one."""
        return self.rule, self.backend, self.queue

    @property
    def severity(self) -> str:
        return SEVERITIES[self.rule]

    @property
    def fingerprint(self) -> str:
        """16 hex digits of the key."""
        return hashlib.sha256("\0".join(self.key).encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(slots=True)
class _Course:
    """A condition from its first sight on."""

    alarm: Alarm
    begun: float  # monotonic
    seen: float  # monotonic, last time it held
    firing: bool = False


@dataclass(slots=True)
class _Flow:
    """What is remembered of a queue between two looks."""

    dead: int | None = None
    arrivals: deque[tuple[float, int]] = field(default_factory=deque)  # monotonic, how many letters
    done: int | None = None
    base: int = 0  # jobs waiting when throughput stood still, or the fewest since
    still_since: float = 0.0  # monotonic


class Watch:
    """Remembers what it saw, so that it can say for how long."""

    def __init__(self, rules: Alarms) -> None:
        self._rules = rules
        self._courses: dict[Key, _Course] = {}
        self._flows: dict[tuple[str, str], _Flow] = {}
        self._responsible = False

    def look(self, view: View) -> dict[Key, Alarm] | None:
        """The alarms that are active now; None while another agent is the one to tell."""
        if not self._is_responsible(view):
            self._courses.clear()
            self._flows.clear()
            return None
        now, unknown = view.now, set[Key]()
        for wait, alarm in self._conditions(view, unknown):
            course = self._courses.get(alarm.key)
            if course is None:
                course = self._courses[alarm.key] = _Course(alarm, now, now)
            begun = course.alarm.since
            course.alarm, course.seen = replace(alarm, since=begun), now
            course.firing = course.firing or now - course.begun >= wait
        for key, course in list(self._courses.items()):
            if key in unknown:
                course.seen = now
            if now - course.seen >= (CALM_SECONDS if course.firing else 0.0) and course.seen < now:
                del self._courses[key]
        return {key: course.alarm for key, course in self._courses.items() if course.firing}

    def _is_responsible(self, view: View) -> bool:
        """The leader tells; without Redis, the one that led last, or that has never seen another."""
        if view.exports_queues or (view.agent.role is Role.STARTING and not view.agent.leader_seen):
            self._responsible = True
        elif view.agent.role is Role.FOLLOWER and view.agent.leader_seen:
            self._responsible = False
        return self._responsible

    def _conditions(self, view: View, unknown: set[Key]) -> Iterator[tuple[float, Alarm]]:
        rules = self._rules
        if not view.redis_up:
            trouble = view.agent.redis_trouble or "it has not answered yet"
            said = f"Redis does not answer the agent: {trouble}"[:_LONGEST_TEXT]
            yield rules.redis_away_for, Alarm("redis_away", said, view.wall, 1)
            unknown |= {key for key in self._courses if key[0] != "redis_away"}
            return
        gate = view.agent.gate
        blind = gate is not None and not gate.open
        here = set()
        for ledger in view.queues:
            place = ledger.backend, ledger.queue
            here.add(place)
            if not view.exports_queues or ledger.look is None or not ledger.fresh(view.now):
                unknown |= {(rule, *place) for rule in SEVERITIES}
                continue
            if blind:
                unknown |= {("stuck_jobs", *place), ("brake_engaged", *place)}
            elif ledger.judgement.stuck_jobs >= rules.stuck_jobs:
                yield rules.stuck_for, _stuck(ledger, view.wall)
            if ledger.brake.engaged and not blind:
                yield 0.0, _braked(ledger, view.wall)
            flow = self._flows.setdefault(place, _Flow())
            yield from self._dead(ledger, ledger.look.snapshot.dead, flow, view)
            yield from self._rising(ledger.look.snapshot, flow, view)
        for place in self._flows.keys() - here:
            del self._flows[place]

    def _dead(self, ledger: QueueLedger, dead: int, flow: _Flow, view: View) -> Iterator[tuple[float, Alarm]]:
        if flow.dead is not None and dead > flow.dead:
            flow.arrivals.append((view.now, dead - flow.dead))
        flow.dead = dead
        while flow.arrivals and view.now - flow.arrivals[0][0] > self._rules.dead_letters_within:
            flow.arrivals.popleft()
        come = sum(count for _, count in flow.arrivals)
        if come >= self._rules.dead_letters:
            yield 0.0, _buried(ledger, come, dead, view)

    def _rising(self, snapshot: QueueSnapshot, flow: _Flow, view: View) -> Iterator[tuple[float, Alarm]]:
        if snapshot.totals is None or snapshot.paused:
            flow.done = None
            return
        done = snapshot.totals.completed + snapshot.totals.failed
        if done != flow.done or not snapshot.waiting:
            flow.done, flow.base, flow.still_since = done, snapshot.waiting, view.now
        flow.base = min(flow.base, snapshot.waiting)
        still = view.now - flow.still_since
        if (
            snapshot.waiting > flow.base
            and snapshot.waiting >= self._rules.backlog_least
            and still >= self._rules.backlog_for
        ):
            said = (
                f"{snapshot.waiting} jobs of {snapshot.backend}/{snapshot.queue} wait, {snapshot.waiting - flow.base} more than "
                f"{still:.0f} s ago, and none has ended since"
            )
            facts = {"running": snapshot.running, "workers": snapshot.live_workers, "still_seconds": round(still, 1)}
            yield (
                0.0,
                Alarm(
                    "backlog_rising",
                    said,
                    view.wall - still,
                    snapshot.waiting,
                    snapshot.backend,
                    snapshot.queue,
                    evidence=facts,
                ),
            )


def _stuck(ledger: QueueLedger, wall: float) -> Alarm:
    stuck = [verdict for verdict in ledger.judgement.verdicts if verdict.standing is Standing.STUCK]
    count = ledger.judgement.stuck_jobs
    reasons = {reason: number for (reason,), number in ledger.judgement.stuck.items() if number}
    told = ", ".join(f"{number} {reason}" for reason, number in reasons.items())
    jobs = tuple(map(_job, stuck[:MOST_JOBS]))
    mode = {"mode": ledger.setup.mode.value, "reclaims": int(ledger.reclaims_allowed)}
    said = f"{_jobs(count)} of {ledger.backend}/{ledger.queue} {'is' if count == 1 else 'are'} stuck ({told})"
    since = ledger.judgement.since or wall
    return Alarm("stuck_jobs", said, since, count, ledger.backend, ledger.queue, jobs, count - len(jobs), mode)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _job(verdict: Verdict) -> Mapping[str, Any]:
    lease = verdict.lease
    return {
        "job": lease.job,
        "worker": lease.worker,
        "token": lease.token,
        "reason": verdict.reason.value if verdict.reason else "",
        "unchanged_seconds": round(verdict.unchanged, 1),
        "threshold_seconds": lease.threshold,
        "detail": verdict.detail[:_LONGEST_TEXT],
        "evidence": {
            name: value[:_LONGEST_TEXT] if isinstance(value, str) else value for name, value in lease.evidence.items()
        },
    }


def _braked(ledger: QueueLedger, wall: float) -> Alarm:
    brake = ledger.brake
    said = (
        f"Reclaiming in {ledger.backend}/{ledger.queue} is held back: {brake.detail or 'too many look stuck at once'}"
    )
    facts = {"condemned": brake.condemned, "in_flight": brake.in_flight}
    return Alarm("brake_engaged", said, wall, brake.condemned, ledger.backend, ledger.queue, evidence=facts)


def _buried(ledger: QueueLedger, come: int, dead: int, view: View) -> Alarm:
    ours = [
        e for e in view.events if e.kind == "dead_lettered" and (e.backend, e.queue) == (ledger.backend, ledger.queue)
    ]
    jobs = tuple(
        {"job": e.job, "worker": e.worker, "reason": e.reason, "detail": e.detail[:_LONGEST_TEXT]}
        for e in ours[-min(come, MOST_JOBS) :]
    )
    said = f"{_jobs(come)} of {ledger.backend}/{ledger.queue} became dead letters; there are {dead} now"
    facts = {"dead": dead}
    return Alarm(
        "dead_letters", said, view.wall, come, ledger.backend, ledger.queue, jobs, max(0, come - len(jobs)), facts
    )
