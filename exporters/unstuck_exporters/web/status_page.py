"""The files of the status page, from the package's folder `static/`: one page, its style, its scripts, its icon.

No file holds data: the page's script asks `/api/v1/…` and puts what it gets into the page as text, never as markup. The
content security policy allows the agent's own files and nothing else, inline code least of all.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

from unstuck_exporters.web.answer import Answer, Environ

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
"""The content security policy of the page. Trusted types make every way from a string to markup an error."""

FILES: Final = {
    "/": ("status.html", "text/html; charset=utf-8"),
    "/static/status.css": ("status.css", "text/css; charset=utf-8"),
    "/static/status.js": ("status.js", "text/javascript; charset=utf-8"),
    "/static/words.js": ("words.js", "text/javascript; charset=utf-8"),
    "/static/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "/static/parts.js": ("parts.js", "text/javascript; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""Path → file and media type."""


class StatusPage:
    """Answers the page's own paths; each file is read once."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[bytes, str]] = {}

    def __call__(self, environ: Environ) -> Answer:
        """The file of this path, or 304 for those who have it."""
        name, media = FILES[environ.get("PATH_INFO", "/")]
        if name not in self._read:
            body = (files("unstuck_exporters.web") / "static" / name).read_bytes()
            self._read[name] = body, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        body, tag = self._read[name]
        if tag in environ.get("HTTP_IF_NONE_MATCH", ""):
            return Answer("304 Not Modified", media, [], (("ETag", tag),), POLICY)
        return Answer("200 OK", media, [body], (("ETag", tag),), POLICY)
