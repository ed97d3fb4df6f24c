"""The register of adapters: every queue system that is looked for, by one door for built-in ones and later ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from unstuck.queues.rq import RQAdapter
from unstuck.queues.unstuck import UnstuckAdapter

if TYPE_CHECKING:
    from redis import Redis

    from unstuck.config import Settings
    from unstuck.queue import Adapter


WATCHED: Final = (UnstuckAdapter.backend, RQAdapter.backend)
"""The systems that there is an adapter for."""


def unwatched(settings: Settings) -> list[str]:
    """The entries of `queues`, as BACKEND/QUEUE, whose system no adapter reads: they are accepted and have no effect."""
    return [f"{rule.backend}/{rule.queue}" for rule in settings.queues if rule.backend not in WATCHED]


def adapters_for(settings: Settings, reading: Redis, scripting: Redis) -> list[Adapter]:
    """All adapters, on the agent's connections."""
    del settings  # every built-in system finds its queues by itself
    return [UnstuckAdapter(reading, scripting), RQAdapter(reading)]
