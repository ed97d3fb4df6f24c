"""A wire that is cut at a chosen exchange: between client and Redis, before the request or before its reply arrives.

`CutProxy` listens on a port of its own and hands every command on, one at a time. The k-th one, counted over all
connections since `arm`, is lost: with `cut="request"` Redis never sees it, with `cut="reply"` Redis carries it out and the
client never learns. Both ends are closed then; new connections are served as if nothing had been.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Literal

Cut = Literal["request", "reply"]


class CutProxy:
    """In front of the Redis on `port` of this machine."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._at = 0
        self._cut: Cut = "request"
        self._seen = 0
        self.lost = ""  # the command that was lost, empty if none was
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="cutproxy", daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def arm(self, at: int, cut: Cut) -> None:
        """Lose the `at`-th command from now on (1 is the next)."""
        with self._lock:
            self._at, self._cut, self._seen, self.lost = at, cut, 0, ""

    def close(self) -> None:
        """End it and every connection through it."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), name="cutproxy-wire", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._upstream)) as redis:
            self._open |= {client, redis}
            with contextlib.suppress(OSError):
                replies = _Stream(redis)
                for command in _Stream(client).messages():
                    cut = self._count(command)
                    if cut == "request":
                        break
                    redis.sendall(command)
                    reply = replies.message()
                    if cut == "reply" or not reply:
                        break
                    client.sendall(reply)
            self._open -= {client, redis}

    def _count(self, command: bytes) -> Cut | None:
        with self._lock:
            self._seen += 1
            if self._seen != self._at:
                return None
            self.lost = command.split(b"\r\n")[2].decode(errors="replace")
            return self._cut


class _Stream:
    """Whole messages of Redis' protocol (version 2) out of a socket."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = b""

    def messages(self) -> Iterator[bytes]:
        while message := self.message():
            yield message

    def message(self) -> bytes:
        """The next message as it came, empty at the end."""
        while True:
            end = _end(self._buffer, 0)
            if end is not None:
                whole, self._buffer = self._buffer[:end], self._buffer[end:]
                return whole
            more = self._source.recv(65_536)
            if not more:
                return b""
            self._buffer += more


def _end(data: bytes, start: int) -> int | None:
    """Where the message that begins at `start` ends; None if it is not all there."""
    line = data.find(b"\r\n", start)
    if line < 0:
        return None
    kind, after = data[start : start + 1], line + 2
    if kind not in {b"$", b"*"}:
        return after
    size = int(data[start + 1 : line])
    if kind == b"$":
        end = after + size + 2 if size >= 0 else after
        return end if len(data) >= end else None
    for _ in range(size):
        inner = _end(data, after)
        if inner is None:
            return None
        after = inner
    return after
