"""A copy of the board at one moment, and what may be concluded from it: fresh, healthy, ready."""

from __future__ import annotations

from dataclasses import dataclass

from unstuck.model import Event
from unstuck_exporters.agency import AgentLedger, Duty, Role
from unstuck_exporters.ledger import QueueLedger


@dataclass(frozen=True, slots=True)
class View:
    """What a reader of the board gets."""

    now: float  # monotonic
    wall: float  # Unix time
    max_age: float  # seconds after which data is absent rather than frozen
    longest_silence: float  # seconds without an exchange after which Redis no longer counts as up
    agent: AgentLedger
    queues: tuple[QueueLedger, ...]  # by backend and name
    queues_dropped: int
    events: tuple[Event, ...]  # oldest first
    events_told: int = 0  # how many there ever were: the number of the newest

    @property
    def exports_queues(self) -> bool:
        """Followers export no queue families: the leader does."""
        return self.agent.role in (Role.LEADER, Role.ALONE)

    @property
    def redis_up(self) -> bool:
        """Whether the last exchange worked, and was not too long ago to say so."""
        answered = self.agent.redis_answered_at
        return self.agent.redis_up and answered is not None and self.now - answered <= self.longest_silence

    @property
    def server_fresh(self) -> bool:
        """Whether what Redis last told of itself may be shown as the present."""
        return self.agent.server is not None and self.now - self.agent.server_at <= self.max_age

    @property
    def overdue(self) -> tuple[Duty, ...]:
        """The duties that did not end a pass within their deadline, the latest first."""
        late = [duty for duty in self.agent.duties.values() if duty.overdue(self.now) > 0]
        return tuple(sorted(late, key=lambda duty: -duty.overdue(self.now)))

    def not_ready(self) -> str:
        """Why the agent is not ready, one sentence; empty if it is."""
        if not self.redis_up:
            trouble = self.agent.redis_trouble
            return f"Redis is not reached: {trouble}" if trouble else "Redis has not answered yet"
        if self.agent.sweeps or (self.agent.role is Role.FOLLOWER and self.agent.leader_seen):
            return ""
        if self.agent.role is Role.FOLLOWER:
            return "no leader has been seen yet"
        return "the first sweep is not complete yet"
