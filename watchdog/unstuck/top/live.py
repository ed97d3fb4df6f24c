"""The clockwork of `top`: a thread looks again and again, the main one draws and listens to the keyboard.

What may go wrong: a look hangs (Redis or the agent is frozen). The keyboard stays alive, the age of what is shown grows and
is said; `q` leaves at once, for the thread holds nothing that must be given back.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from unstuck.errors import UnstuckError
from unstuck.top.choices import Choices
from unstuck.top.keyboard import Keyboard
from unstuck.top.screen import lines
from unstuck.top.sources import Seen, Source

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

KEY_PATIENCE_SECONDS: Final = 0.25


class Looking:
    """Looks every ``interval`` seconds in a thread of its own; `latest` is what it saw, and why the last look failed."""

    def __init__(self, source: Source, first: Seen, interval: float, narrow: Callable[[Seen], Seen]) -> None:
        self._source, self._interval, self._narrow = source, interval, narrow
        self._seen, self._trouble = first, ""
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="top", daemon=True)

    @property
    def latest(self) -> tuple[Seen, str]:
        """What was seen last, and the sentence of the last failure (empty: the last look worked)."""
        with self._lock:
            return self._seen, self._trouble

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            trouble, seen = "", None
            try:
                seen = self._narrow(self._source.read())
            except UnstuckError as error:
                trouble = str(error)
            except Exception as error:  # noqa: BLE001 — whatever it is, the person is told and it is tried again
                trouble = f"{type(error).__name__}: {error}"
            with self._lock:
                self._trouble = trouble
                self._seen = seen or self._seen

    @contextmanager
    def running(self) -> Iterator[None]:
        """While this lasts it looks."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()


def console(*, piped: bool, stream: Any = None) -> Console:
    """A console that interprets nothing in what it is given."""
    from rich.console import Console

    size = {"width": 100, "height": 40} if piped else {}
    return Console(file=stream or sys.stdout, markup=False, highlight=False, emoji=False, **size)  # type: ignore[arg-type]


def one_frame(seen: Seen, choices: Choices, out: Console) -> None:
    """Print one screen and no keys, for pipes and scripts; as many lines as there is something to say."""
    made = lines(seen, choices, out.width, out.height, now=time.monotonic())[:-1]
    while made and not made[-1].plain.strip():
        made.pop()
    for line in made:
        out.print(line, end="\n", overflow="crop", crop=True)


def watch(source: Source, first: Seen, choices: Choices, interval: float, narrow: Callable[[Seen], Seen]) -> None:
    """Show it until the person leaves. The terminal is given back as it was, also when it is killed by SIGTERM."""
    from rich.live import Live

    out = console(piped=False)
    looking = Looking(source, first, interval, narrow)

    def drawn() -> RenderableType:
        from rich.text import Text

        seen, trouble = looking.latest
        width, height = out.size
        return Text("\n", no_wrap=True, overflow="crop").join(
            lines(seen, choices, width, height, trouble=trouble, now=time.monotonic())
        )

    with (
        ending_cleanly(),
        looking.running(),
        Keyboard(sys.stdin.fileno()) as keyboard,
        Live(drawn(), console=out, screen=True, auto_refresh=False) as live,
    ):
        shown_at, known = time.monotonic(), (looking.latest, out.size)
        while True:
            pressed = keyboard.read(KEY_PATIENCE_SECONDS)
            if not all(choices.press(key) for key in pressed):
                return
            now = looking.latest, out.size
            if pressed or now != known or time.monotonic() - shown_at >= 1.0:
                live.update(drawn(), refresh=True)
                shown_at, known = time.monotonic(), now


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """SIGTERM and SIGHUP end it like Ctrl-C: the terminal is put back first."""

    def leave(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
