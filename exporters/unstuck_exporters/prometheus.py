"""The Prometheus exporter: all families of the catalogue, made anew from the board at every scrape.

A scrape never touches Redis. One family that cannot be made is left out, counted and logged; the others stand.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from unstuck_exporters.board import Board
from unstuck_exporters.exposition import OPENMETRICS, PLAIN, Family, Memory, Scene
from unstuck_exporters.families_agent import AGENT
from unstuck_exporters.families_queue import QUEUES

FAMILIES: Final[tuple[Family, ...]] = (*AGENT, *QUEUES)
"""The catalogue, in the order of a scrape; docs/metrics.md is its printed form."""

log = logging.getLogger(__name__)


class Exporter:
    """Renders the board. Safe to share among threads."""

    def __init__(self, board: Board, families: tuple[Family, ...] = FAMILIES) -> None:
        self._board = board
        self._families = families
        self._failures = 0
        self._memories = {True: Memory(), False: Memory()}  # by format: only one has exemplars
        self._lock = threading.Lock()

    def render(self, *, openmetrics: bool = False) -> list[bytes]:
        """One scrape, in the text format 0.0.4 or in OpenMetrics 1.0, in pieces to be sent one after the other.

        Pieces, because joining the 12 MB of a thousand queues would cost as much again as a third of their making.
        """
        scene = Scene.of(
            self._board.view(),
            openmetrics=openmetrics,
            family_failures=self._failures,
            memory=self._memories[openmetrics],
        )
        parts: list[bytes] = []
        for family in self._families:
            try:
                made = family.rows(scene)
                rows = made if isinstance(made, bytes) else "".join(made).encode()
            except Exception:  # a mistake in one family must not take the others along
                with self._lock:
                    self._failures += 1
                log.exception("metric family left out", extra={"event": "family_failed", "family": family.name})
                continue
            if rows:
                parts += (family.head(openmetrics=openmetrics).encode(), rows)
        if openmetrics:
            parts.append(b"# EOF\n")
        return parts


def content_type(accept: str) -> str:
    """The best format for an Accept header: `OPENMETRICS` where it is asked for, else `PLAIN`."""
    from prometheus_client.exposition import choose_encoder  # a tenth of a second that the agent's start need not wait

    try:
        _, chosen = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is none
        return PLAIN
    return OPENMETRICS if chosen.startswith("application/openmetrics-text") else PLAIN
