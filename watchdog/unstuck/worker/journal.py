"""The worker's log: one structured line per thing that happened to a job, a lock or the worker itself. Never payloads."""

from __future__ import annotations

import logging

from unstuck import logs

log = logging.getLogger("unstuck.worker")


def say(level: int, event: str, detail: str = "", /, **fields: object) -> None:
    """Log one event with its fields and a sentence for people; cheap where nobody listens."""
    if log.isEnabledFor(level):
        logs.say(log, level, event, **fields, detail=detail)
