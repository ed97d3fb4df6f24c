"""The JSON routes: status, events, history. Everything comes from the board, nothing from Redis.

A status is made once for all who ask at about the same time: it is used again for ten times the processor time that it
took, at most a second. Its ETag is that of what it says of the queues and of the agent's state, not of the clock's
progress, so a page that asks again before anything happened gets 304 and no body.
"""

from __future__ import annotations

import hashlib
import threading
import time
import urllib.parse
import zlib
from dataclasses import dataclass
from typing import Final

from unstuck_exporters.board import Board
from unstuck_exporters.history import STEP, Point
from unstuck_exporters.web.answer import Answer, Environ, encoded, takes_gzip
from unstuck_exporters.web.document import (
    Parts,
    agent_part,
    events_document,
    present_part,
    shown_queues,
    status_document,
)

LONGEST_REUSE_SECONDS: Final = 1.0
_REUSE_PER_COST: Final = 10.0
_REUSE_FROM_SECONDS: Final = 0.002  # a cheaper one is made anew for everybody
_GZIP_FROM: Final = 4096  # bytes
MOST_HISTORIES: Final = 60
MOST_EVENTS: Final = 500
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class _Made:
    body: bytes
    packed: bytes
    tag: str
    good_until: float  # monotonic


class Api:
    """The documents of one agent."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._lock = threading.Lock()
        self._made = _Made(b"", b"", "", 0.0)
        self._parts = Parts()

    @property
    def good_until(self) -> float:
        """The monotonic time up to which the last status is used again."""
        return self._made.good_until

    def status(self, environ: Environ) -> Answer:
        """The document of `unstuck inspect --json`, and the agent's own part."""
        made = self._status()
        headers = (("ETag", made.tag), ("Vary", "Accept-Encoding"))
        if made.tag in environ.get("HTTP_IF_NONE_MATCH", ""):
            return Answer("304 Not Modified", _JSON, [], headers)
        if made.packed and takes_gzip(environ.get("HTTP_ACCEPT_ENCODING", "")):
            return Answer("200 OK", _JSON, [made.packed], (*headers, ("Content-Encoding", "gzip")))
        return Answer("200 OK", _JSON, [made.body], headers)

    def events(self, environ: Environ) -> Answer:
        """The latest events: `?since=CURSOR&limit=NUMBER`."""
        asked = query(environ)
        try:
            limit = int(asked.get("limit", [str(MOST_EVENTS)])[-1])
        except ValueError:
            return Answer.text("400 Bad Request", "limit is no number.")
        since = asked.get("since", [""])[-1]
        return Answer.json("200 OK", events_document(self._board.view(), since, max(0, min(limit, MOST_EVENTS))))

    def history(self, environ: Environ) -> Answer:
        """The last half hour of some queues: `?queue=BACKEND/NAME&queue=…&since=UNIX_TIME`."""
        asked = query(environ)
        try:
            since = float(asked.get("since", ["0"])[-1])
        except ValueError:
            return Answer.text("400 Bad Request", "since is no number.")
        queues = []
        for name in asked.get("queue", [])[:MOST_HISTORIES]:
            backend, _, queue = name.partition("/")
            points = [_values(point) for point in self._board.history(backend, queue) if point.at > since]
            queues.append({"backend": backend, "queue": queue, "points": points})
        return Answer.json("200 OK", {"step_seconds": STEP, "fields": FIELDS, "queues": queues})

    def _status(self) -> _Made:
        with self._lock:
            if time.monotonic() < self._made.good_until:
                return self._made
            begun = time.thread_time()
            view = self._board.view()
            ledgers = shown_queues(view)
            document = status_document(view, ledgers, self._parts)
            steady, present = agent_part(view, ledgers), present_part(view)
            common = encoded({**document, "agent": steady})
            duties = [(d["duty"], d["ok"], d["overdue_seconds"], d["detail"]) for d in present["duties"]]
            tag = hashlib.blake2b(common + encoded(duties), digest_size=12).hexdigest()
            # The agent's part comes last, and ends with its two braces.
            body = common[:-2] + b"," + encoded(present)[1:] + b"}\n"
            cost = time.thread_time() - begun
            packed = b""
            if len(body) >= _GZIP_FROM:
                squeeze = zlib.compressobj(level=1, wbits=31)
                packed = squeeze.compress(body) + squeeze.flush()
            reuse = min(LONGEST_REUSE_SECONDS, _REUSE_PER_COST * cost) if cost >= _REUSE_FROM_SECONDS else 0.0
            self._made = _Made(body, packed, f'W/"{tag}"', time.monotonic() + reuse)
            return self._made


FIELDS: Final = ("at", "waiting", "running", "stuck", "oldest_waiting_seconds", "throughput")
"""What the numbers of a point are."""


def _values(point: Point) -> tuple[float | None, ...]:
    oldest, rate = point.oldest_waiting, point.throughput
    return (
        round(point.at, 1),
        point.waiting,
        point.running,
        point.stuck,
        None if oldest is None else round(oldest, 1),
        None if rate is None else round(rate, 3),
    )


def query(environ: Environ) -> dict[str, list[str]]:
    """The query string; what is no UTF-8 becomes U+FFFD, as it does in names that come from Redis."""
    text = str(environ.get("QUERY_STRING", ""))
    return urllib.parse.parse_qs(text, keep_blank_values=True, errors="replace", max_num_fields=200)
