"""The routes of the HTTP side, asked over real sockets."""

import gzip
import json
import re
from collections.abc import Iterator

import pytest

from support.boards import full_board
from support.web import ask, serving
from unstuck.clock import ManualClock
from unstuck_exporters.board import Board
from unstuck_exporters.web.answer import takes_gzip
from unstuck_exporters.web.app import App
from unstuck_exporters.web.server import HttpServer
from unstuck_exporters.web.status_page import FILES


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def board(clock: ManualClock) -> Board:
    return full_board(clock)


@pytest.fixture
def server(board: Board) -> Iterator[HttpServer]:
    with serving(App(board)) as running:
        yield running


def test_metrics_are_served_as_text_and_as_openmetrics(server):
    status, headers, body = ask(server, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'unstuck_queue_jobs{backend="unstuck",queue="mail",state="waiting"} 3' in body
    status, headers, body = ask(server, "/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert body.endswith(b"# EOF\n")


def test_metrics_are_compressed_for_those_who_ask(server):
    _, headers, body = ask(server, "/metrics", headers={"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    assert int(headers["Content-Length"]) == len(body)
    assert b"unstuck_build_info" in gzip.decompress(body)
    assert ask(server, "/metrics")[1]["Content-Encoding"] is None


@pytest.mark.parametrize(
    ("header", "wanted"),
    [("gzip", True), ("deflate, gzip;q=0.5", True), ("*", True), ("", False), ("identity", False), ("gzip;q=0", False),
     ("gzip; q=0.0", False), ("GZIP", True)],
)  # fmt: skip
def test_compression_obeys_the_header(header, wanted):
    assert takes_gzip(header) is wanted


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz", "/api/v1/status"])
def test_head_answers_like_get_without_a_body(server, path):
    status, headers, _ = ask(server, path)
    head_status, head_headers, body = ask(server, path, method="HEAD")
    assert (head_status, head_headers["Content-Type"], body) == (status, headers["Content-Type"], b"")
    assert int(head_headers["Content-Length"]) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz"])
def test_other_methods_are_not_allowed(server, method, path):
    status, headers, _ = ask(server, path, method=method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path", ["/metric", "/metrics/", "/favicon.ico", "/%2e%2e/etc/passwd", "/api", "/api/v1/", "/healthz/x", "/scrape?target=x"]
)  # fmt: skip
def test_anything_else_is_not_found(server, path):
    assert ask(server, path)[0] == 404


def test_a_query_changes_nothing(server):
    assert ask(server, "/healthz?verbose=1")[0] == 200


def test_health_names_the_duty_that_is_late(server, board, clock):
    assert ask(server, "/healthz")[::2] == (200, b'{"status":"ok","overdue":[]}\n')
    clock.advance(12.5)
    status, headers, body = ask(server, "/healthz")
    assert (status, headers["Content-Type"]) == (503, "application/json")
    (late,) = json.loads(body)["overdue"]
    assert late == {"duty": "sweep", "overdue_seconds": 2.5, "deadline_seconds": 10.0, "missed": 0}
    board.passed("sweep", 0.1, ok=False)
    assert ask(server, "/healthz")[0] == 200, "a pass that fails is a living duty"


def test_a_redis_that_is_away_is_unready_and_healthy(server, board):
    assert ask(server, "/readyz")[0] == 200
    board.redis_failed("look", "connection", 0.1, "Redis at 127.0.0.1:1 refused the connection")
    status, _, body = ask(server, "/readyz")
    assert (status, json.loads(body)["reason"]) == (
        503,
        "Redis is not reached: Redis at 127.0.0.1:1 refused the connection",
    )
    assert ask(server, "/healthz")[0] == 200


@pytest.mark.parametrize("path", ["/", "/static/status.js", "/static/status.css", "/static/icon.svg"])
def test_the_pages_files_are_served_under_a_policy_that_allows_no_inline_code(server, path):
    status, headers, body = ask(server, path)
    assert (status, bool(body)) == (200, True)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert ask(server, path, headers={"If-None-Match": headers["ETag"]})[0] == 304


def test_the_whole_page_weighs_less_than_100_kb_and_names_no_address_outside(server):
    bodies = [ask(server, path)[2] for path in FILES]
    assert sum(map(len, bodies)) < 100_000
    for body in bodies:
        assert {b"http://www.w3.org/2000/svg"} >= set(re.findall(rb"https?://[^\s\"']+", body))
        assert b"<style" not in body
        assert b"innerHTML" not in body


def test_every_answer_forbids_sniffing_framing_and_storing(server):
    for path in ("/", "/metrics", "/nothing", "/healthz"):
        headers = ask(server, path)[1]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Server"] == "unstuck"


def test_a_mistake_of_our_own_is_a_500_without_details(board, server, monkeypatch, caplog):
    def broken() -> None:
        raise ValueError("secret detail")

    monkeypatch.setattr(board, "view", broken)
    status, _, body = ask(server, "/api/v1/status")
    assert status == 500
    assert b"secret" not in body
    assert "secret detail" in caplog.text
