"""The HTTP server around the application: cheroot, with our own TLS and with errors a person can act on.

Why cheroot, and what it costs beside the others, stands in docs/http.md. What may go wrong: a client that connects and
says nothing, or half of what it wants, must not keep the others out. So a connection waits without a thread until the head
of its request is there, the oldest of too many gives way, every socket has a timeout, and heads and bodies are bounded.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from cheroot.server import HTTPConnection
from cheroot.wsgi import Server

from unstuck.errors import ConfigurationError

log = logging.getLogger(__name__)

THREADS: Final = 16
MOST_WAITING: Final = 256
"""Connections whose request is not there yet; well below the 1024 files that a process may usually open."""
_TIMEOUT_SECONDS: Final = 5
_SHUTDOWN_SECONDS: Final = 1
_LARGEST_HEAD: Final = 16 * 1024
_LARGEST_BODY: Final = 16 * 1024
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 — how to reach what listens everywhere


class _Connection(HTTPConnection):
    """A connection whose request may come in pieces."""

    given_up = False

    def gather(self) -> bool | None:
        """Read what has come, without waiting. True once the whole head is there, or so much that it is too long; False
        while more is to come; None if nothing more will.
        """
        try:
            self.socket.settimeout(0)
            while not self._whole():
                data = self.socket.recv(_LARGEST_HEAD)
                if not data:
                    return None
                # The buffer of Python's own BufferedReader, which cheroot looks into, too.
                self.rfile._read_buf = self._read() + data
                self.rfile._read_pos = 0
            self.socket.settimeout(self.server.timeout)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:  # a client that is gone, or speaks no TLS
            return None
        return True

    def _read(self) -> bytes:
        return bytes(self.rfile._read_buf[self.rfile._read_pos :])

    def _whole(self) -> bool:
        read = self._read()
        # Lines that end in a bare line feed are refused at once by the thread that reads them.
        return b"\r\n\r\n" in read or b"\n\n" in read or len(read) > _LARGEST_HEAD

    def give_up(self) -> None:
        """End it from the other side: the accepting thread finds it ended, and closes it."""
        self.given_up = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class _Server(Server):
    ConnectionClass = _Connection
    _connections: Any  # cheroot's stubs leave it out

    def process_conn(self, conn: _Connection) -> None:
        """Give a connection to a thread if its head is there, else wait for more of it."""
        whole = conn.gather()
        if whole:
            super().process_conn(conn)
        elif whole is None:
            with contextlib.suppress(OSError):
                conn.close()
        else:
            if conn.last_used is None:
                conn.last_used = time.time()  # the head must be there before the timeout, however many pieces it has
                self._make_room()
            self._connections._selector.register(conn.socket.fileno(), selectors.EVENT_READ, conn)

    def _make_room(self) -> None:
        """Give up those that have waited longest. Closing them here would take them from under the accepting loop."""
        known = [conn for _, conn in self._connections._selector.connections if conn is not self]
        waiting = sorted((conn for conn in known if not conn.given_up), key=lambda conn: conn.last_used)
        for conn in waiting[: max(0, len(waiting) + 1 - MOST_WAITING)]:
            conn.give_up()

    @staticmethod
    def bind_socket(socket_: socket.socket, bind_addr: Any) -> socket.socket:
        """Bind, and leave no open socket behind if that fails."""
        try:
            socket_.bind(bind_addr)
        except OSError:
            socket_.close()
            raise
        return socket_

    def error_log(self, msg: str = "", level: int = 20, traceback: bool = False) -> None:
        """Clients that vanish or speak nonsense are no news for the agent's log."""
        log.debug("%s", msg, exc_info=traceback, extra={"event": "http_client_error", "level_given": level})


class HttpServer:
    """Serves an application in threads of its own, from `start` to `stop`.

    ``cert`` and ``key`` (PEM files) turn on TLS; they are read again when they change. With ``client_ca`` the
    application learns from `SSL_CLIENT_VERIFY` whether a client showed a certificate of that authority; one of another
    authority is refused by TLS. Port 0 takes any free one; `address` says which.
    """

    def __init__(
        self,
        app: Callable[..., Any],
        host: str = "127.0.0.1",
        port: int = 9797,
        *,
        cert: str = "",
        key: str = "",
        client_ca: str = "",
    ) -> None:
        self._host, self._port = host, port
        self._thread: threading.Thread | None = None
        self._server = _Server(
            (host, port),
            app,
            numthreads=THREADS,
            server_name="unstuck",
            timeout=_TIMEOUT_SECONDS,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            request_queue_size=128,
        )
        self._server.software = "unstuck"
        self._server.max_request_header_size = _LARGEST_HEAD
        self._server.max_request_body_size = _LARGEST_BODY
        if cert or client_ca:
            from unstuck_exporters.web.tls import Tls  # a third of the server's start, for those who want it

            self._server.ssl_adapter = Tls(cert, key, client_ca)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port on which it listens."""
        host, port = self._server.bind_addr
        return host, port

    @property
    def url(self) -> str:
        """The address as a person types it."""
        host, port = self.address
        host = _ANYWHERE.get(host, host)
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._server.ssl_adapter else 'http'}://{shown}:{port}"

    def start(self) -> None:
        """Listen and serve. ConfigurationError if the address cannot be had."""
        try:
            self._server.prepare()
        except OSError as exc:
            raise ConfigurationError(f"http.listen {self._host}:{self._port}: {_why(exc)}") from exc
        self._thread = threading.Thread(target=self._server.serve, name="http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, let running requests end for up to a second, and return. May be called twice."""
        # The accepting loop looks up twice a second; a knock at the door wakes it at once.
        knock = threading.Timer(0.01, self._knock)
        knock.start()
        self._server.stop()
        knock.join()
        if self._thread is not None:
            self._thread.join(timeout=_SHUTDOWN_SECONDS)
            self._thread = None

    def _knock(self) -> None:
        host, port = self.address
        with contextlib.suppress(OSError):
            socket.create_connection((_ANYWHERE.get(host, host), port), timeout=0.2).close()


_CAUSES: Final = (
    (errno.EADDRINUSE, "address in use; stop the other program or choose another port"),
    (errno.EACCES, "no permission to bind; take a port above 1023"),
    (errno.EPERM, "no permission to bind; take a port above 1023"),
    (errno.EADDRNOTAVAIL, "this machine has no such address; use 127.0.0.1, 0.0.0.0 or one of its own"),
    (errno.EAFNOSUPPORT, "this machine does not support this kind of address; use an IPv4 one"),
)


def _why(exc: OSError) -> str:
    """The cause of a failed bind with its mend. The server wraps the original error, often in words only."""
    chain: list[BaseException] = [exc]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    for number, sentence in _CAUSES:
        if any(getattr(link, "errno", None) == number or f"[Errno {number}]" in str(link) for link in chain):
            return sentence
    return f"cannot listen there ({exc}); see http.listen"
