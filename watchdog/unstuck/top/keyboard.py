"""The keys of a terminal, one by one and without echo; the terminal gets back its old settings in the end."""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

_SEQUENCES: Final = {
    "[A": "up", "OA": "up", "[B": "down", "OB": "down", "[5~": "page up", "[6~": "page down",
    "[H": "home", "OH": "home", "[1~": "home", "[F": "end", "OF": "end", "[4~": "end",
}  # fmt: skip
_SINGLE: Final = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x03": "q", "\x15": "clear"}


class Keyboard:
    """Keys from a file descriptor that is a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def read(self, seconds: float) -> list[str]:
        """The keys that were pressed, waiting at most this long for the first; a closed terminal is a `q`."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if not ready:
            return []
        try:
            typed = os.read(self._descriptor, 1024)
        except OSError:
            return ["q"]
        return list(keys(typed.decode("utf-8", "ignore"))) if typed else ["q"]


def keys(typed: str) -> Iterator[str]:
    """What was typed, as names of keys; printable signs stand for themselves."""
    while typed:
        if typed[0] == "\x1b":
            known = next((one for one in _SEQUENCES if typed.startswith(one, 1)), None)
            if known is not None:
                yield _SEQUENCES[known]
                typed = typed[1 + len(known) :]
            elif typed[1:2] in {"[", "O"}:  # a sequence that means nothing here ends with a letter or a tilde
                end = next((i for i, sign in enumerate(typed[2:], 2) if sign.isalpha() or sign == "~"), len(typed))
                typed = typed[end + 1 :]
            else:
                yield "escape"
                typed = typed[1:]
            continue
        sign, typed = typed[0], typed[1:]
        if sign in _SINGLE:
            yield _SINGLE[sign]
        elif sign.isprintable():
            yield sign
