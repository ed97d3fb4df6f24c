"""Every key of protocol version 1, as functions of the queue, hash-tagged `{Q}`; the type stands beside each.

A foreign queue's state of ours lives under the tag `{backend/queue}`: pass `tag("rq", "default")` as the queue.
Nothing else in the project writes a key name of ours by hand (the Lua scripts build theirs from the same stem).
"""

from __future__ import annotations

import re
from typing import Final

from unstuck.errors import InvalidName

QUEUES: Final = "unstuck:queues"  # set: queue names, added by clients, removed by hand only
LEADER: Final = "unstuck:leader"  # hash: owner, epoch, until_ms, digest

VERSION: Final = 1
_QUEUE = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")


def valid_queue(name: str) -> str:
    """The name itself, or InvalidName that says which characters are allowed."""
    if not _QUEUE.match(name):
        raise InvalidName(f"queue name {name!r}: use 1 to 128 of A-Z a-z 0-9 . _ -")
    return name


def valid_id(name: str, what: str = "job id") -> str:
    """The id itself, or InvalidName that says which characters are allowed."""
    if not _ID.match(name):
        raise InvalidName(f"{what} {name!r}: use 1 to 128 of A-Z a-z 0-9 . _ : -")
    return name


def is_queue(name: str) -> bool:
    """Whether a name is one that a queue of ours can have."""
    return bool(_QUEUE.match(name))


def tag(backend: str, queue: str) -> str:
    """The hash tag of a foreign queue's state of ours. `}` would end the tag early, so it is escaped."""
    return f"{backend}/{queue.replace('%', '%25').replace('{', '%7B').replace('}', '%7D')}"


def stem(queue: str) -> str:
    """The common beginning of every key of a queue; scripts derive all their keys from it."""
    return f"unstuck:{{{queue}}}:"


def meta(queue: str) -> str:  # hash: v, stuck_after_ms
    return stem(queue) + "meta"


def fence(queue: str) -> str:  # string: highest epoch seen
    return stem(queue) + "fence"


def pending(queue: str) -> str:  # list of ids, taken from the right
    return stem(queue) + "pending"


def scheduled(queue: str) -> str:  # zset id -> due ms
    return stem(queue) + "scheduled"


def active(queue: str) -> str:  # zset id -> last heartbeat ms
    return stem(queue) + "active"


def started(queue: str) -> str:  # zset id -> started_at ms
    return stem(queue) + "started"


def deadlines(queue: str) -> str:  # zset id -> expected_by ms
    return stem(queue) + "deadlines"


def held(queue: str, worker: str) -> str:  # set of ids
    return f"{stem(queue)}held:{worker}"


def dead(queue: str) -> str:  # zset id -> time of death ms
    return stem(queue) + "dead"


def quarantine(queue: str) -> str:  # list of ids without a usable body
    return stem(queue) + "quarantine"


def job(queue: str, job_id: str) -> str:  # hash
    return f"{stem(queue)}job:{job_id}"


def lock(queue: str, job_id: str) -> str:  # string, PX: token
    return f"{stem(queue)}lock:{job_id}"


def workers(queue: str) -> str:  # zset worker -> last heartbeat ms
    return stem(queue) + "workers"


def worker(queue: str, worker_id: str) -> str:  # hash, PX
    return f"{stem(queue)}worker:{worker_id}"


def control(queue: str, worker_id: str) -> str:  # sharded channel
    return f"{stem(queue)}control:{worker_id}"


def ops(queue: str) -> str:  # hash caller:slot -> operation id and answer
    return stem(queue) + "ops"


def stats(queue: str) -> str:  # hash of growing counters
    return stem(queue) + "stats"


def pacing(queue: str) -> str:  # hash, PX
    return stem(queue) + "pacing"


def wake(queue: str) -> str:  # list, trimmed
    return stem(queue) + "wake"


def cache(queue: str, job_id: str) -> str:  # hash, PX
    return f"{stem(queue)}cache:{job_id}"


def stamp(queue: str) -> str:  # string: cache stamp, microseconds
    return stem(queue) + "stamp"


def batch(queue: str, key: str) -> str:  # hash of stamp and value, PX
    return f"{stem(queue)}batch:{key}"


def events(queue: str) -> str:  # stream
    return stem(queue) + "events"


def invalidate(queue: str) -> str:  # channel
    return stem(queue) + "invalidate"


def rescues(queue: str) -> str:  # foreign queues only: hash id -> count, PX 72 h
    return stem(queue) + "rescues"


def is_id(name: object) -> bool:
    """Whether it can be the id of a job, or the name of a worker."""
    return isinstance(name, str) and _ID.match(name) is not None


STRUCTURES: Final = {  # what the type of each fixed key must be, for diagnosis of WRONGTYPE
    "meta": "hash",
    "fence": "string",
    "pending": "list",
    "scheduled": "zset",
    "active": "zset",
    "started": "zset",
    "deadlines": "zset",
    "dead": "zset",
    "quarantine": "list",
    "workers": "zset",
    "ops": "hash",
    "stats": "hash",
    "pacing": "hash",
    "wake": "list",
    "stamp": "string",
    "events": "stream",
}
NAMED: Final = {  # the same for the keys of one job, worker or batch: their prefix
    "job": "hash",
    "held": "set",
    "worker": "hash",
    "lock": "string",
    "cache": "hash",
    "batch": "hash",
}
