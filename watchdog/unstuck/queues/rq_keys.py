"""Every key of RQ 2 and 3 that the adapter reads or moves, and how RQ writes times and numbers in them.

What may go wrong: `RQ_KEY_PREFIX` changes the beginning of every key; a name may hold bytes that are no UTF-8; a field
may be missing, empty, or of another program. So keys are built from bytes in this one place, and every parser answers
None where RQ would not have written such a value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from unstuck.protocol import keys


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of RQ under one prefix. Queue and worker names are text, ids are bytes as Redis gave them."""

    prefix: str = "rq"

    def _key(self, part: str, name: str | bytes = b"") -> bytes:
        return f"{self.prefix}:{part}".encode() + (name.encode() if isinstance(name, str) else name)

    @property
    def queues(self) -> bytes:  # set of full queue keys
        return self._key("queues")

    @property
    def suspended(self) -> bytes:  # string, there while `rq suspend` holds
        return self._key("suspended")

    def queue(self, name: str) -> bytes:  # list of job ids, taken from the left
        return self._key("queue:", name)

    def intermediate(self, name: str) -> bytes:  # list of job ids between the pop and the start
        return self.queue(name) + b":intermediate"

    def wip(self, name: str) -> bytes:  # zset "<job>:<execution>" -> end of its lease, s
        return self._key("wip:", name)

    def scheduled(self, name: str) -> bytes:  # zset job -> due, s
        return self._key("scheduled:", name)

    def failed(self, name: str) -> bytes:  # zset job -> when it is forgotten, s
        return self._key("failed:", name)

    def workers(self, name: str) -> bytes:  # set of full worker keys
        return self._key("workers:", name)

    def cleaner(self, name: str) -> bytes:  # string: the lock of RQ's own maintenance
        return self._key("clean_registries:", name)

    def worker(self, name: str) -> bytes:  # hash, expires
        return self._key("worker:", name)

    def worker_executions(self, name: str) -> bytes:  # set of "<job>:<execution>"
        return self.worker(name) + b":executions"

    def channel(self, worker: str) -> bytes:  # pub/sub channel that a live worker listens on
        return self._key("pubsub:", worker)

    def job(self, job: bytes) -> bytes:  # hash
        return self._key("job:", job)

    def execution(self, member: bytes) -> bytes:  # hash, expires with the lease
        return self._key("execution:", member)

    def executions(self, job: bytes) -> bytes:  # zset execution -> end of its lease + 60, s
        return self._key("executions:", job)

    def results(self, job: bytes) -> bytes:  # stream
        return self._key("results:", job)

    def name_of(self, key: bytes, part: str) -> str | None:
        """The name at the end of a full key such as `rq:queue:NAME`; None where it is not such a key."""
        start = self._key(part + ":")
        if not key.startswith(start) or len(key) == len(start):
            return None
        try:
            return key[len(start) :].decode()
        except UnicodeDecodeError:
            return None


def own_fence(queue: str) -> str:
    """The key of our fence for a queue of RQ; watched and checked by a reclaim."""
    return keys.fence(keys.tag("rq", queue))


def own_rescues(queue: str) -> str:
    """The key of our rescue counts for a queue of RQ."""
    return keys.rescues(keys.tag("rq", queue))


def own_events(queue: str) -> str:
    """The key of our event stream for a queue of RQ."""
    return keys.events(keys.tag("rq", queue))


def text(value: object) -> str:
    """What Redis returned, for people and comparisons: bytes as UTF-8 with U+FFFD for what is none, None as ""."""
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def number(value: object) -> float | None:
    """A decimal number of RQ (a time in Unix seconds, a count), or None."""
    try:
        parsed = float(text(value))
    except ValueError:
        return None
    return None if math.isnan(parsed) else parsed


def moment(value: object) -> float | None:
    """A time as RQ writes it (`2026-01-31T12:00:00.123456Z`) in Unix seconds, or None."""
    written = text(value)
    for form in ("%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%dT%H:%M:%SZ"):
        try:
            return datetime.strptime(written, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


def lease_end(score: float) -> str:
    """The score of a lease, written so that Lua and Python read the same number from it."""
    return "inf" if math.isinf(score) else repr(score)
