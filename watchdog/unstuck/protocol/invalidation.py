"""Listening to a queue's invalidation channel, and a memory cache that is true because of it.

What may go wrong: events are lost while the connection is gone, or without a sign (a half-open connection). So the events
are hints and the stamp decides: after every new subscription, and every `check_every` seconds at the latest, the listener
reads the stamp itself. While it cannot, it says that it knows no stamp (`stamp` is None) and nothing is served from memory.
A value in memory is therefore at most as old as an event is under way, and at worst `2 x check_every`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from unstuck.connections import Connections, text
from unstuck.errors import classify
from unstuck.logs import say
from unstuck.protocol import keys

log = logging.getLogger("unstuck.cache")

LONGEST_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Invalidation:
    """One event: what happened (`completed`, `failed`, `released`, `reclaimed`, `dead`, `bumped`) to which job."""

    id: str
    event: str
    stamp: int


class InvalidationListener:
    """Follows a queue's stamp from a thread of its own. Use as a context manager, or `start` and `stop`.

    `heard` gets each event; `resynchronised` gets the stamp whenever it may have missed some: then whatever was derived
    from events has to be thrown away. Both are called from the listener's thread and should return at once.
    """

    def __init__(
        self,
        connections: Connections,
        queue: str,
        *,
        heard: Callable[[Invalidation], None] = lambda _: None,
        resynchronised: Callable[[int], None] = lambda _: None,
        check_every: float = 1.0,
    ) -> None:
        self.subscriptions = 0
        self.resyncs = 0
        self._connections = connections
        self._channel = keys.invalidate(keys.valid_queue(queue))
        self._stamp_key = keys.stamp(queue)
        self._heard = heard
        self._resynchronised = resynchronised
        self._check_every = check_every
        self._known: tuple[int, float] | None = None  # stamp, and when (monotonic) it was last confirmed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="invalidations", daemon=True)

    @property
    def stamp(self) -> int | None:
        """The queue's stamp as it was known a moment ago; None while the listener is not in step."""
        known = self._known
        if known is None or time.monotonic() - known[1] > 2 * self._check_every:
            return None
        return known[0]

    def start(self) -> None:
        """Start listening; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, within `check_every` seconds and the time-out of what is under way."""
        self._stopping.set()
        self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        pause, client = 0.0, None
        while not self._stopping.wait(pause):
            before = self.subscriptions
            try:
                client = client or self._connections.subscribing()
                with client.pubsub() as pubsub:
                    self._follow(pubsub)
            except Exception as error:  # noqa: BLE001  whatever it was: say so and subscribe again
                level = logging.WARNING if self.subscriptions > before else logging.DEBUG
                say(log, level, "invalidations_lost", channel=self._channel, reason=classify(error))
            finally:
                self._known = None
            pause = 0.05 if self.subscriptions > before else min(LONGEST_PAUSE_SECONDS, max(0.05, 2 * pause))

    def _follow(self, pubsub: Any) -> None:
        pubsub.subscribe(self._channel)
        checked, asked, confirmed = float("-inf"), time.monotonic(), False
        while not self._stopping.is_set():
            message = pubsub.get_message(timeout=min(0.5, self._check_every / 2))
            now = time.monotonic()
            if message is not None and message["type"] == "subscribe":
                confirmed = True
                self.subscriptions += 1
            elif message is not None and message["type"] == "message":
                self._event(text(message["data"]))
            if not confirmed and now - asked > max(1.0, 5 * self._check_every):
                raise TimeoutError("the subscription was not confirmed")
            # Subscribed first, stamp read after: what happens from here on comes as an event.
            if confirmed and now - checked >= self._check_every:
                self._check()
                checked = now

    def _check(self) -> None:
        """Read the stamp; if it is not the one that the events led to, some were missed."""
        stamp = int(text(self._connections.reading().get(self._stamp_key)) or 0)
        known = self._known
        if known is None or stamp > known[0]:
            self.resyncs += 1
            self._resynchronised(stamp)
        # A stamp that went back (a failover lost some) is believed as well: what was computed under the lost ones is not.
        self._known = (stamp, time.monotonic())

    def _event(self, message: str) -> None:
        try:
            said = json.loads(message)
            event = Invalidation(str(said["id"]), str(said["event"]), int(said["stamp"]))
        except (ValueError, KeyError, TypeError):
            say(log, logging.WARNING, "invalidation_unreadable", channel=self._channel)
            self._known = None  # something happened, and nobody knows what
            return
        known = self._known
        if known is not None:
            self._known = (max(known[0], event.stamp), time.monotonic())
        self._heard(event)


class LocalCache:
    """Values in this process' memory, each with the stamp under which it was computed. Thread-safe.

    Nothing is served while the listener is not in step, or once the stamp has moved on. At most `size` entries; the
    oldest goes first.
    """

    def __init__(self, listener: InvalidationListener, size: int = 1000) -> None:
        self._listener = listener
        self._size = size
        self._entries: dict[str, tuple[int, str]] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> str | None:
        """The value, None if there is none that is true now."""
        stamp = self._listener.stamp
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or stamp is None:
                return None
            if entry[0] != stamp:
                if entry[0] < stamp:
                    del self._entries[key]
                return None
            return entry[1]

    def put(self, key: str, value: str, stamp: int) -> None:
        """Keep a value that was computed under this stamp, unless there is one of a later stamp."""
        with self._lock:
            there = self._entries.pop(key, None)
            if there is not None and there[0] > stamp == self._listener.stamp:
                there = None  # the stamp went back: the later one is from a history that was lost
            self._entries[key] = (stamp, value) if there is None or there[0] <= stamp else there
            while len(self._entries) > self._size:
                del self._entries[next(iter(self._entries))]
