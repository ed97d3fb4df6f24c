"""Delivery of messages to one receiver: a bounded queue, a thread of its own, retries.

What may go wrong: the receiver is slow, hangs, is away or refuses. None of it reaches a sweep: `offer` returns at once, and says
no when the queue is full. Transient failures (no connection, time-out, 408, 425, 429, 5xx) are tried again with growing
pauses until `give_up_after`; permanent ones (any other status, a certificate that is not trusted) never are.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from unstuck.logs import say
from unstuck_exporters.messages import ALERTMANAGER_PATH, Message, body, headers, secret_of

if TYPE_CHECKING:
    from pathlib import Path

    from unstuck.clock import Clock
    from unstuck_exporters.board import Board

log = logging.getLogger(__name__)

MOST_WAITING: Final = 20
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
LONGEST_RETRY_AFTER_SECONDS: Final = 300.0
_TRANSIENT: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended."""

    ok: bool
    permanent: bool = False
    detail: str = ""  # one sentence without the address
    retry_after: float | None = None  # seconds, as the receiver asks


@dataclass(frozen=True, slots=True)
class Target:
    """Where a message goes."""

    name: str
    url: str  # secret: its path may be a password
    form: str
    timeout: float  # seconds
    give_up_after: float  # seconds
    secret_file: Path | None = None

    @property
    def address(self) -> str:
        """The address that is posted to; Alertmanager's path is added to a bare host."""
        bare = urlsplit(self.url).path in ("", "/")
        return self.url.rstrip("/") + ALERTMANAGER_PATH if self.form == "alertmanager" and bare else self.url

    def secret(self) -> bytes | None:
        """The key that signs; read anew for each message, so that it can be rotated. OSError, ValueError."""
        return None if self.secret_file is None else secret_of(self.secret_file.read_text(encoding="utf-8"))


def post(target: Target, message: Message, now: float) -> Outcome:
    """One attempt. Raises nothing."""
    import requests  # a tenth of a second and 8 MB that an agent without webhooks need not spend

    try:
        content = body(message, target.form)
        sent = headers(message, content, target.secret(), now)
    except (OSError, ValueError) as error:
        return Outcome(False, permanent=True, detail=f"secret_file: {getattr(error, 'strerror', None) or error}")
    try:
        with requests.post(
            target.address, data=content, headers=sent, timeout=target.timeout, allow_redirects=False, stream=True
        ) as answer:
            return _judged(answer.status_code, answer.headers.get("Retry-After", ""))
    except requests.exceptions.SSLError:
        return Outcome(False, permanent=True, detail="its certificate is not trusted, or it does not speak TLS")
    except requests.exceptions.Timeout:
        return Outcome(False, detail=f"no answer within {target.timeout:g} s")
    except requests.exceptions.ConnectionError:
        return Outcome(False, detail="no connection")
    except requests.exceptions.RequestException as error:
        return Outcome(False, permanent=True, detail=f"the address is not taken ({type(error).__name__})")


def _judged(status: int, retry_after: str) -> Outcome:
    if 200 <= status < 300:
        return Outcome(True, detail=f"status {status}")
    transient = status in _TRANSIENT or status >= 500
    wait = min(float(retry_after), LONGEST_RETRY_AFTER_SECONDS) if retry_after.isdigit() else None
    return Outcome(False, permanent=not transient, detail=f"status {status}", retry_after=wait)


class Receiver:
    """One receiver with its queue and its thread, which begins with the first message."""

    def __init__(
        self,
        target: Target,
        board: Board,
        clock: Clock,
        *,
        send: Callable[[Target, Message, float], Outcome] = post,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.target = target
        self._board, self._clock, self._send, self._chance = board, clock, send, chance
        self._waiting: deque[Message] = deque()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        board.notifications_waiting(target.name, 0)

    @property
    def room(self) -> bool:
        """Whether one more message may wait."""
        with self._changed:
            return len(self._waiting) < MOST_WAITING

    def offer(self, message: Message) -> bool:
        """Take a message for delivery; False where there is no room. Never blocks."""
        with self._changed:
            if len(self._waiting) >= MOST_WAITING or self._stop.is_set():
                return False
            self._waiting.append(message)
            self._board.notifications_waiting(self.target.name, len(self._waiting))
            if self._thread is None:
                name = f"unstuck-webhook-{self.target.name}"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            self._changed.notify()
        return True

    def close(self, patience: float = 0.0) -> None:
        """Take no more; what waits is tried for ``patience`` seconds, then forgotten."""
        if patience and self._thread is not None:
            with self._changed:
                self._changed.wait_for(lambda: not self._waiting, patience)
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stop.is_set())
                if self._stop.is_set():
                    return
                message = self._waiting[0]
            self._deliver(message)
            with self._changed:
                self._waiting.popleft()
                self._board.notifications_waiting(self.target.name, len(self._waiting))
                self._changed.notify_all()

    def _deliver(self, message: Message) -> None:
        begun, pause, attempts = self._clock.monotonic(), FIRST_PAUSE_SECONDS, 0
        while not self._stop.is_set():
            attempts += 1
            outcome = self._attempt(message)
            fields = {
                "receiver": self.target.name,
                "message": message.id,
                "attempt": attempts,
                "detail": outcome.detail,
            }
            if outcome.ok:
                say(log, logging.INFO, "notified", **fields, alarms=len(message.alarms))
                return
            spread = pause * (0.8 + 0.4 * self._chance())
            wait = max(spread, outcome.retry_after or 0.0)
            late = self._clock.monotonic() - begun + wait > self.target.give_up_after
            if outcome.permanent or late:
                cause = "permanent" if outcome.permanent else "expired"
                self._board.notification_suppressed(self.target.name, cause)
                say(log, logging.ERROR, "notification_failed", **fields, kind=cause)
                return
            if attempts == 1:
                say(log, logging.WARNING, "notification_delayed", **fields)
            self._stop.wait(wait)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _attempt(self, message: Message) -> Outcome:
        begun = self._clock.monotonic()
        try:
            outcome = self._send(self.target, message, self._clock.wall())
        except Exception as error:  # a mistake of ours must not end the thread
            log.exception("notification_failed", extra={"fields": {"receiver": self.target.name}})
            outcome = Outcome(False, permanent=True, detail=type(error).__name__)
        self._board.notified(self.target.name, self._clock.monotonic() - begun, ok=outcome.ok)
        return outcome
