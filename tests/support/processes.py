"""Real processes, each with everything it starts in turn, and none of them left behind.

What may go wrong: a worker forks, its child makes a process group of its own, the worker is killed, and the child
lives on. So a process is started as leader of a session of its own and with a mark in its environment, which its
descendants inherit; by either of the two they are found again, and nothing else is ever signalled.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from support.waiting import wait_until

TESTS = Path(__file__).resolve().parents[1]
_MARK = "TEST_PROCESS_MARK"
_LINUX = sys.platform.startswith("linux")


@dataclass(frozen=True, slots=True)
class Running:
    """A process that is alive, as the system tells it."""

    pid: int
    command: str


def child_env(extra: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return the environment for a process of ours: no setting of the person who runs the tests, plain output.

    `tests/` is importable in it, so that a worker can be told `support.handlers:function`. In `extra`, None removes.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("UNSTUCK_")}
    env |= {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "160", "PYTHONPATH": str(TESTS)}
    for name, value in (extra or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


@dataclass(slots=True, eq=False)
class Process:
    """A started process; its output goes to two files that are read here as text."""

    args: tuple[str, ...]
    stdout_path: Path
    stderr_path: Path
    env: Mapping[str, str] = field(repr=False)  # not for the messages of failures: it is the caller's own
    cwd: Path
    stdin: IO[bytes] | None = None
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: float = field(default_factory=time.monotonic)
    _popen: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        with self.stdout_path.open("ab") as out, self.stderr_path.open("ab") as err:
            self._popen = subprocess.Popen(
                self.args,
                stdin=self.stdin or subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**self.env, _MARK: self.mark},
                cwd=self.cwd,
                start_new_session=True,
            )
        _every_process.append(self)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._popen.poll()

    @property
    def stdout(self) -> str:
        return self.stdout_path.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    @property
    def output(self) -> str:
        """Everything it said, standard output first."""
        return self.stdout + self.stderr

    def send(self, number: signal.Signals) -> None:
        """Signal this one process, not its children. A process that is gone already is left in peace."""
        if self.returncode is None:
            self._popen.send_signal(number)

    def terminate(self) -> None:
        self.send(signal.SIGTERM)

    def interrupt(self) -> None:
        """Do what Ctrl-C at a terminal does: the whole foreground group gets SIGINT."""
        if self.returncode is None:
            os.killpg(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL this one process, as the out-of-memory killer would; its children live on."""
        self.send(signal.SIGKILL)
        self._popen.wait()

    def kill_tree(self) -> None:
        """SIGKILL it and everything that it started, wherever that went."""
        deadline = time.monotonic() + 10
        while True:
            # More than one round: a child may be forking while we look.
            if self.returncode is None:
                self._popen.kill()
                self._popen.wait()
            alive = self.family()
            if not alive:
                with contextlib.suppress(ValueError):
                    _every_process.remove(self)
                return
            for member in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise AssertionError(f"cannot be killed: {alive}")
            time.sleep(0.005)

    def freeze(self) -> None:
        """Stop it in its tracks (SIGSTOP), as a paused container or a machine that swaps."""
        self.send(signal.SIGSTOP)
        wait_until(lambda: _state(self.pid) in {"T", "Z", ""}, 5, f"process {self.pid} has stopped")

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def wait(self, timeout: float = 30.0) -> int:
        """Return its exit status; fail, with the end of its output, when it runs longer than `timeout` seconds."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} still runs after {timeout:g} s{self.tail()}") from None

    def wait_for_output(self, pattern: str, timeout: float = 15.0) -> re.Match[str]:
        """Return the first match of the regular expression in what it says, waiting for it for `timeout` seconds."""

        def said() -> re.Match[str] | None:
            ended = self.returncode is not None  # looked up first: what was said before the end is in the file
            match = re.search(pattern, self.output, re.MULTILINE)
            if ended and match is None:
                pytest.fail(f"{self} ended with {self.returncode} without saying {pattern!r}{self.tail()}")
            return match

        try:
            return wait_until(said, timeout, f"{self} says {pattern!r}")
        except AssertionError as never:
            raise AssertionError(f"{never}{self.tail()}") from None

    def family(self) -> list[Running]:
        """Return what is alive of it and of everything that it started."""
        # Once it is reaped its id may be given to a stranger; while members of its session live it is not.
        recycled = self.returncode is not None and bool(_state(self.pid))
        return _family(-1 if recycled else self.pid, self.mark)

    def tail(self, lines: int = 40) -> str:
        """Return the end of its output, for the message of a failure."""
        text = "\n".join(self.output.splitlines()[-lines:])
        return f"\n--- the end of its output ---\n{text}" if text else " (it said nothing)"

    def __str__(self) -> str:
        return f"process {self.pid} ({' '.join(self.args)})"


class Processes:
    """The processes of one test. `stop_all` kills each with all that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Process] = []

    def start(
        self,
        *args: str | Path,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: IO[bytes] | None = None,
    ) -> Process:
        """Start a program with these arguments; `env` is added to a clean environment, see `child_env`."""
        number = len(self._started)
        name = f"{number:02}-{Path(args[0]).name}"
        process = Process(
            tuple(str(arg) for arg in args),
            self.folder / f"{name}.out",
            self.folder / f"{name}.err",
            child_env(env),
            cwd or self.folder,
            stdin,
        )
        self._started.append(process)
        return process

    def python(
        self, *args: str | Path, env: Mapping[str, str | None] | None = None, cwd: Path | None = None
    ) -> Process:
        """Start the Python that runs the tests: `python("-m", "module")`, `python("-c", "code")`."""
        return self.start(sys.executable, *args, env=env, cwd=cwd)

    def unstuck(
        self, *args: str | Path, env: Mapping[str, str | None] | None = None, cwd: Path | None = None
    ) -> Process:
        """Start `unstuck …`."""
        return self.python("-m", "unstuck", *args, env=env, cwd=cwd)

    def stop_all(self) -> None:
        for process in reversed(self._started):
            process.kill_tree()


def remaining() -> list[tuple[Process, Sequence[Running]]]:
    """Return every started process of which anything is alive, the process itself or a descendant, with what is."""
    return [(process, alive) for process in _every_process if (alive := process.family())]


_every_process: list[Process] = []


def _family(leader: int, mark: str) -> list[Running]:
    if not _LINUX:
        return _group(leader)
    needle = f"{_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, session = _state_and_session(folder)
            # A server that renames itself overwrites its environment, hence the session as the second sign.
            ours = session == leader or needle in (folder / "environ").read_bytes().split(b"\0")
            if ours and state not in {"Z", "X"}:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found.append(Running(int(folder.name), command))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone meanwhile, or somebody else's
    return found


def _group(leader: int) -> list[Running]:
    """Return the process group, which is what a system without /proc lets us see."""
    listing = subprocess.run(
        ["ps", "-axo", "pid=,pgid=,stat=,command="], capture_output=True, text=True, check=True
    ).stdout
    found = []
    for line in listing.splitlines():
        pid, group, state, command = line.split(None, 3)
        if int(group) == leader and not state.startswith("Z"):
            found.append(Running(int(pid), command))
    return found


def _state_and_session(folder: Path) -> tuple[str, int]:
    # pid (name, which may hold anything) state ppid pgrp session …
    fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return fields[0], int(fields[3])


def _state(pid: int) -> str:
    """Return the letter that `ps` shows for the process: T is stopped, Z a zombie; empty when it is gone."""
    if _LINUX:
        try:
            return _state_and_session(Path(f"/proc/{pid}"))[0]
        except (FileNotFoundError, ProcessLookupError):
            return ""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()[:1]
