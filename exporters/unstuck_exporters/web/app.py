"""The WSGI application: routes, status codes, headers. All answers come from the board, at once.

Only GET and HEAD; a path that is not listed is 404. `/healthz` and `/readyz` are open, the rest obeys `Access`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

from unstuck_exporters.board import Board
from unstuck_exporters.exposition import OPENMETRICS
from unstuck_exporters.prometheus import Exporter, content_type
from unstuck_exporters.web.access import CHALLENGE, Access
from unstuck_exporters.web.answer import Answer, Environ, Handler, Headers, takes_gzip
from unstuck_exporters.web.api import Api
from unstuck_exporters.web.scrapes import Scrapes
from unstuck_exporters.web.status_page import FILES, StatusPage

log = logging.getLogger(__name__)

_DEFAULT_PATIENCE: Final = 9.5  # seconds; Prometheus gives a scrape 10 unless told otherwise
_SAFE: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)


class App:
    """The application of one agent. ``access`` guards everything but health."""

    def __init__(self, board: Board, access: Access | None = None, exporter: Exporter | None = None) -> None:
        self._board = board
        self._access = access or Access()
        made_by = exporter or Exporter(board)
        self._scrapes = Scrapes(lambda openmetrics: made_by.render(openmetrics=openmetrics))
        api, page = Api(board), StatusPage()
        self._open: dict[str, Handler] = {"/healthz": self.health, "/readyz": self.readiness}
        self._guarded: dict[str, Handler] = {
            **dict.fromkeys(FILES, page),
            "/metrics": self.metrics,
            "/api/v1/status": api.status,
            "/api/v1/events": api.events,
            "/api/v1/history": api.history,
        }

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> Iterable[bytes]:
        """Answer one request. A mistake of our own is a 500 without details; those are in the log."""
        try:
            answer = self._answer(environ)
        except Exception:
            log.exception("request failed", extra={"event": "request_failed", "path": environ.get("PATH_INFO")})
            answer = Answer.text("500 Internal Server Error", "This is our mistake; the agent's log says more.")
        length = sum(map(len, answer.pieces)) if answer.length < 0 else answer.length
        bodiless = answer.status.startswith("304")
        headers: Headers = () if bodiless else (("Content-Type", answer.media), ("Content-Length", str(length)))
        start_response(answer.status, [*headers, ("Content-Security-Policy", answer.policy), *_SAFE, *answer.headers])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else answer.pieces

    def _answer(self, environ: Environ) -> Answer:
        path = environ.get("PATH_INFO", "/")
        handler = self._open.get(path) or self._guarded.get(path)
        if handler is None:
            return Answer.text("404 Not Found", "Not here. See /, /metrics, /healthz, /readyz, /api/v1/status.")
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return Answer.text("405 Method Not Allowed", "Only GET and HEAD.", ("Allow", "GET, HEAD"))
        if path in self._guarded:
            refusal = self._access.refusal(environ)
            if refusal.startswith("401"):
                return Answer.text(refusal, "A user name and password are needed.", ("WWW-Authenticate", CHALLENGE))
            if refusal:
                return Answer.text(refusal, "A client certificate is needed.")
        return handler(environ)

    def metrics(self, environ: Environ) -> Answer:
        """The scrape, in the format and encoding that are asked for."""
        media = content_type(environ.get("HTTP_ACCEPT", ""))
        scrape = self._scrapes.get(
            openmetrics=media == OPENMETRICS,
            gzip=takes_gzip(environ.get("HTTP_ACCEPT_ENCODING", "")),
            patience=patience(environ.get("HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS", "")),
        )
        if scrape is None:
            return Answer.text("503 Service Unavailable", "Another scrape is still being made.", ("Retry-After", "1"))
        headers: Headers = (("Vary", "Accept, Accept-Encoding"),)
        if scrape.compressed:
            headers += (("Content-Encoding", "gzip"),)
        return Answer("200 OK", media, scrape.pieces, headers, length=scrape.size)

    def health(self, _environ: Environ) -> Answer:
        """Whether the process and all its duties live. A Redis that is away is no reason to restart the agent."""
        view = self._board.view()
        overdue = [
            {
                "duty": duty.name,
                "overdue_seconds": round(duty.overdue(view.now), 1),
                "deadline_seconds": duty.deadline,
                "missed": duty.missed,
            }
            for duty in view.overdue
        ]
        document = {"status": "failing" if overdue else "ok", "overdue": overdue}
        return Answer.json("503 Service Unavailable" if overdue else "200 OK", document)

    def readiness(self, _environ: Environ) -> Answer:
        """Whether Redis is reached, and the first sweep done or a leader seen."""
        view = self._board.view()
        reason = view.not_ready()
        document = {"status": "not ready" if reason else "ready", "reason": reason, "role": view.agent.role.value}
        return Answer.json("503 Service Unavailable" if reason else "200 OK", document)


def patience(header: str) -> float:
    """Seconds to wait for another request's rendering: a little less than Prometheus gives this scrape."""
    given = _DEFAULT_PATIENCE + 0.5
    with contextlib.suppress(ValueError):
        given = float(header)
    return min(_DEFAULT_PATIENCE, max(0.1, given - 0.5)) if given == given else _DEFAULT_PATIENCE  # noqa: PLR0124 — NaN
