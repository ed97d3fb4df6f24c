"""The latest events, numbered, so that a reader may ask for what came after the last one it has seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from unstuck.model import Event

KEPT: Final = 500
"""Events kept for the status page and for `/api/v1/events`; older ones stand in the log and in the queues' streams."""


class Chronicle:
    """The last events of this process. Not thread-safe: the board's lock guards it."""

    __slots__ = ("_events", "told")

    def __init__(self, kept: int = KEPT) -> None:
        self._events: deque[Event] = deque(maxlen=kept)
        self.told = 0
        """How many there ever were: the number of the newest one, counted from 1."""

    def add(self, events: Event | Iterable[Event]) -> None:
        """One event, or several in the order in which they happened."""
        for event in (events,) if isinstance(events, Event) else events:
            self._events.append(event)
            self.told += 1

    def all(self) -> tuple[Event, ...]:
        """What is kept, oldest first."""
        return tuple(self._events)
