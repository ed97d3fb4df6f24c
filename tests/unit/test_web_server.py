"""The HTTP server under load, nonsense and silence, and how it starts and stops."""

import concurrent.futures
import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from support.boards import full_board, snapshot
from support.waiting import wait_until
from support.web import ask, serving
from unstuck.clock import ManualClock
from unstuck.errors import ConfigurationError
from unstuck_exporters.board import Board
from unstuck_exporters.prometheus import Exporter
from unstuck_exporters.web.app import App, patience
from unstuck_exporters.web.scrapes import Scrapes
from unstuck_exporters.web.server import MOST_WAITING, HttpServer


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


class Gate:
    """An exporter whose rendering waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.open, self.renders = threading.Semaphore(0), threading.Event(), 0

    def render(self, *, openmetrics: bool = False) -> list[bytes]:
        self.renders += 1
        self.entered.release()
        assert self.open.wait(10)
        return [b"unstuck_x 1\n"]


def test_scrapes_that_come_together_are_rendered_once(board):
    gate = Gate()
    with serving(App(board, exporter=gate)) as server, concurrent.futures.ThreadPoolExecutor(8) as crowd:
        first = crowd.submit(ask, server, "/metrics")
        assert gate.entered.acquire(timeout=5)
        others = [crowd.submit(ask, server, "/metrics") for _ in range(6)]
        time.sleep(0.2)
        gate.open.set()
        assert {answer.result(5)[2] for answer in [first, *others]} == {b"unstuck_x 1\n"}
    assert gate.renders <= 2, "those that came too late for the first may share a second one"


def test_a_scrape_waits_no_longer_for_another_than_its_own_timeout_allows(board):
    gate = Gate()
    with serving(App(board, exporter=gate)) as server, concurrent.futures.ThreadPoolExecutor(1) as crowd:
        first = crowd.submit(ask, server, "/metrics")
        assert gate.entered.acquire(timeout=5)
        begun = time.monotonic()
        status, headers, _ = ask(server, "/metrics", headers={"X-Prometheus-Scrape-Timeout-Seconds": "0.8"})
        assert (status, headers["Retry-After"]) == (503, "1")
        assert time.monotonic() - begun < 0.8
        assert ask(server, "/healthz")[0] == 200, "health does not wait for scrapes"
        gate.open.set()
        assert first.result(5)[0] == 200


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("", 9.5), ("10", 9.5), ("3", 2.5), ("0.2", 0.1), ("1e9", 9.5), ("pear", 9.5), ("nan", 9.5), ("-1", 0.1)],
)
def test_patience_is_a_little_less_than_the_scrape_timeout(header, seconds):
    assert patience(header) == seconds


def test_a_dear_scrape_is_used_again_for_a_while_and_a_cheap_one_is_not():
    now, cost, made = [0.0], [0.05], []

    def render(_openmetrics: bool) -> list[bytes]:
        now[0] += cost[0]
        made.append(1)
        return [b"x"]

    scrapes = Scrapes(render, clock=lambda: now[0])
    get = lambda: scrapes.get(openmetrics=False, gzip=False, patience=1)  # noqa: E731
    get()
    now[0] += 0.4
    get()
    assert len(made) == 1
    now[0] += 0.2
    get()
    assert len(made) == 2
    cost[0] = 10.0
    now[0] += 1
    get()
    now[0] += 1.01
    get()
    assert len(made) == 4, "never used for longer than a second"


def test_a_rendering_that_fails_fails_for_all_who_wait_and_not_for_ever():
    entered, go = threading.Event(), threading.Event()
    trouble: list[Exception] = [ValueError("no")]

    def render(_openmetrics: bool) -> list[bytes]:
        entered.set()
        go.wait(5)
        if trouble:
            raise trouble.pop()
        return [b"x"]

    scrapes = Scrapes(render)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(scrapes.get, openmetrics=False, gzip=False, patience=5)
        entered.wait(5)
        second = pool.submit(scrapes.get, openmetrics=False, gzip=False, patience=5)
        time.sleep(0.1)
        go.set()
        for waiting in (first, second):
            with pytest.raises((ValueError, RuntimeError)):
                waiting.result(5)
    assert scrapes.get(openmetrics=False, gzip=False, patience=5).pieces == [b"x"]


def test_a_scrape_is_made_anew_once_something_has_changed(server, board):
    ask(server, "/metrics")
    board.looked("unstuck", [snapshot("new")])
    wait_until(lambda: b'queue="new"' in ask(server, "/metrics")[2], timeout=2)


@pytest.mark.parametrize("head", [b"", b"GET /healthz HTTP/1.1\r\nHost: here\r\nX-Ha"], ids=["silent", "half a head"])
@pytest.mark.parametrize("count", [40, 300])
def test_clients_that_do_not_say_what_they_want_do_not_keep_others_out(server, head, count):
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(server.address)).sendall(head)
        begun = time.monotonic()
        assert ask(server, "/healthz")[0] == 200
        assert time.monotonic() - begun < 2


def test_the_oldest_of_too_many_silent_clients_is_let_go(server):
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(server.address)) for _ in range(MOST_WAITING + 1)]
        begun = time.monotonic()
        silent[0].settimeout(4)
        assert silent[0].recv(1) == b""
        assert time.monotonic() - begun < 3, "before its timeout"
        silent[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        silent[-1].settimeout(4)
        assert silent[-1].recv(100).startswith(b"HTTP/1.1 200")


def test_a_client_that_never_ends_its_head_is_let_go(server):
    with socket.create_connection(server.address, timeout=10) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert client.recv(1) == b""


def test_requests_in_pieces_and_several_in_one_are_answered(server):
    request = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"
    with socket.create_connection(server.address, timeout=4) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(request + request[:20])
        answers = client.makefile("rb")
        assert _status(answers) == b"HTTP/1.1 200 OK\r\n"
        for sign in request[20:]:
            client.sendall(bytes([sign]))
        assert _status(answers) == b"HTTP/1.1 200 OK\r\n"


def _status(answers: BinaryIO) -> bytes:
    """The first line of the next answer, the rest of which is read as well."""
    status, length = answers.readline(), 0
    while (line := answers.readline().lower()) not in (b"\r\n", b""):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    answers.read(length)
    return status


@pytest.mark.parametrize(
    "nonsense", [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 5000]
)
def test_nonsense_does_not_hurt_the_server(server, nonsense):
    with socket.create_connection(server.address) as client:
        client.sendall(nonsense)
        client.settimeout(0.3)
        with contextlib.suppress(OSError):
            client.recv(1000)
    assert ask(server, "/healthz")[0] == 200


def test_a_head_that_never_ends_is_refused(server):
    assert ask(server, "/healthz", headers={"X-Long": "x" * 60_000})[0] == 413


def test_it_starts_and_stops_within_a_second(board):
    server = HttpServer(App(board), port=0)
    begun = time.monotonic()
    server.start()
    address = server.address
    client = http.client.HTTPConnection(*address)  # a keep-alive connection is no reason to wait
    client.request("GET", "/healthz")
    client.getresponse().read()
    server.stop()
    assert time.monotonic() - begun < 1
    server.stop()
    client.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=1)


def test_a_port_in_use_is_a_clear_configuration_error(server, board):
    _, port = server.address
    with pytest.raises(
        ConfigurationError, match=f"http.listen 127.0.0.1:{port}: address in use; stop the other"
    ) as caught:
        HttpServer(App(board), port=port).start()
    assert caught.value.exit_code == 2


def test_an_address_of_another_machine_is_a_clear_configuration_error(board):
    with pytest.raises(ConfigurationError, match="no such address"):
        HttpServer(App(board), host="192.0.2.1", port=0).start()


def test_a_port_without_permission_is_a_clear_configuration_error(board, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    # Root may bind anything, and tests run as root in places: the refusal is the kernel's, told by its error number.
    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ConfigurationError, match="no permission to bind; take a port above 1023"):
        HttpServer(App(board), port=80).start()


def test_a_thousand_queues_are_scraped_twenty_times_a_second(clock):
    board = Board(clock=clock)
    board.leads(1)
    board.redis_answered("look", 0.001)
    board.looked("unstuck", [snapshot(f"q{i}") for i in range(1_000)])
    made = Exporter(board)
    made.render()
    with serving(App(board, exporter=made)) as server, concurrent.futures.ThreadPoolExecutor(8) as crowd:
        ask(server, "/metrics", headers={"Accept-Encoding": "gzip"})
        begun = time.monotonic()
        asked = []
        for i in range(40):
            time.sleep(max(0.0, begun + i / 20 - time.monotonic()))
            asked.append(crowd.submit(ask, server, "/metrics", headers={"Accept-Encoding": "gzip"}))
        assert {answer.result(10)[0] for answer in asked} == {200}
        assert time.monotonic() - begun < 4
        assert ask(server, "/healthz")[0] == 200
