"""What three rounds of reading find of RQ, as plain facts, and the round trip that asks for them.

What may go wrong: an answer may be an error of one command among hundreds. It stays with the key that it belongs to: a
wrong type becomes a finding of that queue, anything else the sentence that says why the queue could not be read.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unstuck.errors import classify
from unstuck.queues.rq_keys import text

if TYPE_CHECKING:
    from redis import Redis


@dataclass(slots=True)
class WorkerSeen:
    """A worker's record and the traces of its connection."""

    name: str
    there: bool = False
    state: str = ""
    birth: str = ""
    death: str = ""
    last_heartbeat: str = ""
    listeners: int | None = None  # subscribers of its channel
    named: bool | None = None  # a client bears its name; None: not asked, or refused

    @property
    def alive(self) -> bool:
        """Its record has not expired and does not say that it left."""
        return self.there and not self.death


@dataclass(slots=True)
class Flight:
    """One member of the in-flight registry with its job, its execution and its owner."""

    member: bytes
    job: bytes
    execution: bytes
    lease_end: float
    has_body: bool = False
    status: str = ""
    last_heartbeat: str = ""  # of the job, ISO
    started_at: str = ""
    rate_limit_key: str = ""
    retries_left: str = ""
    timeout: str = ""
    job_worker: str = ""
    run_heartbeat: str = ""  # of the execution, Unix seconds; empty: expired
    created_at: float | None = None
    owner: WorkerSeen | None = None
    pending: bool = False  # also in the list of waiting ids
    twice: bool = False  # another execution of the same job is in flight


@dataclass(slots=True)
class QueueSeen:
    """What three rounds have found of one queue."""

    name: str
    waiting: int = 0
    scheduled: int = 0
    running: int = 0
    failed: int = 0
    next_due: float | None = None
    head: bytes | None = None
    head_enqueued: float | None = None
    head_has_body: bool = True
    flights: list[Flight] = field(default_factory=list)
    workers: list[WorkerSeen] = field(default_factory=list)
    stranded: list[bytes] = field(default_factory=list)  # popped, status queued, not in flight
    orphans: list[tuple[bytes, str]] = field(default_factory=list)  # (job, worker): started, but in no registry
    wrong_types: list[bytes] = field(default_factory=list)
    error: str = ""


@dataclass(slots=True)
class Reading:
    """One look at all queues."""

    server: float = 0.0  # Unix seconds of Redis
    suspended: bool = False
    queues: list[QueueSeen] = field(default_factory=list)


class Round:
    """Commands of one round trip, each asked once under a name; a refused one answers with its exception."""

    def __init__(self, client: Redis) -> None:
        self._pipe: Any = client.pipeline(transaction=False)
        self._names: dict[Hashable, None] = {}
        self._answers: dict[Hashable, Any] = {}

    def ask(self, name: Hashable, *command: bytes | str | int) -> None:
        if name not in self._names:
            self._names[name] = None
            self._pipe.execute_command(*command)

    def run(self) -> None:
        """Send them. Raises redis-py's exception where Redis does not answer at all."""
        if self._names:
            answers = self._pipe.execute(raise_on_error=False)
            self._answers = dict(zip(self._names, answers, strict=True))

    def get(self, name: Hashable) -> Any:
        return self._answers.get(name)


def odd(flight: Flight) -> bool:
    """Whether the registry and the job disagree, which may only mean that it moved between two rounds."""
    return not flight.has_body or flight.status != "started" or flight.twice


def refused(seen: QueueSeen, answer: Exception, key: bytes) -> None:
    """Note a refused read: a wrong type is a finding, anything else says that the queue could not be read."""
    kind = classify(answer)
    if kind == "wrongtype":
        if key not in seen.wrong_types:
            seen.wrong_types.append(key)
    elif not seen.error:
        seen.error = f"{text(key)} could not be read: Redis refused it ({kind})."


def pairs(answer: Any) -> list[tuple[bytes, float]]:
    """Members with scores, from the flat or the paired form of the answer."""
    if not answer:
        return []
    if isinstance(answer[0], list | tuple):
        return [(member, float(score)) for member, score in answer]
    flat: Sequence[Any] = answer
    return [(flat[i], float(flat[i + 1])) for i in range(0, len(flat), 2)]


def client_names(answer: Any) -> set[str] | None:
    """The names in an answer of CLIENT LIST, or None where it was not asked or was refused."""
    if answer is None or isinstance(answer, Exception):
        return None
    if isinstance(answer, list):  # redis-py parses it to a list of dicts
        return {text(client.get("name", "")) for client in answer} - {""}
    return {word[5:] for word in text(answer).split() if word.startswith("name=")} - {""}
