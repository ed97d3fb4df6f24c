"""What the board knows of the agent itself: its duties, its Redis, its lease. Guarded by the board's lock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from typing import Final

from unstuck.model import GateState, QueueSnapshot, ServerSnapshot
from unstuck_exporters import labels
from unstuck_exporters.ledger import PacedWhole
from unstuck_exporters.tally import COMMAND_BUCKETS, Histogram, Tally

_EVENT_KEYS: Final = tuple((event,) for event in labels.LEADER_EVENTS)
_CAUSE_KEYS: Final = tuple((cause,) for cause in labels.GATE_CAUSES)
_ERROR_KEYS: Final = tuple(product(labels.USUAL_OPERATIONS, labels.USUAL_FAILURES))
_MOST_OPERATIONS: Final = 64
INVALIDATIONS: Final = "invalidate"
"""The channel of the invalidation events, as a label."""


class Role(StrEnum):
    """The part of this agent among the others."""

    STARTING = "starting"  # it has not yet asked for the lease
    LEADER = "leader"
    FOLLOWER = "follower"  # judges nothing, exports no queue families
    ALONE = "alone"  # may not write, so it observes without a lease


@dataclass(frozen=True, slots=True)
class Duty:
    """One background duty and how its passes went. Instants are monotonic seconds unless they say otherwise."""

    name: str
    deadline: float | None  # seconds within which a pass must end, None: not watched
    alive_at: float  # end of the last pass, or when it was first expected
    passes: int = 0
    seconds: float = 0.0  # duration of the last pass
    ok: bool = False  # whether the last pass did its work
    ok_at: float | None = None  # Unix time of the last pass that did
    truncated: bool = False
    missed: int = 0
    detail: str = ""  # one sentence, where the last pass failed

    def again(self, deadline: float, now: float) -> Duty:
        """The same duty, expected anew with a deadline that runs from now."""
        return replace(self, deadline=deadline, alive_at=now)

    def passed(self, now: float, wall: float, seconds: float, *, ok: bool, truncated: bool, detail: str) -> Duty:
        """After a pass that ended now."""
        return replace(
            self,
            alive_at=now,
            passes=self.passes + 1,
            seconds=seconds,
            ok=ok,
            ok_at=wall if ok else self.ok_at,
            truncated=truncated,
            detail=detail,
        )

    def skipped(self) -> Duty:
        """After a pass that did not start. It is no sign of life."""
        return replace(self, missed=self.missed + 1)

    def overdue(self, now: float) -> float:
        """Seconds past the deadline, 0 if it is kept."""
        return 0.0 if self.deadline is None else max(0.0, now - self.alive_at - self.deadline)


@dataclass(slots=True)
class AgentLedger:
    """The agent as it is now, and what it has counted since it started."""

    version: str
    source: str
    started_at: float  # Unix time

    config_ok: bool | None = None  # None: nothing was loaded yet
    config_ok_at: float | None = None  # Unix time
    duties: dict[str, Duty] = field(default_factory=dict)

    redis_up: bool = False  # the last exchange worked
    redis_answered_at: float | None = None  # monotonic
    redis_trouble: str = ""  # one sentence about the last failure
    redis_errors: Tally = field(default_factory=lambda: Tally.zeros(_ERROR_KEYS))  # operation, kind
    commands: dict[str, Histogram] = field(default_factory=dict)  # operation -> seconds
    server: ServerSnapshot | None = None
    server_at: float = 0.0  # monotonic
    clock_offset: float | None = None  # seconds
    memory_limit: int | None = None  # bytes

    role: Role = Role.STARTING
    epoch: int = 0
    leader: str = ""
    leader_seen: bool = False
    transitions: Tally = field(default_factory=lambda: Tally.zeros(_EVENT_KEYS))

    gate: GateState | None = None
    gate_closings: Tally = field(default_factory=lambda: Tally.zeros(_CAUSE_KEYS))  # cause
    sweeps: int = 0

    paced: PacedWhole | None = None
    publications: Tally = field(default_factory=Tally)  # channel
    subscribers: dict[str, int] = field(default_factory=dict)  # channel -> PUBLISH's last reply
    notifications: Tally = field(default_factory=Tally)  # receiver
    notification_failures: Tally = field(default_factory=Tally)  # receiver
    suppressions: Tally = field(default_factory=Tally)  # receiver, cause
    notifications_waiting: dict[str, int] = field(default_factory=dict)  # receiver -> count
    deliveries: dict[str, Histogram] = field(default_factory=dict)  # receiver -> seconds

    def heard(self, before: QueueSnapshot | None, now: QueueSnapshot) -> None:
        """Count the invalidation events of a queue between two looks, and note who listens to them."""
        if now.totals is None or now.subscribers is None:
            return
        self.subscribers[INVALIDATIONS] = now.subscribers
        earlier = before.totals.invalidations if before and before.totals else now.totals.invalidations
        self.publications.add(INVALIDATIONS, count=now.totals.invalidations - earlier)

    def exchange(self, operation: str, seconds: float) -> None:
        """Count the time of an exchange with Redis; ``operation`` is a short word of a small set."""
        operation = labels.word(operation)
        if operation not in self.commands and len(self.commands) >= _MOST_OPERATIONS:
            operation = labels.OTHER
        self.commands.setdefault(operation, Histogram(COMMAND_BUCKETS)).observe(seconds)

    def copy(self) -> AgentLedger:
        """A copy that later writes do not change."""
        return replace(
            self,
            duties=self.duties.copy(),
            redis_errors=Tally(self.redis_errors),
            commands={name: histogram.copy() for name, histogram in self.commands.items()},
            transitions=Tally(self.transitions),
            gate_closings=Tally(self.gate_closings),
            publications=Tally(self.publications),
            subscribers=self.subscribers.copy(),
            notifications=Tally(self.notifications),
            notification_failures=Tally(self.notification_failures),
            suppressions=Tally(self.suppressions),
            notifications_waiting=self.notifications_waiting.copy(),
            deliveries={name: histogram.copy() for name, histogram in self.deliveries.items()},
        )
