"""Webhooks: alarms told directly to receivers, for people without Alertmanager.

    view ─► Watch (which alarms are active) ─► Book, one per receiver (what it has not been told) ─► Receiver (delivery)

`Notifier.look()` is the agent's duty `notify`: it reads the board, decides, and hands messages over; it waits for nobody.
What a receiver was told is remembered in this process only: after a restart, or when another agent takes the lead, what
still fires is told again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unstuck.errors import ConfigurationError, Problem
from unstuck_exporters.alarms import SEVERITIES, Alarm, Key, Watch
from unstuck_exporters.delivery import Receiver, Target
from unstuck_exporters.messages import ALERTMANAGER_REPEAT_SECONDS, Message, Told

if TYPE_CHECKING:
    from unstuck.clock import Clock
    from unstuck.config.settings import Alarms, Webhook
    from unstuck_exporters.board import Board

MOST_ALARMS: Final = 50
"""Alarms in one message; the rest follows in the next."""


@dataclass(slots=True)
class _Entry:
    alarm: Alarm
    at: float  # monotonic, last told
    times: int  # how often


class Book:
    """What one receiver has been told, and what it is to be told next."""

    def __init__(self, hook: Webhook) -> None:
        self._rules = frozenset(hook.rules or SEVERITIES)
        self._repeat = float(hook.repeat_interval)
        self._resolves = hook.send_resolved or hook.format == "alertmanager"
        if hook.format == "alertmanager":
            self._repeat = min(self._repeat, ALERTMANAGER_REPEAT_SECONDS)
        self._pause = float(hook.group_interval)
        self._told: dict[Key, _Entry] = {}
        self._last: float | None = None  # monotonic, last message

    def due(self, active: Mapping[Key, Alarm], now: float, wall: float) -> list[Told]:
        """What is to be told now; empty while the pause since the last message lasts."""
        if self._last is not None and now - self._last < self._pause:
            return []
        found = []
        for key, alarm in active.items():
            entry = self._told.get(key)
            if alarm.rule in self._rules and (entry is None or now - entry.at >= self._repeat):
                found.append(Told(alarm, repeat=entry.times if entry else 0))
        for key, entry in list(self._told.items()):
            if key not in active:
                if self._resolves:
                    found.append(Told(entry.alarm, ended=wall, repeat=entry.times))
                else:
                    del self._told[key]
        return found[:MOST_ALARMS]

    def told(self, what: Sequence[Told], now: float) -> None:
        """This was handed over for delivery."""
        self._last = now
        for one in what:
            key = one.alarm.key
            if one.ended is not None:
                self._told.pop(key, None)
            else:
                self._told[key] = _Entry(one.alarm, now, one.repeat + 1)

    def forget(self) -> None:
        """Another agent tells from now on."""
        self._told.clear()


class Notifier:
    """All receivers of one agent."""

    def __init__(self, alarms: Alarms, hooks: Sequence[Webhook], board: Board, clock: Clock) -> None:
        self._board, self._clock = board, clock
        self._watch = Watch(alarms)
        self._pairs = [
            (Book(hook), Receiver(target, board, clock)) for hook, target in zip(hooks, targets(hooks), strict=True)
        ]

    def look(self) -> None:
        """One pass: hand over what is new. Returns at once, whatever the receivers do."""
        view = self._board.view()
        active = self._watch.look(view)
        for book, receiver in self._pairs:
            if active is None:
                book.forget()
                continue
            what = book.due(active, view.now, view.wall)
            if not what:
                continue
            message = made(what, view.wall, agent=view.agent.version, source=view.agent.source)
            if receiver.offer(message):
                book.told(what, view.now)
            else:
                self._board.notification_suppressed(receiver.target.name, "queue_full")

    def close(self, patience: float = 0.0) -> None:
        """Take no more; what waits is tried for ``patience`` seconds."""
        for _, receiver in self._pairs:
            receiver.close(patience)


def made(what: Sequence[Told], wall: float, *, agent: str, source: str, test: bool = False) -> Message:
    """A message with an id of its own."""
    return Message(f"msg_{uuid.uuid4().hex}", wall, tuple(what), agent, source, test)


def targets(hooks: Sequence[Webhook]) -> list[Target]:
    """Where the hooks lead. ConfigurationError for a secret that cannot be read, or a name that is there twice."""
    found: list[Target] = []
    for number, hook in enumerate(hooks):
        name = hook.name or f"{hook.format}-{number + 1}"
        file = Path(hook.secret_file) if hook.secret_file else None
        target = Target(name, hook.url.reveal(), hook.format, hook.timeout, hook.give_up_after, file)
        key = f"webhooks[{number}]"
        if any(other.name == name for other in found):
            raise ConfigurationError(
                [Problem("webhooks", f"{key}.name", f"{name!r} is there twice", "give each its own")]
            )
        try:
            target.secret()
        except (OSError, ValueError) as error:
            fault = f"{file} cannot be used ({getattr(error, 'strerror', None) or error})"
            raise ConfigurationError(
                [Problem("webhooks", f"{key}.secret_file", fault, "write the secret into it")]
            ) from None
        found.append(target)
    return found


def trial(wall: float, *, agent: str, source: str = "default") -> Message:
    """What `unstuck webhook test` sends: an alarm that names no real job."""
    job = {"job": "test", "worker": "host:1:00000000", "reason": "worker_gone", "detail": "this is a test"}
    alarm = Alarm("stuck_jobs", "This is a test: nothing is stuck", wall, 0, "unstuck", "test", jobs=(job,))
    return made([Told(alarm)], wall, agent=agent, source=source, test=True)
