"""The queues on the board, bounded: configured ones have precedence, discovered ones come as long as there is room."""

from __future__ import annotations

from typing import Final

from unstuck_exporters.ledger import QueueLedger, Setup

FORGET_AFTER: Final = 600.0
"""Seconds after which a queue that was only discovered, and that no look has shown since, leaves the board."""


class Roster:
    """Queue ledgers by backend and name, at most ``limit``. Guarded by the board's lock."""

    def __init__(self, limit: int, sweep_interval: float) -> None:
        self._limit = limit
        self._setup = Setup(sweep_interval=sweep_interval)
        self._ledgers: dict[tuple[str, str], QueueLedger] = {}
        self._dropped: dict[str, int] = {}

    @property
    def dropped(self) -> int:
        """Queues for which there was no room at the last look of each backend."""
        return sum(self._dropped.values())

    def all(self) -> tuple[QueueLedger, ...]:
        """Every ledger, by backend and name."""
        return tuple(ledger for _, ledger in sorted(self._ledgers.items(), key=lambda item: item[0]))

    def find(self, backend: str, queue: str) -> QueueLedger | None:
        """The ledger of a queue that is on the board."""
        return self._ledgers.get((backend, queue))

    def open(self, backend: str, queue: str, now: float, *, configured: bool = False) -> QueueLedger | None:
        """The ledger of a queue, made if there is room; None if the queue is one too many."""
        ledger = self._ledgers.get((backend, queue))
        if ledger is None:
            if len(self._ledgers) >= self._limit and not (configured and self._make_room()):
                return None
            ledger = QueueLedger(backend, queue, last_seen=now, setup=self._setup)
            self._ledgers[backend, queue] = ledger
        return ledger

    def put(self, ledger: QueueLedger) -> None:
        """Replace the ledger of a queue that is on the board by a newer one."""
        self._ledgers[ledger.backend, ledger.queue] = ledger

    def looked(self, backend: str, dropped: int, now: float) -> None:
        """A look of a backend ended, with this many queues refused; queues that are gone for long leave."""
        self._dropped[backend] = dropped
        gone = [k for k, q in self._ledgers.items() if not q.setup.configured and now - q.last_seen > FORGET_AFTER]
        for key in gone:
            del self._ledgers[key]

    def _make_room(self) -> bool:
        """Drop the youngest queue that was only discovered in favour of a configured one."""
        for key, ledger in reversed(self._ledgers.items()):
            if not ledger.setup.configured:
                del self._ledgers[key]
                return True
        return False
