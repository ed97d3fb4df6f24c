"""The right form of a word: the nearest known one for what was not understood, and that of a noun behind its number."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable


def counted(number: int, one: str, many: str = "") -> str:
    """The number and its noun: ``1 job``, ``2 jobs``. ``many`` is the plural where an ``s`` does not make it."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _plain(word: str) -> str:
    """Lower case with ``_`` between words: ``stuckAfter``, ``stuck-after`` and ``STUCK_AFTER`` become one."""
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word)
    return re.sub(r"[-\s.]+", "_", word).lower()


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that was most likely meant, None if nothing is near."""
    by_plain = {_plain(choice): choice for choice in choices}
    plain = _plain(word)
    if plain in by_plain:
        return by_plain[plain]
    squeezed = {key.replace("_", ""): choice for key, choice in by_plain.items()}
    if plain.replace("_", "") in squeezed:
        return squeezed[plain.replace("_", "")]
    found = difflib.get_close_matches(plain, by_plain, n=1, cutoff=0.7)
    return by_plain[found[0]] if found else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``", did you mean `x`?"`` for the end of a clause, empty if nothing is near."""
    found = nearest(word, choices)
    return f", did you mean `{found}`?" if found else ""


def nearest_first(word: str, choices: Iterable[str], meant: Callable[[str], str] = str) -> list[str]:
    """All the choices, the one most like the word first. ``meant`` gives the part of a choice that is compared."""
    plain = _plain(word)
    return sorted(choices, key=lambda one: -difflib.SequenceMatcher(None, plain, _plain(meant(one))).ratio())
