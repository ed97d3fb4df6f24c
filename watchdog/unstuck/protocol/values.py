"""What goes over the wire, made fit for the scripts: payloads as JSON text, texts cut to size, durations as milliseconds."""

from __future__ import annotations

import json
import random
from typing import Any

from unstuck.errors import Refused

MAX_PAYLOAD_BYTES = 1_048_576
MAX_PROGRESS_BYTES = 1_024
MAX_ERROR_BYTES = 4_096


def encode(payload: Any) -> str:
    """A payload as compact JSON text. Raises `Refused` where JSON cannot hold it (NaN and infinities included).

    A lone surrogate is refused, too: it is no character, and UTF-8 has no form for it.
    """
    try:
        whole = json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as bad:
        raise Refused(f"payload is not JSON: {bad}; use objects, lists, strings, numbers, true, false, null") from bad
    size(whole)
    return whole


def size(payload: str) -> int:
    """Bytes of a payload in UTF-8. Raises `Refused` for a lone surrogate."""
    try:
        return len(payload.encode())
    except UnicodeEncodeError as bad:
        lone = ascii(bad.object[bad.start])
        raise Refused(
            f"payload holds the lone surrogate {lone}, which UTF-8 cannot hold; decode the bytes it came from, "
            "as a file name's, with their right encoding"
        ) from None


def clip(value: str, size: int) -> str:
    """Text cut to at most `size` bytes of UTF-8, never inside a character. A lone surrogate becomes `\\udc80`, spelt out."""
    return value.encode("utf-8", "backslashreplace")[:size].decode("utf-8", "ignore")


def jitter_thousandths() -> int:
    """A factor of 0.8 to 1.2 in thousandths, for backoff."""
    return random.randint(800, 1200)  # noqa: S311  spreads load, no secret


def milliseconds(seconds: float, what: str) -> int:
    """Seconds as whole milliseconds. Raises `Refused` outside 0 to 1e9 s."""
    if not 0 <= seconds < 1e9:
        raise Refused(f"{what} {seconds}: use seconds from 0 to 1e9")
    return round(seconds * 1000)
