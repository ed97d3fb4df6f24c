"""What the benches share: a server of their own, and what it counted between two moments."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

import redis

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# What the bench itself sends to look; never counted.
OWN_COMMANDS = frozenset({"info", "config|resetstat", "ping", "hello", "client|setname", "client|setinfo", "auth"})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A redis-server (or valkey-server) that keeps nothing; `wrapper` is put before its command, e.g. valgrind."""

    def __init__(self, *, wrapper: Sequence[str] = (), patience: float = 10.0) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise SystemExit("bench: no redis-server or valkey-server on PATH; install redis-server")
        self.folder = tempfile.mkdtemp(prefix="unstuck-bench-")
        self.port = free_port()
        command = [*wrapper, program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder]
        command += ["--save", "", "--appendonly", "no"]
        if wrapper:  # without the work that goes by the clock, which is slow then
            command += ["--hz", "1", "--slowlog-log-slower-than", "-1"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client: redis.Redis = redis.Redis(port=self.port, decode_responses=True, protocol=2, socket_timeout=600)
        until = time.monotonic() + patience
        while True:
            try:
                self.client.ping()
                break
            except redis.ConnectionError:
                if time.monotonic() > until:
                    self.process.kill()
                    raise SystemExit("bench: the server did not start") from None
                time.sleep(0.05)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def moment(self) -> Moment:
        """What the server has counted so far."""
        return moment(self.client)


@dataclass(frozen=True)
class Moment:
    wall: float
    cpu: float  # seconds of the server's CPU, system time included
    calls: dict[str, int]
    reads: int  # how often the server read from a socket: an upper bound of round trips

    def since(self, before: Moment) -> Spent:
        calls = {name: n - before.calls.get(name, 0) for name, n in self.calls.items()}
        calls = {name: n for name, n in calls.items() if n > 0 and name not in OWN_COMMANDS}
        return Spent(self.wall - before.wall, self.cpu - before.cpu, calls, self.reads - before.reads)


@dataclass(frozen=True)
class Spent:
    wall: float
    cpu: float
    calls: dict[str, int] = field(default_factory=dict)
    reads: int = 0


def moment(client: redis.Redis) -> Moment:
    told: Any = client.info("everything")
    cpu = told["used_cpu_user"] + told["used_cpu_sys"]
    calls = {name.removeprefix("cmdstat_"): one["calls"] for name, one in told.items() if name.startswith("cmdstat_")}
    return Moment(time.perf_counter(), cpu, calls, told.get("total_reads_processed", 0))


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (2^20 bytes)."""
    return int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process so far, system time included."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def overheard(server: Server) -> Iterator[list[tuple[str, str]]]:
    """What clients send meanwhile, seen by MONITOR: their address and the command; what scripts call is left out."""
    heard: list[tuple[str, str]] = []
    ready = threading.Event()

    def listen() -> None:
        with redis.Redis(port=server.port, decode_responses=True).monitor() as monitor:
            ready.set()
            for told in monitor.listen():
                if told["command"] == "ECHO over":
                    return
                name = told["command"].split(" ", 1)[0].upper()
                if told["client_type"] != "lua" and name not in ("CLIENT", "HELLO", "AUTH"):
                    heard.append((f"{told['client_address']}:{told['client_port']}", name))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield heard
    finally:
        server.client.echo("over")
        thread.join(30)


@contextlib.contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, gone with all its children at the end."""
    with tempfile.TemporaryFile() as log:
        yield from _running(command, log, options)


def _running(command: Sequence[str], log: IO[bytes], options: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log, **options)
    try:
        yield process
    except BaseException:
        log.seek(0)
        sys.stderr.write(log.read().decode(errors="replace")[-3000:])
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(true: Callable[[], object], what: str, within: float = 60.0, pause: float = 0.01) -> None:
    until = time.monotonic() + within
    while not true():
        if time.monotonic() > until:
            raise SystemExit(f"bench: {what} did not happen within {within:g} s")
        time.sleep(pause)


def machine(client: redis.Redis | None = None) -> str:
    """Date and kind of machine, for the head of every output; no name and no path of it."""
    cores = os.cpu_count()
    server = f", server {client.info('server')['redis_version']}" if client is not None else ""
    python = platform.python_version()
    return f"{datetime.now(UTC).date().isoformat()}, {cores} cores (load {os.getloadavg()[0]:.1f}), Python {python}{server}"
