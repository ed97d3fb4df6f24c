"""What people do to one queue by hand: read its audit, raise or bury dead letters, let the brake go.

What may go wrong: a name may be misspelt, and a command must not make a queue that nobody has; so whatever writes looks for
the queue first. Everything that comes back is text of strangers: whoever shows it escapes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from unstuck.choosing import split
from unstuck.config import BACKENDS, OWN
from unstuck.connections import text
from unstuck.errors import UsageError
from unstuck.protocol import keys, scripts
from unstuck.protocol.diagnosis import naming
from unstuck.spelling import did_you_mean

if TYPE_CHECKING:
    from redis import Redis

BATCH: Final = 100
_WHOLE: Final = ("attempt", "failures", "rescues", "enqueued_at", "died_at")
_TOLD: Final = ("state", "cause", "error", "last_worker", "last_reason", *_WHOLE)
_OWN_DEAD: Final = {
    "rq": "list them with `rq info` or rq-dashboard, retry them with `rq requeue --queue NAME --all`",
}


@dataclass(frozen=True, slots=True)
class Place:
    """One queue of one system. `tag` is the hash tag under which our state of it lives."""

    backend: str
    queue: str

    @classmethod
    def of(cls, queue: str, backend: str | None) -> Place:
        """From the argument (`mail`, `rq/default`) and `--backend`. UsageError, or InvalidName for one of ours."""
        if backend is None:
            system, name = split(queue)
        else:
            if backend not in BACKENDS:
                raise UsageError(f"--backend: there is no queue system {backend!r}{did_you_mean(backend, BACKENDS)}")
            system, name = backend, queue
        system = system or OWN
        return cls(system, keys.valid_queue(name) if system == OWN else name)

    @classmethod
    def own(cls, queue: str) -> Place:
        """A queue of our own protocol. UsageError for one of another system, which keeps its own dead letters."""
        place = cls.of(queue, None)
        if place.backend != OWN:
            mend = _OWN_DEAD.get(place.backend, "use its own tools")
            raise UsageError(f"{place.backend} keeps its jobs itself: {mend}")
        return place

    @property
    def tag(self) -> str:
        return self.queue if self.backend == OWN else keys.tag(self.backend, self.queue)

    def __str__(self) -> str:
        return self.queue if self.backend == OWN else f"{self.backend}/{self.queue}"


def must_exist(client: Redis, place: Place, known: Sequence[str]) -> None:
    """UsageError if nobody has made this queue. `known`: the names of its system's queues."""
    if place.queue in known or client.exists(keys.meta(place.tag)):
        return
    raise UsageError(f"there is no queue {str(place)!r} on this Redis{did_you_mean(place.queue, known)}")


def own_queues(client: Redis) -> list[str]:
    """Names of the queues of our own protocol."""
    with naming(client, keys.QUEUES, "set"):
        names: Any = client.smembers(keys.QUEUES)
    return sorted(map(text, names))


# -- the audit


def event(entry: tuple[Any, Any]) -> dict[str, Any]:
    """One entry of an event stream as plain values; `at_ms` is server time."""
    number, fields = entry
    told = {text(name): text(value) for name, value in fields.items()}
    return {"id": text(number), "at_ms": int(text(number).partition("-")[0]), **told}


def last_events(client: Redis, place: Place, count: int) -> list[dict[str, Any]]:
    """The last so many events of a queue, the oldest first."""
    entries: Any = client.xrevrange(keys.events(place.tag), count=count)
    return [event(one) for one in reversed(entries)]


def next_events(client: Redis, place: Place, after: str, wait_ms: int) -> list[dict[str, Any]]:
    """Events after the one of that id, waiting for the first of them; [] when none came in time."""
    answer: Any = client.xread({keys.events(place.tag): after}, count=100, block=wait_ms)
    streams = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer or []]
    return [event(one) for entries in streams for one in entries]


def newest(client: Redis, place: Place) -> str:
    """The id of the newest event, `0-0` if there is none: less than a known one after a failover or a deletion."""
    entries: Any = client.xrevrange(keys.events(place.tag), count=1)
    return text(entries[0][0]) if entries else "0-0"


# -- dead letters


def dead_ids(client: Redis, place: Place, most: int | None = None) -> tuple[list[str], list[str]]:
    """Ids of dead jobs (the latest first) and of quarantined ones, at most so many of each."""
    end = -1 if most is None else most - 1
    dead: Any = client.zrevrange(keys.dead(place.tag), 0, end)
    bad: Any = client.lrange(keys.quarantine(place.tag), 0, end)
    return [text(one) for one in dead], [text(one) for one in bad]


def counts(client: Redis, place: Place) -> tuple[int, int]:
    """How many jobs are dead, and how many ids in quarantine."""
    return int(client.zcard(keys.dead(place.tag))), int(client.llen(keys.quarantine(place.tag)))


def dead_letters(client: Redis, place: Place, most: int) -> list[dict[str, Any]]:
    """What is known of the latest dead jobs and quarantined ids, without payloads."""
    dead, bad = dead_ids(client, place, most)
    ids = [(one, "dead") for one in dead] + [(one, "quarantine") for one in bad]
    pipe: Any = client.pipeline(transaction=False)
    for job, _ in ids:
        pipe.hmget(keys.job(place.tag, job), *_TOLD)
        pipe.exists(keys.job(place.tag, job))
    answers = pipe.execute(raise_on_error=False)
    made: list[dict[str, Any]] = []
    for (job, where), answer, there in zip(ids, answers[::2], answers[1::2], strict=True):
        if isinstance(answer, Exception):
            made.append({"job": job, "state": where, "cause": "its body is of the wrong type"})
            continue
        body = {name: text(value) for name, value in zip(_TOLD, answer, strict=True) if value is not None}
        letter: dict[str, Any] = {name: _whole(name, value) for name, value in body.items()}
        if lacking := _lacking(body, there):
            letter["cause"] = lacking
        made.append({"job": job, **letter, "state": where})
    return made


def _lacking(body: Mapping[str, str], there: object) -> str:
    """What is wrong with the body of a dead or quarantined job; empty where its own cause tells it."""
    if not there:
        return "it has no body"
    if "state" not in body:
        return "its body lacks the field state"
    # A script that puts an id into quarantine says this of a body without state or payload, and writes the state itself.
    return "its body lacked the field state or payload" if body.get("cause") == "no body" else ""


def _whole(name: str, value: str) -> str | int:
    return int(value) if name in _WHOLE and value.isdigit() else value


def on_each(client: Redis, place: Place, script: str, jobs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Run retry_dead or drop_dead on each job, a hundred per round trip: (job, answer)."""
    todo = list(jobs)
    for start in range(0, len(todo), BATCH):
        part = todo[start : start + BATCH]
        calls = [scripts.Call(script, keys.meta(place.tag), (job, scripts.operation())) for job in part]
        for job, answer in zip(part, scripts.run_many(client, calls), strict=True):
            if isinstance(answer, Exception):
                raise answer
            yield job, text(answer[0])


# -- the brake


def release_brake(client: Redis, place: Place) -> int:
    """Ask the agent to let the brake of a queue go; returns the server time in ms under which that is noted."""
    seconds, micros = client.time()
    now = int(seconds) * 1000 + int(micros) // 1000
    client.hset(keys.meta(place.tag), "brake_release_ms", str(now))
    return now
