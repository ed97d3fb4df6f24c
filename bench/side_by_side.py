"""Starting one worker of each system, ours among them, on a server of its own."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from stand import HERE, ROOT, Server, running

PEERS = HERE / "peers"
SYSTEMS = ("unstuck", "dramatiq", "saq", "celery", "rq", "taskiq", "huey")
CRASH_SAFE = {
    "unstuck": "yes",
    "dramatiq": "yes",
    "saq": "yes",
    "celery": "yes",
    "rq": "yes",
    "taskiq": "yes",
    "huey": "no",
}


class System:
    """One queue system with the environment in which its programs run."""

    def __init__(self, name: str, server: Server, marks: Path, concurrency: int = 1) -> None:
        self.name = name
        self.marks = marks
        marks.write_bytes(b"")
        folder = (
            Path(sys.executable).parent if name == "unstuck" else ROOT / os.environ.get("PEERS", ".venv-bench") / "bin"
        )
        if not (folder / "python").exists():
            raise SystemExit(f"bench: {folder} is missing; `make bench` makes it")
        self.bin = folder
        self.env = dict(os.environ) | {
            "BENCH_REDIS": server.url,
            "BENCH_MARKS": str(marks),
            "BENCH_CONCURRENCY": str(concurrency),
            "PYTHONPATH": os.pathsep.join([str(PEERS), os.environ.get("PYTHONPATH", "")]),
            "PYTHONWARNINGS": "ignore",
        }
        self.command: list[str] = json.loads(self._python("command", str(concurrency)))

    def _python(self, *args: str) -> str:
        command = [str(self.bin / "python"), "sending.py", self.name, *args]
        return subprocess.run(command, cwd=PEERS, env=self.env, check=True, stdout=subprocess.PIPE, text=True).stdout

    def send(self, number: int, gap: float = 0.0) -> None:
        self._python(str(number), str(gap))

    @contextlib.contextmanager
    def worker(self) -> Iterator[None]:
        program, *args = self.command
        with running([str(self.bin / program), *args], cwd=PEERS, env=self.env):
            yield

    @property
    def done(self) -> int:
        return self.marks.stat().st_size // 8

    def latencies(self) -> list[float]:
        """Seconds from sending to running, in the order of running."""
        raw = self.marks.read_bytes()
        return [ns / 1e9 for (ns,) in struct.iter_unpack("q", raw[: len(raw) // 8 * 8])]
