"""One rendering at a time: whoever asks while a scrape is being made gets that one, and a dear one is used again.

How long a result is used again follows from what it cost: ten times the time of its making, at most a second. So a
small installation sees every scrape made anew, and two Prometheis at a thousand queues cost no more than one.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

LONGEST_REUSE: Final = 1.0
"""Seconds."""
_REUSE_PER_COST: Final = 10.0
_GZIP_FROM: Final = 4096  # bytes; below it the header costs more than it saves


@dataclass(frozen=True, slots=True)
class Scrape:
    """A rendered answer."""

    pieces: list[bytes]
    compressed: bool
    size: int  # bytes


@dataclass(slots=True)
class _Flight:
    """The making of one form of the answer."""

    busy: bool = False
    made: Scrape | None = None
    good_until: float = 0.0  # monotonic
    number: int = 0  # how many were made
    failure: BaseException | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)


class Scrapes:
    """Renders through ``render(openmetrics=...)``, at most one at a time for each form."""

    def __init__(self, render: Callable[[bool], list[bytes]], clock: Callable[[], float] = time.monotonic) -> None:
        self._render = render
        self._clock = clock
        self._flights = {(form, gzip): _Flight() for form in (True, False) for gzip in (True, False)}

    def get(self, *, openmetrics: bool, gzip: bool, patience: float) -> Scrape | None:
        """A scrape in this form; None if another request's making did not end within ``patience`` seconds."""
        flight = self._flights[openmetrics, gzip]
        with flight.changed:
            if flight.made and self._clock() < flight.good_until:
                return flight.made
            if flight.busy:
                number = flight.number
                if not flight.changed.wait_for(lambda: flight.number != number, timeout=patience):
                    return None
                if flight.failure is not None:
                    raise RuntimeError("the rendering that was waited for failed") from flight.failure
                return flight.made
            flight.busy = True
        begun = self._clock()
        made, failure = None, None
        try:
            made = self._make(openmetrics, gzip)
            return made
        except BaseException as exc:
            failure = exc
            raise
        finally:
            with flight.changed:
                now = self._clock()
                flight.made, flight.failure = made, failure
                flight.good_until = now + min(LONGEST_REUSE, _REUSE_PER_COST * (now - begun)) if made else 0.0
                flight.number += 1
                flight.busy = False
                flight.changed.notify_all()

    def _make(self, openmetrics: bool, gzip: bool) -> Scrape:
        pieces = self._render(openmetrics)
        size = sum(map(len, pieces))
        if not gzip or size < _GZIP_FROM:
            return Scrape(pieces, False, size)
        squeeze = zlib.compressobj(level=1, wbits=31)
        packed = [squeeze.compress(piece) for piece in pieces]
        packed.append(squeeze.flush())
        packed = [piece for piece in packed if piece]
        return Scrape(packed, True, sum(map(len, packed)))
