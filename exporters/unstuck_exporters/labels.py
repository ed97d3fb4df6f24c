"""The closed sets of label values. A metric whose labels can grow is a leak; here is all that may appear.

Besides these, only configured things become labels: backend, queue, receiver, channel, operation, collector. Never a
job id, a worker, a host, a token or the text of an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from unstuck.errors import KINDS
from unstuck.gate import CAUSES
from unstuck.model import Action, Reason

OTHER: Final = "other"

REASONS: Final = tuple(reason.value for reason in Reason)
ACTIONS: Final = (Action.REQUEUED.value, Action.DEAD_LETTERED.value, Action.LOCK_RELEASED.value)
"""What a reclaim that took effect can have done; the rest are reclaims that did not happen: `SKIP_CAUSES`."""

SKIP_CAUSES: Final = (
    "dry_run",  # mode observe
    "observe_only",  # the layout of this system allows no safe reclaim
    "not_leader",
    "deposed",  # a younger leader's fence refused the script
    "gate_closed",
    "brake",
    "budget",  # brake.budget of this sweep is used up
    "paused",  # the queue is paused
    "exempt",  # this lease is never to be reclaimed
    "lost_race",  # somebody else was faster, or the job had beaten again
    OTHER,
)
USUAL_SKIPS: Final = ("dry_run", "brake", "budget", "lost_race")
"""The causes whose series exist from the start; the others come when they first happen, to keep the series few."""

FAILURE_KINDS: Final = KINDS
"""Kinds of failed exchanges with Redis: what `unstuck.errors.classify` returns."""
USUAL_FAILURES: Final = ("timeout", "connection", OTHER)
"""The kinds whose series exist from the start."""
USUAL_OPERATIONS: Final = ("elect", "sweep", "publish", "tend", "audit", "memory")
"""The operations whose failures are counted from the start: a first failure is a rise, not a new series."""

GATE_CAUSES: Final = tuple(CAUSES)
JOB_STATES: Final = ("waiting", "scheduled", "running", "dead", "failed", "quarantined")
WORKER_STATES: Final = ("busy", "idle", "lost")
LEADER_EVENTS: Final = ("acquired", "lost", "released", "deposed")
RESET_CAUSES: Final = ("drained", "claimed", "no_data", OTHER)
USUAL_RESETS: Final = ("drained", "no_data")
"""The causes whose series exist from the start."""

INVALIDATION_CAUSES: Final = ("complete", "fail", "release", "requeue", "death", "write", OTHER)
SUPPRESSION_CAUSES: Final = ("queue_full", "expired", "permanent", OTHER)

ALLOWED_NAMES: Final = frozenset({
    "action",
    "backend",
    "cause",
    "channel",
    "collector",
    "event",
    "kind",
    "le",
    "operation",
    "policy",
    "queue",
    "reason",
    "receiver",
    "source",
    "state",
    "version",
})  # fmt: skip
"""Every label name that a family may have."""

_WORD: Final = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,63}\Z")


def known(value: str, allowed: Collection[str]) -> str:
    """The value if it belongs to the closed set, `other` if not."""
    return value if value in allowed else OTHER


def word(value: str) -> str:
    """A short identifier as it is, anything else (a sentence, an error text) as `other`."""
    return value if _WORD.match(value) else OTHER
