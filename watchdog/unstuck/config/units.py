"""The values that settings are made of: durations, shares, sizes, addresses and secrets.

Each is written with its unit (``5s``, ``50%``, ``512mb``), so that no number can be read in the wrong one. A value that
cannot be read raises ValueError with the fault and the mend, split by ``"; "``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DURATION_MEND: Final = "write a number and a unit, such as 200ms, 5s, 2m, 1h or 30d"


def _number(text: object) -> float | None:
    """The value of a bare number, also one given as text; None for anything else."""
    if isinstance(text, bool):
        return None
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _plain(value: float) -> str:
    return f"{value:.10f}".rstrip("0").rstrip(".")


class Seconds(float):
    """A duration in seconds. ``str()`` gives it back as it is written in a file (``90s``, ``2m``)."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> Seconds:
        """Read ``200ms``, ``5s``, ``2m``, ``1h``, ``30d`` or a chain such as ``1h30m``."""
        number = _number(text)
        if number is not None:
            if not math.isfinite(number):
                raise ValueError(f"{text} is not a duration; {_DURATION_MEND}")
            if number == 0:
                raise ValueError("a duration needs a unit; write 0s")
            raise ValueError(f"a duration needs a unit; write {text}s if seconds are meant (or {text}ms, {text}m)")
        if not isinstance(text, str):
            raise ValueError(f"{_show(text)} is not a duration; {_DURATION_MEND}")  # noqa: TRY004 — a fault of the file
        word = text.strip().lower()
        if word.startswith("-"):
            raise ValueError(f"{text} is negative; {_DURATION_MEND}")
        parts = _PART.findall(word)
        if not parts or _PART.sub("", word).strip():
            raise ValueError(f"{text!r} is not a duration; {_DURATION_MEND}")
        return cls(sum(float(number) * _UNITS[unit] for number, unit in parts))

    @property
    def ms(self) -> int:
        """The same in whole milliseconds, for Redis."""
        return round(self * 1000)

    def __str__(self) -> str:
        for unit in ("d", "h", "m", "s"):
            amount = float(self) / _UNITS[unit]
            if amount >= 1 and amount == int(amount):
                return f"{int(amount)}{unit}"
        return f"{_plain(float(self))}s" if self >= 1 or not self else f"{_plain(float(self) * 1000)}ms"

    def __repr__(self) -> str:
        return f"Seconds({str(self)!r})"


class Share(float):
    """A part of a whole, 0.0 to 1.0, written as a percentage (``50%``)."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> Share:
        """Read ``75%``."""
        number = _number(text)
        if number is not None and math.isfinite(number):
            wanted = number * 100 if 0 < number <= 1 else number
            raise ValueError(f"a share is a percentage; write {_plain(wanted)}%")
        found = _SHARE.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None:
            raise ValueError(f"{_show(text)} is not a percentage; write it like 50%")
        if float(found[1]) > 100:
            raise ValueError(f"{text} is more than the whole; write 0% to 100%")
        return cls(float(found[1]) / 100)

    def __str__(self) -> str:
        return f"{_plain(float(self) * 100)}%"

    def __repr__(self) -> str:
        return f"Share({str(self)!r})"


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """An amount of memory: a share of Redis' ``maxmemory``, or bytes. Exactly one of the two is set."""

    share: Share | None = None
    size_bytes: int | None = None

    @classmethod
    def parse(cls, text: object) -> MemoryLimit:
        """Read ``75%`` or ``512mb`` (kb, mb, gb, tb are powers of 1024, as in Redis)."""
        number = _number(text)
        if number is not None:
            raise ValueError(f"a memory limit needs a unit; write {text}mb, or a share of maxmemory such as 75%")
        if isinstance(text, str) and "%" in text:
            return cls(share=Share.parse(text))
        found = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None:
            raise ValueError(f"{_show(text)} is no amount of memory; write a share of maxmemory (75%) or 512mb, 2gb")
        power = _POWERS[found[2].lower().removesuffix("b").removesuffix("i")]
        return cls(size_bytes=int(float(found[1]) * 1024**power))

    def of(self, maxmemory_bytes: int) -> int | None:
        """The limit in bytes; None if it is a share and Redis has no ``maxmemory`` (0)."""
        if self.share is None:
            return self.size_bytes
        return int(maxmemory_bytes * self.share) if maxmemory_bytes > 0 else None

    def __float__(self) -> float:
        return float(self.share if self.share is not None else self.size_bytes or 0)

    def __str__(self) -> str:
        if self.share is not None:
            return str(self.share)
        size = self.size_bytes or 0
        for power, unit in ((4, "tb"), (3, "gb"), (2, "mb"), (1, "kb")):
            if size and size % 1024**power == 0:
                return f"{size // 1024**power}{unit}"
        return f"{size}b"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a server listens: host without brackets, port 0 to 65535 (0: any free one)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: object) -> ListenAddress:
        """Read ``127.0.0.1:9797``, ``[::1]:9797`` or ``:9797`` (every address of the machine)."""
        mend = "write HOST:PORT, such as 127.0.0.1:9797"
        host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        if not colon or not (port.isascii() and port.isdigit()):
            raise ValueError(f"{_show(text)} is no address to listen on; {mend}")
        if int(port) > 65535:
            raise ValueError(f"port {port} is above 65535; {mend}")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host or "/" in host:
            raise ValueError(f"{text!r} is no address to listen on; {mend}; an IPv6 address stands in [brackets]")
        return cls(host or "0.0.0.0", int(port))  # noqa: S104 — the short form asks for exactly that

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Secret:
    """A text that is never shown: ``str()`` and ``repr()`` give ``***``. No encoder knows how to write it out."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def parse(cls, text: object) -> Secret:
        """Wrap a text."""
        if not isinstance(text, str) or not text:
            raise ValueError("a text is needed here; put it in quotes")
        return cls(text)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.reveal() == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def reveal(self) -> str:
        """The text itself, for the one call that needs it."""
        return self._text

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self}')"


class HookUrl(Secret):
    """The address of a webhook. Its path is often a password, so only scheme and host are shown."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> HookUrl:
        """Read an http or https address."""
        parts = urlsplit(text) if isinstance(text, str) else None
        if not isinstance(text, str) or parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("no web address; write it like https://host/path")
        return cls(text)

    def __str__(self) -> str:
        parts = urlsplit(self._text)
        return f"{parts.scheme}://{parts.hostname}/***"


def _show(value: object) -> str:
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list):
        return "a list"
    return repr(value)


def written(value: Any) -> Any:
    """The value as it would be written in a file, made of plain types only; secrets are ``***``."""
    if isinstance(value, Struct):
        return {name: written(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: written(one) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [written(one) for one in value]
    return value if value is None or type(value) in (bool, int, float, str) else str(value)
