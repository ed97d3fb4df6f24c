"""Caches that stay true: metadata of a job while it runs, and values computed from a queue (`get_or_compute`).

What may go wrong: an attempt that was taken away writes once more (its token is refused); a value is computed while the
queue moves on (its stamp is old by then: it is neither served nor stored); Redis is full (a value is still computed, only not
kept). The queue's stamp is raised by every script that ends an attempt, in the same step, so there is no moment at which a
job is done and a cache does not know. Reads count hits, misses and stale entries into the queue's stats, at most one
command per second and client for that.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from unstuck.connections import text
from unstuck.errors import Refused, StampMoved
from unstuck.protocol import keys, scripts
from unstuck.protocol.values import encode
from unstuck.spelling import counted

if TYPE_CHECKING:
    from unstuck.protocol.client import Queue
    from unstuck.protocol.invalidation import LocalCache

TELL_EVERY_SECONDS = 1.0
NO_STAMP = "0"  # nothing of the queue has ended yet


class Reads:
    """Counts of reads (`cache_hits`, `cache_misses`, `cache_stale`) that are told to Redis now and then. Thread-safe."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._counts: Counter[str] = Counter()
        self._told_at = float("-inf")
        self._lock = threading.Lock()

    def count(self, what: str) -> None:
        """Count one read; tell Redis if the last time is a second ago."""
        with self._lock:
            self._counts[what] += 1
            if time.monotonic() - self._told_at < TELL_EVERY_SECONDS:
                return
        self.tell()

    def tell(self) -> None:
        """Add what was counted to the queue's stats. A Redis that takes no writes leaves it for the next time."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            self._told_at = time.monotonic()
        try:
            pipe = self._queue.client.pipeline(transaction=False)
            for what, number in counts.items():
                pipe.hincrby(keys.stats(self._queue.name), what, number)
            told = pipe.execute(raise_on_error=False) if counts else []
        except Exception:  # noqa: BLE001  no count is worth an error
            told = [False] * len(counts)
        with self._lock:
            for (what, number), answer in zip(counts.items(), told, strict=True):
                if not isinstance(answer, int) or isinstance(answer, bool):
                    self._counts[what] += number


class _Cache:
    """What both caches have in common. Use as a context manager, or `close()`, so that the last reads are told."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.reads = Reads(queue)

    def close(self) -> None:
        """Tell the reads that were not told yet."""
        self.reads.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JobCache(_Cache):
    """Metadata of running jobs, for whoever looks at them: text fields, written by the holder of the job only.

    An entry is deleted by the script that ends the attempt, or lapses after `ttl` seconds.
    """

    def write(self, job: str, token: str, fields: Mapping[str, str | int | float], ttl: float = 60.0) -> bool:
        """Set fields (at most 64 kB); others stay. False: the token is not current any more, nothing was changed.

        Raises redis-py's OutOfMemoryError while Redis is full, `Refused` for too much or no time to live.
        """
        flat: list[scripts.Argument] = []
        for name, value in fields.items():
            flat += [name, value]
        meta = keys.meta(self.queue.name)
        answer = scripts.run(self.queue.client, "write_cache", meta, keys.valid_id(job), token, _ms(ttl), *flat)
        return text(answer) == "written"

    def read(self, job: str) -> dict[str, str] | None:
        """The fields of a job's entry; None if there is none. Counts a hit or a miss."""
        found: Any = self.queue.client.hgetall(keys.cache(self.queue.name, keys.valid_id(job)))
        self.reads.count("cache_hits" if found else "cache_misses")
        return {text(name): text(value) for name, value in found.items()} if found else None


class BatchCache(_Cache):
    """Values computed from a queue (`count`, `report:2024`, …), each good until anything of the queue ends.

    With `local` (see invalidation.py) an answer can come from this process' own memory, while its listener is in step.
    """

    def __init__(self, queue: Queue, *, local: LocalCache | None = None) -> None:
        super().__init__(queue)
        self._local = local

    def get_or_compute(self, key: str, compute: Callable[[], Any], ttl: float = 60.0, *, attempts: int = 5) -> Any:
        """The value under `key` if it was computed under the stamp that stands; else compute, keep and return it.

        `compute` takes nothing and returns what JSON can hold. If the stamp moves while it runs, its value is thrown
        away and it runs again, at most `attempts` times; then `StampMoved` is raised with the last value in `.value`,
        for a caller that can live with one that may be a moment old.
        """
        keys.valid_id(key, "cache key")
        if self._local is not None and (known := self._local.get(key)) is not None:
            self.reads.count("cache_hits")
            return json.loads(known)
        value = "null"
        for attempt in range(max(1, attempts)):
            stamp, kept, verdict = self._look(key)
            if attempt == 0:
                self.reads.count(verdict)
            if verdict != "cache_hits":
                kept = value = encode(compute())
                if not self._store(key, stamp, value, ttl):
                    continue
            if self._local is not None:
                self._local.put(key, kept, int(stamp))
            return json.loads(kept)
        raise StampMoved(
            f"queue {self.queue.name}: jobs ended during each of {counted(attempts, 'computation')} of {key!r}; compute faster, "
            "or take `.value` of this exception, which may be a moment old",
            json.loads(value),
        )

    def invalidate(self) -> int:
        """Raise the stamp by hand: everything computed before is stale from now on. Returns the new stamp."""
        answer = scripts.run(self.queue.client, "bump_stamp", keys.meta(self.queue.name), scripts.operation())
        return int(answer)

    def stamp(self) -> int:
        """The stamp that stands; 0 if nothing of the queue has ended yet."""
        return int(text(self.queue.client.get(keys.stamp(self.queue.name))) or NO_STAMP)

    def _look(self, key: str) -> tuple[str, str, str]:
        """The stamp that stands, the value that is kept, and what this read counts as."""
        pipe = self.queue.client.pipeline(transaction=False)
        # In this order: stamps only grow, so an entry that was read first and bears the stamp read after it is true.
        pipe.hmget(keys.batch(self.queue.name, key), ["stamp", "value"])
        pipe.get(keys.stamp(self.queue.name))
        entry, stands = pipe.execute()
        stamp = text(stands) or NO_STAMP
        if entry[0] is None or entry[1] is None:
            return stamp, "", "cache_misses"
        value = text(entry[1])
        if text(entry[0]) != stamp:
            return stamp, "", "cache_stale"
        with contextlib.suppress(ValueError):
            json.loads(value)
            return stamp, value, "cache_hits"
        return stamp, "", "cache_misses"

    def _store(self, key: str, stamp: str, value: str, ttl: float) -> bool:
        """Keep a value; False if the stamp has moved meanwhile. While Redis is full it is not kept, only checked."""
        from redis.exceptions import OutOfMemoryError

        meta = keys.meta(self.queue.name)
        try:
            answer = scripts.run(self.queue.client, "write_batch", meta, key, stamp, value, _ms(ttl))
        except OutOfMemoryError:
            return str(self.stamp()) == stamp
        return text(answer[0]) == "stored"


def _ms(seconds: float) -> int:
    if not 0 < seconds < 1e9:
        raise Refused(f"ttl {seconds}: use seconds above 0, up to 1e9")
    return max(1, round(seconds * 1000))
