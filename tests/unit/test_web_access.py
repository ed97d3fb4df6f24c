"""Passwords and certificates, over real TLS."""

import base64
import http.client
import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.boards import full_board
from support.programs import program
from support.web import ask, serving
from unstuck.clock import ManualClock
from unstuck.config import PasswordHash
from unstuck.errors import ConfigurationError
from unstuck_exporters.board import Board
from unstuck_exporters.web.access import Access
from unstuck_exporters.web.app import App
from unstuck_exporters.web.server import HttpServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def board(clock: ManualClock) -> Board:
    return full_board(clock)


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
        silent = [socket.create_connection(server.address) for _ in range(300)]
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
