"""The layout of a queue that somebody built on plain Redis keys: an entry with ``backend: custom``.

``pending`` and ``in_flight`` are collections of job ids; ``lock`` and ``heartbeat`` are patterns of string keys per
job. ``{id}`` stands for the job's id and ``{queue}`` for the entry's queue; any other braces are part of the key, so
that hash tags stay what they are.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

PENDING_KINDS = ("list", "zset")
IN_FLIGHT_KINDS = ("list", "zset", "set")
LAYOUT_KEYS = ("pending", "in_flight", "lock", "heartbeat", "requeue")


class Collection(Struct, frozen=True):
    """A key that holds job ids, and its Redis type (``list``, ``zset`` or ``set``)."""

    kind: str
    key: str


class CustomLayout(Struct, frozen=True, kw_only=True):
    """Where a custom queue keeps its jobs. ``lock`` and ``heartbeat`` are empty where the queue has none."""

    pending: Annotated[Collection, Meta(description="waiting ids: {list: KEY} or {zset: KEY}")]
    in_flight: Annotated[Collection, Meta(description="ids being worked on: {list: KEY}, {zset: KEY} or {set: KEY}")]
    lock: Annotated[str, Meta(description="string key of a job's lock, with {id}")] = ""
    heartbeat: Annotated[str, Meta(description="string key that changes while a job runs, with {id}")] = ""
    requeue: Annotated[
        Literal["left", "right"], Meta(description="end of the pending list that a rescued id is pushed to")
    ] = "left"

    def lock_key(self, job: str) -> str | None:
        """The key of a job's lock, None if this queue has no locks."""
        return self.lock.replace("{id}", job) if self.lock else None

    def heartbeat_key(self, job: str) -> str | None:
        """The key of a job's heartbeat, None if this queue has none."""
        return self.heartbeat.replace("{id}", job) if self.heartbeat else None
