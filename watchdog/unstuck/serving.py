"""The agent's HTTP endpoint, put together from the settings and the board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unstuck_exporters.web.access import Access
from unstuck_exporters.web.app import App
from unstuck_exporters.web.server import HttpServer

if TYPE_CHECKING:
    from unstuck.config import Http
    from unstuck_exporters.board import Board


def http_server(settings: Http, board: Board) -> HttpServer:
    """The server, not yet started. ConfigurationError for a certificate that cannot be read."""
    app = App(board, Access(settings.basic_auth, client_certificates=bool(settings.tls.client_ca)))
    return HttpServer(
        app,
        settings.listen.host,
        settings.listen.port,
        cert=settings.tls.cert,
        key=settings.tls.key,
        client_ca=settings.tls.client_ca,
    )
