"""The control channel: a sharded subscription whose presence is the sign of a living connection, and that brings cancels.

What may go wrong: the agent takes the absence of this subscription for the death of the process. So the record says
`control=1` only while Redis has confirmed it; when it is lost the heart says `control=0`, beats at once and every second,
and this thread subscribes again on a new connection. A connection that is half open is found by an unanswered ping. No
child process may hold it: children are started by exec, and Python's sockets are closed on exec.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from unstuck.connections import Connections, text
from unstuck.errors import classify
from unstuck.protocol import keys
from unstuck.worker.journal import say
from unstuck.worker.waiting import sever

PING_EVERY_SECONDS = 5.0
CONFIRM_WITHIN_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 1.0


class Control:
    """Keeps one subscription. `told` hears whether it stands; `cancel` gets (job id, token) of each request."""

    def __init__(
        self,
        connections: Connections,
        queue: str,
        worker: str,
        *,
        told: Callable[[bool], None],
        cancel: Callable[[str, str], None],
    ) -> None:
        self.channel = keys.control(queue, worker)
        self.worker = worker
        self.subscriptions = 0
        self._connections = connections
        self._told = told
        self._cancel = cancel
        self._client: Any = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the subscription and the thread; the worker should have left, or said control=0, before."""
        self._stopping.set()
        while self._thread.is_alive():
            if self._client is not None:
                sever(self._client)
            self._thread.join(0.1)

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            before = self.subscriptions
            try:
                self._client = self._client or self._connections.subscribing()
                with self._client.pubsub() as pubsub:
                    self._listen(pubsub)
            except Exception as error:  # noqa: BLE001  whatever it was: say so and subscribe again
                if not self._stopping.is_set():
                    level = logging.WARNING if self.subscriptions > before or not pause else logging.DEBUG
                    say(level, "control_lost", worker=self.worker, reason=classify(error))
            finally:
                self._told(False)
            pause = 0.05 if self.subscriptions > before else min(LONGEST_PAUSE_SECONDS, max(0.05, 2 * pause))

    def _listen(self, pubsub: Any) -> None:
        pubsub.ssubscribe(self.channel)
        asked, confirmed = time.monotonic(), False
        heard = asked
        while not self._stopping.is_set():
            now = time.monotonic()
            if not confirmed and now - asked > CONFIRM_WITHIN_SECONDS:
                raise TimeoutError("the subscription was not confirmed")
            if confirmed and now - heard > 2 * PING_EVERY_SECONDS:
                raise TimeoutError("a ping was not answered")
            message = pubsub.get_sharded_message(timeout=PING_EVERY_SECONDS if confirmed else 0.5)
            if message is None:
                if confirmed:
                    pubsub.ping()
                continue
            heard = time.monotonic()
            if message["type"] == "ssubscribe" and not confirmed:
                confirmed = True
                self.subscriptions += 1
                say(logging.DEBUG, "control_subscribed", worker=self.worker)
                self._told(True)
            elif message["type"] == "smessage":
                self._heed(text(message["data"]))
            elif message["type"] == "sunsubscribe":  # the slot moved to another node of the cluster
                raise ConnectionError("unsubscribed by the server")

    def _heed(self, message: str) -> None:
        try:
            said = json.loads(message)
            job, token = said["cancel"], said["token"]
        except (ValueError, KeyError, TypeError):
            say(logging.WARNING, "control_unreadable", worker=self.worker)
            return
        self._cancel(str(job), str(token))
