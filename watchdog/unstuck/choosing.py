"""Which queues a command is about: `--backend rq`, `--queue mails-*`, `--queue rq/default`.

A queue's name may itself hold a slash, so what stands before the first one is a backend only if there is one of that
name. Without any choice everything that is found is meant.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unstuck.config import BACKENDS
from unstuck.errors import UsageError
from unstuck.spelling import did_you_mean

if TYPE_CHECKING:
    from unstuck.model import Authority, Capability, Condemned, QueueSnapshot, Reclaimed
    from unstuck.queue import Adapter, Limits

_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen backends (none: all) and queues as (backend or '', name or pattern) (none: all)."""

    backends: tuple[str, ...] = ()
    queues: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, backends: Iterable[str], queues: Iterable[str]) -> Choice:
        """From the values of the options. UsageError for a backend that does not exist."""
        named = tuple(backends)
        for backend in named:
            if backend not in BACKENDS:
                known = ", ".join(BACKENDS)
                mend = did_you_mean(backend, BACKENDS) or f"; known: {known}"
                raise UsageError(f"--backend: there is no queue system {backend!r}{mend}")
        return cls(named, tuple(split(queue) for queue in queues))

    def includes(self, backend: str, queue: str) -> bool:
        """Whether this queue is meant."""
        if self.backends and backend not in self.backends:
            return False
        return not self.queues or any(
            (system in ("", backend)) and fnmatch.fnmatchcase(queue, name) for system, name in self.queues
        )

    def wants(self, backend: str) -> bool:
        """Whether any queue of this system may be meant."""
        if self.backends and backend not in self.backends:
            return False
        return not self.queues or any(system in ("", backend) for system, _ in self.queues)

    def named(self, backend: str) -> list[str]:
        """Queues of this system that are named with it and without a wildcard: looked at although nobody lists them."""
        if not self.wants(backend):
            return []
        alone = self.backends == (backend,)
        return [
            name
            for system, name in self.queues
            if not _WILD & set(name) and (system == backend or (alone and not system))
        ]

    def missed(self, found: Iterable[tuple[str, str]]) -> list[str]:
        """One sentence for each chosen queue that is not among the found ones."""
        there = list(found)
        names = [f"{backend}/{queue}" for backend, queue in there]
        told = []
        for system, name in self.queues:
            if any(system in ("", backend) and fnmatch.fnmatchcase(queue, name) for backend, queue in there):
                continue
            asked = f"{system}/{name}" if system else name
            near = did_you_mean(asked, names if system else [queue for _, queue in there])
            told.append(f"there is no queue {asked!r} now{near}")
        return told


def split(queue: str) -> tuple[str, str]:
    """(backend or '', name). UsageError for an empty name."""
    system, slash, name = queue.partition("/")
    parts = (system, name) if slash and system in BACKENDS else ("", queue)
    if not parts[1]:
        raise UsageError(f"--queue: {queue!r} names no queue; write NAME or BACKEND/NAME")
    return parts


class Narrowed:
    """An adapter that finds only the chosen queues."""

    def __init__(self, adapter: Adapter, choice: Choice) -> None:
        self.backend: str = adapter.backend
        self.capability: Capability = adapter.capability
        self.least_stuck_after: float = adapter.least_stuck_after
        self.least_gone_after: float = adapter.least_gone_after
        self._adapter = adapter
        self._choice = choice

    def discover(self) -> Sequence[str]:
        found = [name for name in self._adapter.discover() if self._choice.includes(self.backend, name)]
        return sorted({*found, *self._choice.named(self.backend)})

    def look(self, queues: Mapping[str, Limits]) -> Sequence[QueueSnapshot]:
        return self._adapter.look(queues)

    def reclaim(
        self, queue: str, condemned: Sequence[Condemned], limits: Limits, authority: Authority
    ) -> Sequence[Reclaimed]:
        return self._adapter.reclaim(queue, condemned, limits, authority)


def narrowed(adapters: Iterable[Adapter], choice: Choice) -> list[Adapter]:
    """The adapters that may hold a chosen queue, each finding only those."""
    return [Narrowed(adapter, choice) for adapter in adapters if choice.wants(adapter.backend)]
