"""The contract of an adapter: how one queue system is seen and how its stuck jobs are moved.

Implementations live in queues/, one file per system; tests/conformance runs the same suite over all of them. An adapter
reads raw keys, never imports the system's library, never unpickles a payload. `look` writes nothing. What may go
wrong: a key of the wrong type or a body that cannot be read is reported in the snapshot of that queue (a side finding,
or `error`), and never stops the look at the others; only a Redis that does not answer raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from unstuck.model import Authority, Capability, Condemned, QueueSnapshot, Reclaimed


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of one queue that an adapter needs; seconds."""

    stuck_after: float = 30.0
    gone_after: float = 2.0
    max_rescues: int = 3
    retry_delay: float = 1.0  # base of the backoff of a job that keeps killing its workers
    dead_max: int = 10_000
    dead_ttl: float = 30 * 86_400.0
    deadline_grace: float = 0.0
    page: int = 500  # candidates per round trip


class Adapter(Protocol):
    """One queue system on one Redis."""

    backend: str
    capability: Capability
    least_stuck_after: float
    """Seconds: thresholds below the system's own heartbeat make no sense and are raised to this."""
    least_gone_after: float
    """Seconds: the system's own workers need so long to come back after a cut connection; a lower gone_after is raised."""

    def discover(self) -> Sequence[str]:
        """Names of the queues of this system that exist now, sorted. No SCAN: only the system's own registries.

        Raises the redis-py exception when Redis does not answer.
        """
        ...

    def look(self, queues: Mapping[str, Limits]) -> Sequence[QueueSnapshot]:
        """One look at the named queues, in as few round trips as the layout allows. Writes nothing.

        A configured queue that does not exist yields a snapshot of zeros.
        """
        ...

    def reclaim(
        self, queue: str, condemned: Sequence[Condemned], limits: Limits, authority: Authority
    ) -> Sequence[Reclaimed]:
        """Move the condemned jobs, each only if all the evidence it was judged on still holds inside the script.

        At most 100 at a time; the answers come in the order of `condemned`. "Somebody else was faster" is
        `Action.LOST_RACE`, a normal result. Raises `unstuck.errors.Deposed` when a younger leader has been here.
        """
        ...
