"""What a route answers, and what the headers of a request ask for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

Environ = Mapping[str, Any]
Handler = Callable[[Environ], "Answer"]
Headers = tuple[tuple[str, str], ...]

NOTHING_ACTIVE: Final = "default-src 'none'; frame-ancestors 'none'"
"""The content security policy of everything that is no page."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, body and headers of one answer."""

    status: str
    media: str
    pieces: list[bytes]
    headers: Headers = ()
    policy: str = NOTHING_ACTIVE
    length: int = field(default=-1)

    @classmethod
    def text(cls, status: str, text: str, *headers: tuple[str, str]) -> Answer:
        """A plain sentence."""
        return cls(status, "text/plain; charset=utf-8", [text.encode() + b"\n"], headers)

    @classmethod
    def json(cls, status: str, document: object) -> Answer:
        """A JSON document."""
        return cls(status, "application/json", [encoded(document) + b"\n"])


def encoded(document: object) -> bytes:
    """JSON. A name that is no text (a lone surrogate) takes the slower writer, which escapes it."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()


def takes_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header asks for gzip."""
    for part in header.lower().split(","):
        coding, _, quality = part.partition(";")
        if coding.strip() in {"gzip", "*"}:
            return quality.replace(" ", "").removeprefix("q=").rstrip("0") not in {"0.", ""} if quality else True
    return False
