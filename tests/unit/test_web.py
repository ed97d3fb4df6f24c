"""The HTTP server, asked over real sockets and real TLS."""

import base64
import concurrent.futures
import contextlib
import gzip
import http.client
import json
import os
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from support.boards import full_board, snapshot
from support.programs import program
from support.waiting import wait_until
from unstuck.clock import ManualClock
from unstuck.config import PasswordHash
from unstuck.errors import ConfigurationError
from unstuck.model import Capability, Event, Lease, QueueSnapshot, Reason, Standing, Verdict
from unstuck_exporters.board import Board
from unstuck_exporters.prometheus import Exporter
from unstuck_exporters.web.access import Access
from unstuck_exporters.web.app import App, patience, takes_gzip
from unstuck_exporters.web.scrapes import Scrapes
from unstuck_exporters.web.server import HttpServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def board(clock: ManualClock) -> Board:
    return full_board(clock)


@contextlib.contextmanager
def serving(app: App, **options: str) -> Iterator[HttpServer]:
    server = HttpServer(app, port=0, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server(board: Board) -> Iterator[HttpServer]:
    with serving(App(board)) as running:
        yield running


def ask(
    server: HttpServer,
    path: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> tuple[int, http.client.HTTPMessage, bytes]:
    request = urllib.request.Request(server.url + path, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.headers, refusal.read()


class Gate:
    """An exporter whose rendering waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.open, self.renders = threading.Semaphore(0), threading.Event(), 0

    def render(self, *, openmetrics: bool = False) -> list[bytes]:
        self.renders += 1
        self.entered.release()
        assert self.open.wait(10)
        return [b"unstuck_x 1\n"]


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


def test_silent_clients_do_not_keep_others_out(server):
    host, port = server.address
    silent = [socket.create_connection((host, port)) for _ in range(10)]
    try:
        begun = time.monotonic()
        assert ask(server, "/healthz")[0] == 200
        assert time.monotonic() - begun < 1
    finally:
        for one in silent:
            one.close()


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


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_a_password_guards_everything_but_health(board):
    access = Access({"prometheus": PasswordHash.of("pä:ss")})
    with serving(App(board, access)) as server:
        for path in ("/", "/metrics", "/api/v1/status"):
            status, headers, body = ask(server, path)
            assert (status, headers["WWW-Authenticate"]) == (401, 'Basic realm="unstuck", charset="UTF-8"')
            assert b"mail" not in body
            assert ask(server, path, headers=basic("prometheus", "pä:ss"))[0] == 200
        assert (ask(server, "/healthz")[0], ask(server, "/readyz")[0]) == (200, 200)


@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic ???", "Bearer abc", "Basic " + base64.b64encode(b"\xff\xfe").decode(),
     "Basic " + base64.b64encode(b"no-colon").decode()],
)  # fmt: skip
def test_a_header_that_is_no_password_is_refused(header):
    assert Access({"a": PasswordHash.of("b")}).refusal({"HTTP_AUTHORIZATION": header}) == "401 Unauthorized"


def test_wrong_names_and_passwords_are_refused_and_right_ones_are_checked_only_once():
    class Counted:
        checks = 0

        def matches(self, password: str) -> bool:
            self.checks += 1
            return password == "right"

    counted = Counted()
    access = Access({"me": counted})
    refused = [access.refusal({"HTTP_AUTHORIZATION": basic(*pair)["Authorization"]})
               for pair in (("me", "wrong"), ("you", "right"), ("me", ""), ("", "right"))]  # fmt: skip
    assert refused == ["401 Unauthorized"] * 4
    assert counted.checks == 4, "an unknown name takes as long as a wrong password"
    for _ in range(5):
        assert access.refusal({"HTTP_AUTHORIZATION": basic("me", "right")["Authorization"]}) == ""
    assert counted.checks == 5
    assert access.refusal({"HTTP_AUTHORIZATION": basic("me", "wrong")["Authorization"]}) == "401 Unauthorized"


class Authority:
    """Certificates of a throw-away authority."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.openssl = program("openssl", package="openssl")
        self.ca = folder / f"{name}.pem"
        self._run("req", "-x509", "-nodes", *self._key(name), "-out", self.ca, "-subj", f"/CN={name}", "-days", "2")

    def _run(self, *arguments: object) -> None:
        done = subprocess.run(
            [self.openssl, *map(str, arguments)], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr

    def _key(self, name: str) -> tuple[object, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", self.folder / f"{name}.key")

    def issue(self, name: str) -> tuple[str, str]:
        request, cert, extra = (self.folder / f"{name}.{end}" for end in ("csr", "crt", "ext"))
        extra.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self._run("req", "-new", "-nodes", *self._key(name), "-out", request, "-subj", f"/CN={name}")
        self._run("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / f"{self.name}.key",
                  "-CAcreateserial", "-out", cert, "-days", "2", "-extfile", extra)  # fmt: skip
        return str(cert), str(self.folder / f"{name}.key")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ours")


def trusting(authority: Authority, identity: tuple[str, str] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca))
    if identity:
        context.load_cert_chain(*identity)
    return context


def test_everything_is_served_over_tls(board, authority):
    cert, key = authority.issue("server")
    with serving(App(board), cert=cert, key=key) as server:
        assert server.url.startswith("https://127.0.0.1:")
        status, _, body = ask(server, "/metrics", context=trusting(authority))
        assert (status, b"unstuck_build_info" in body) == (200, True)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(server, "/metrics", context=ssl.create_default_context())


def test_a_client_certificate_guards_everything_but_health(board, authority, tmp_path):
    cert, key = authority.issue("server")
    stranger = Authority(tmp_path, "theirs").issue("stranger")
    with serving(
        App(board, Access(client_certificates=True)), cert=cert, key=key, client_ca=str(authority.ca)
    ) as server:
        anonymous, friend = trusting(authority), trusting(authority, authority.issue("prometheus"))
        assert ask(server, "/metrics", context=anonymous)[0] == 403
        assert ask(server, "/healthz", context=anonymous)[0] == 200
        assert ask(server, "/metrics", context=friend)[0] == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(server, "/healthz", context=trusting(authority, stranger))


def test_clients_that_never_finish_the_handshake_do_not_keep_others_out(board, authority):
    cert, key = authority.issue("server")
    with serving(App(board), cert=cert, key=key) as server:
        silent = [socket.create_connection(server.address) for _ in range(10)]
        try:
            begun = time.monotonic()
            assert ask(server, "/healthz", context=trusting(authority))[0] == 200
            assert time.monotonic() - begun < 1
        finally:
            for one in silent:
                one.close()


def test_old_versions_of_tls_are_refused(board, authority):
    cert, key = authority.issue("server")
    context = trusting(authority)
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with serving(App(board), cert=cert, key=key) as server, pytest.raises((urllib.error.URLError, OSError)):
        ask(server, "/healthz", context=context)


def test_a_renewed_certificate_is_taken_over_without_a_restart(board, authority, tmp_path):
    old, new = authority.issue("old"), authority.issue("new")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(pair: tuple[str, str], age: int) -> None:
        for target, source in zip((cert, key), pair, strict=True):
            target.write_bytes(Path(source).read_bytes())
            os.utime(target, (age, age))

    def shown(server: HttpServer) -> str:
        with (
            socket.create_connection(server.address) as plain,
            trusting(authority).wrap_socket(plain, server_hostname="localhost") as client,
        ):
            subject = dict(pair for (pair,) in client.getpeercert()["subject"])
        return subject["commonName"]

    put(old, 1_000)
    with serving(App(board), cert=str(cert), key=str(key)) as server:
        assert shown(server) == "old"
        put(new, 2_000)
        assert shown(server) == "new"
        key.write_text("half written")
        assert shown(server) == "new"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"cert": "/nowhere/cert.pem", "key": "/nowhere/key.pem"}, "no such file"),
        ({"cert": "CERT", "key": "OTHER_KEY"}, "the key does not belong to the certificate"),
        ({"cert": "JUNK", "key": "JUNK"}, "not a PEM file"),
        (
            {"cert": "CERT", "key": "KEY", "client_ca": "/nowhere/ca.pem"},
            "http.tls.client_ca: /nowhere/ca.pem: no such",
        ),
    ],
)
def test_certificates_that_cannot_be_used_are_clear_configuration_errors(board, authority, tmp_path, files, told):
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    cert, key = authority.issue("server")
    known = {"CERT": cert, "KEY": key, "OTHER_KEY": authority.issue("other")[1], "JUNK": str(junk)}
    with pytest.raises(ConfigurationError, match=told):
        HttpServer(App(board), port=0, **{name: known.get(path, path) for name, path in files.items()})


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
