"""An HTTP server of the exporters on a free port, and a client that asks it."""

import contextlib
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message

from unstuck_exporters.web.app import App
from unstuck_exporters.web.server import HttpServer


@contextlib.contextmanager
def serving(app: App, **options: str) -> Iterator[HttpServer]:
    """Serve the application until the end of the block."""
    server = HttpServer(app, port=0, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def ask(
    server: HttpServer,
    path: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> tuple[int, Message, bytes]:
    """Status, headers and body of one request, whatever the status."""
    request = urllib.request.Request(server.url + path, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.headers, refusal.read()
