"""What a queue system must be able to set up for real, so that the one suite can ask its adapter about it.

To plug in another adapter: write `benches/<backend>.py` with a class that has these members, and add it to `BENCHES` in
test_adapter.py. A bench runs the system's own client and its own workers, the workers as processes that can really be
killed; only what would take minutes (an old age, a lease that has run out) may be written into the stored times.
"""

from collections.abc import Sequence
from typing import Protocol

from support.processes import Process, Processes
from support.redis_server import RedisServer
from unstuck.model import Lease
from unstuck.queue import Adapter, Limits


class Bench(Protocol):
    """One system on one empty server, with one queue in use."""

    adapter: Adapter
    queue: str
    busy: str  # a second queue of the same system whose names the suite may break
    beats_every: float  # seconds between two heartbeats of the workers that this bench starts
    limits: Limits  # thresholds that fit these workers
    closest: Limits  # thresholds under which a look lists every lease, the healthy ones too
    lists_everything: bool  # whether a look with `limits` does so as well
    notes: frozenset[bytes]  # keys in which a reclaim that moves nothing may note that it was there

    def __init__(self, server: RedisServer, processes: Processes) -> None: ...

    def enqueue(self, *, count: int = 1, age: float = 0.0, queue: str | None = None) -> Sequence[str]:
        """Put jobs in line that run until `let_end`; the first is the oldest, `age` seconds old. Returns their ids."""
        ...

    def schedule(self, delay: float) -> str:
        """Enqueue a job that is due only after `delay` seconds; returns its id."""
        ...

    def bury(self) -> str:
        """Let a real worker fail a job for good; returns its id. No worker is left afterwards."""
        ...

    def start_worker(self) -> tuple[str, Process]:
        """Start a real worker and wait until it listens; returns the name that the adapter will give it, and its process."""
        ...

    def wait_until_running(self, job: str) -> None:
        """Wait until the job's own code runs for one time more than it had ended or been killed."""
        ...

    def let_end(self, job: str) -> None:
        """Let the job's code come to its end, now or when it runs."""
        ...

    def counts(self, job: str) -> tuple[int, int]:
        """How often the job's code has begun, and how often it has come to its end."""
        ...

    def wait_until_done(self, job: str) -> None:
        """Wait until the system itself calls the job done and holds it in flight no more."""
        ...

    def break_a_key(self, queue: str) -> str:
        """Put something of a wrong type at a main key of the queue; returns the key."""
        ...

    def age_lease(self, lease: Lease, seconds: float) -> None:
        """Move every stored time of an attempt back, as if its worker had been silent for so much longer."""
        ...

    def places(self, job: str) -> Sequence[str]:
        """Every structure that holds the job's id now, once per occurrence: pending, active, dead …"""
        ...
