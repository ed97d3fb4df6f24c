"""Which queues a command is about: `--backend rq`, `--queue mails-*`, `--queue rq/default`.

What stands before the first slash is a queue system. A queue whose own name holds a slash is named with its system in front
(`rq/a/b`) or with `--backend`. Without any choice everything that is found is meant.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from unstuck.config import BACKENDS
from unstuck.errors import UnstuckError, UsageError
from unstuck.spelling import did_you_mean, nearest_first

if TYPE_CHECKING:
    from unstuck.model import Authority, Capability, Condemned, QueueSnapshot, Reclaimed
    from unstuck.queue import Adapter, Limits

MOST_NAMED: Final = 5
_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen backends (none: all) and queues as (backend or '', name or pattern) (none: all)."""

    backends: tuple[str, ...] = ()
    queues: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, backends: Iterable[str], queues: Iterable[str]) -> Choice:
        """From the values of the options. UsageError for a backend that does not exist, in either of them."""
        named = tuple(backends)
        for backend in named:
            if backend not in BACKENDS:
                known = ", ".join(BACKENDS)
                mend = did_you_mean(backend, BACKENDS) or f"; known: {known}"
                raise UsageError(f"--backend: there is no queue system {backend!r}{mend}")
        places = tuple(split(queue) for queue in queues)
        for system, name in places:
            before, slash, _ = name.partition("/")
            if slash and not system and not named and not _WILD & set(before):
                near = did_you_mean(before, BACKENDS)
                known = f"known: {', '.join(BACKENDS)} (as BACKEND/{name}, if that is the queue's name)"
                raise UsageError(f"--queue: there is no queue system {before!r}{near}; {known}")
        return cls(named, places)

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

    def missed(
        self, found: Iterable[tuple[str, str]], known: Callable[[], Iterable[tuple[str, str]]] = tuple
    ) -> list[str]:
        """One sentence for each chosen queue that is not among the found ones. `known` gives what there is without the
        choice; it is asked only if something is missed, and the nearest few are named.
        """
        there = list(found)
        missing = [
            (system, name)
            for system, name in self.queues
            if not any(system in ("", backend) and fnmatch.fnmatchcase(queue, name) for backend, queue in there)
        ]
        every = sorted({*there, *known()}) if missing else []
        told = []
        for system, name in missing:
            asked = f"{system}/{name}" if system else name
            names = {f"{backend}/{queue}": f"{backend}/{queue}" if system else queue for backend, queue in every}
            near = nearest_first(asked, names, names.__getitem__)
            more = f" and {len(near) - MOST_NAMED} more" if len(near) > MOST_NAMED else ""
            listed = f"; known: {', '.join(near[:MOST_NAMED])}{more}" if near else ""
            told.append(f"there is no queue {asked!r} now{listed}")
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


def known_queues(adapters: Iterable[Adapter]) -> list[tuple[str, str]]:
    """(backend, name) of every queue that the adapters find, without the systems that cannot be asked."""
    from redis.exceptions import ResponseError

    found: list[tuple[str, str]] = []
    for adapter in adapters:
        try:
            found += [(adapter.backend, name) for name in adapter.discover()]
        except (ResponseError, UnstuckError):
            continue  # the look has told of it
    return found


def none_of_them(choice: Choice) -> str:
    """The headline where none of the chosen queues was found, but others are there."""
    return f"No queue of {'that name' if len(choice.queues) == 1 else 'those names'} was found"
