"""The routes of the HTTP side, asked over real sockets."""

import gzip
import json
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from support.boards import full_board
from support.web import ask, serving
from unstuck.clock import ManualClock
from unstuck.model import Capability, Event, Lease, QueueSnapshot, Reason, Standing, Verdict
from unstuck_exporters.board import Board
from unstuck_exporters.web.app import App, takes_gzip
from unstuck_exporters.web.server import HttpServer


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


def test_the_status_has_the_shape_of_inspect_and_the_agents_part(server, board):
    board.happened(Event("requeued", 1_700_000_000.0, "unstuck", "mail", "j1", "host:1:aaaaaaaa"))
    document = json.loads(ask(server, "/api/v1/status")[2])
    assert list(document) == ["redis", "queues", "findings", "agent"]
    assert document["redis"]["version"] == "7.0.15"
    assert document["redis"]["gate"] == {"open": True, "reasons": []}
    (queue,) = document["queues"]
    wanted = {"backend", "queue", "waiting", "scheduled", "running", "dead", "workers", "stuck",
              "oldest_waiting_seconds", "oldest_running_seconds", "capability", "mode"}  # fmt: skip
    assert wanted <= set(queue)
    assert (queue["workers"], queue["stuck"], queue["oldest_waiting_seconds"]) == (3, 1, 12.5)
    job, suspect, side = document["findings"]
    assert (job["job"], job["verdict"], job["reason"], suspect["verdict"]) == ("j1", "stuck", "worker_dead", "suspect")
    assert (side["job"], side["reason"]) == (None, "no_worker")
    assert document["agent"]["role"] == "leader"
    assert document["agent"]["events"][0]["job"] == "j1"


def test_the_status_of_an_agent_that_has_seen_nothing_is_whole(clock):
    with serving(App(Board(clock=clock))) as server:
        document = json.loads(ask(server, "/api/v1/status")[2])
        assert (document["queues"], document["findings"], document["redis"]["version"]) == ([], [], None)
        assert ask(server, "/")[0] == 200
        assert ask(server, "/readyz")[0] == 503
        assert b"unstuck_redis_up" in ask(server, "/metrics")[2]


def test_old_data_is_neither_in_the_status_nor_on_the_page(server, clock):
    clock.advance(16)
    document = json.loads(ask(server, "/api/v1/status")[2])
    assert (document["queues"], document["findings"], document["redis"]["used_memory_bytes"]) == ([], [], None)
    assert document["agent"]["queues_not_fresh"] == [{"backend": "unstuck", "queue": "mail", "error": ""}]
    page = ask(server, "/")[2].decode()
    assert "no fresh data" in page
    assert "Redis is away" in page


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


def test_nothing_from_redis_becomes_markup_on_the_page(clock):
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    board = Board(clock=clock)
    board.leads(1)
    board.redis_failed("look", "other", 0.1, evil)
    board.looked("rq", [QueueSnapshot("rq", evil, Capability.OBSERVE, waiting=1)])
    lease = Lease(evil, worker=evil, token="1")
    board.judged("rq", evil, [Verdict("rq", evil, lease, Standing.STUCK, Reason.WORKER_DEAD, detail=evil)])
    board.happened(Event(evil, 0.0, evil, evil, evil, evil, detail=evil))
    with serving(App(board)) as server:
        _, headers, body = ask(server, "/")
    page = _Tags()
    page.feed(body.decode())
    assert {"script", "img"}.isdisjoint(page.tags)
    assert page.text.count(evil) >= 7
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "unsafe" not in policy


def test_a_name_that_is_no_text_breaks_neither_page_nor_status(clock):
    board = Board(clock=clock)
    board.leads(1)
    board.looked("rq", [QueueSnapshot("rq", "bad\udcff", Capability.OBSERVE)])
    with serving(App(board)) as server:
        assert [ask(server, path)[0] for path in ("/", "/metrics", "/api/v1/status")] == [200, 200, 200]


def test_a_page_of_ten_thousand_stuck_jobs_stays_small(board, server):
    many = [
        Verdict("unstuck", "mail", Lease(f"j{i}", token="1"), Standing.STUCK, Reason.WORKER_DEAD) for i in range(10_000)
    ]
    board.judged("unstuck", "mail", many)
    body = ask(server, "/")[2]
    assert len(body) < 100_000
    assert b"more</p>" in body


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
    status, _, body = ask(server, "/")
    assert status == 500
    assert b"secret" not in body
    assert "secret detail" in caplog.text
