"""The stage of the demo: a server, three worker processes, a load, and the agent with its endpoint. Cleans up after itself."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from unstuck.agent import Agent
from unstuck.config import load
from unstuck.connections import Connections, text
from unstuck.demo.jobs import LEDGER
from unstuck.embedded import EmbeddedServer
from unstuck.errors import UsageError
from unstuck.protocol import Queue, keys
from unstuck.serving import http_server

if TYPE_CHECKING:
    from redis import Redis

WORKERS = 3
JOBS_PER_SECOND = 4.0
QUICK = {  # so that a story of half a minute shows what takes a minute with the defaults
    "mode": "reclaim",
    "sweep_interval": "500ms",
    "heartbeat_interval": "500ms",
    "lock_ttl": "5s",
    "stuck_after": "5s",
    "gone_after": "1s",
    "abort_after": "3s",
    "confirm_after": "1s",
}


class Stage:
    """Everything that the demo starts. Use it as a context manager: all of it is gone afterwards."""

    def __init__(self, redis_url: str | None, listen: str) -> None:
        self._server = EmbeddedServer() if redis_url is None else None
        self._given = redis_url
        self._listen = listen
        self._folder = tempfile.TemporaryDirectory(prefix="unstuck-demo-")
        self.ledger = Path(self._folder.name) / "ledger"
        self.ledger.touch()
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.enqueued: list[str] = []
        self._stop_load = threading.Event()
        self._load = threading.Thread(target=self._produce, name="load", daemon=True)
        self._random = random.Random(7)  # noqa: S311  the same load in every demo
        self.queue_name = "demo" if redis_url is None else f"demo-{secrets.token_hex(4)}"
        self.url = ""
        self.page = ""

    def __enter__(self) -> Self:
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _set_up(self) -> None:
        if self._server is not None:
            self._server.start()
        self.url = self._server.url if self._server else str(self._given)
        flags = {**QUICK, "redis": self.url, "http.listen": self._listen}
        # The environment's UNSTUCK_* is for the real agent: only the password of a given Redis is taken from it.
        environ = {name: value for name, value in os.environ.items() if name.startswith("UNSTUCK_REDIS_PASSWORD")}
        self.settings = load(None, environ, flags)
        self.connections = Connections.of(self.settings, role="demo")
        self.client: Redis = self.connections.scripting()
        self._refuse_other_leader()
        self.queue = Queue(self.client, self.queue_name)
        self.queue.announce()
        self.agent = Agent(self.settings)
        self.http = http_server(self.settings.http, self.agent.board)
        self.http.start()
        self.page = self.http.url
        self.agent.start()
        for _ in range(WORKERS):
            self.start_worker()

    def _refuse_other_leader(self) -> None:
        record: Any = self.client.hgetall(keys.LEADER)
        told = {text(name): text(value) for name, value in record.items()}
        seconds, micros = self.client.time()
        if int(told.get("until_ms", "0") or 0) > seconds * 1000 + micros // 1000:
            raise UsageError(
                f"an agent ({told.get('owner')}) leads on this Redis: stop it, or run the demo without --redis"
            )

    def start_worker(self) -> int:
        """Start one worker process; returns its process id."""
        command = [
            *(sys.executable, "-m", "unstuck", "worker", self.queue_name, "unstuck.demo.jobs:work"),
            *("--redis", self.url, "--heartbeat-interval", QUICK["heartbeat_interval"]),
            *("--lock-ttl", QUICK["lock_ttl"], "--abort-after", QUICK["abort_after"]),
        ]
        log = (Path(self._folder.name) / f"worker-{len(self.workers)}.log").open("wb")
        environ = {name: value for name, value in os.environ.items() if not name.startswith("UNSTUCK_")}
        environ |= {name: value for name, value in os.environ.items() if name.startswith("UNSTUCK_REDIS_PASSWORD")}
        environ[LEDGER] = str(self.ledger)
        with log:
            worker = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, start_new_session=True
            )
        self.workers[worker.pid] = worker
        return worker.pid

    def start_load(self) -> None:
        """Begin to enqueue small jobs, a few per second."""
        self._load.start()

    def stop_load(self) -> None:
        """Enqueue no more."""
        self._stop_load.set()
        if self._load.is_alive():
            self._load.join(5)

    def _produce(self) -> None:
        while not self._stop_load.wait(1 / JOBS_PER_SECOND):
            self.put(self._random.uniform(0.1, 0.9))

    def put(self, seconds: float) -> str:
        """Enqueue one job that takes so long; returns its id."""
        job = self.queue.enqueue({"seconds": round(seconds, 2)}).id
        self.enqueued.append(job)
        return job

    def kill(self, pid: int) -> None:
        """SIGKILL: the process gets no chance to say goodbye."""
        self.workers[pid].kill()
        self.workers[pid].wait()

    def finishes(self) -> Counter[str]:
        """How often each job reached its end, by the ledger outside Redis."""
        lines = self.ledger.read_text("utf-8").splitlines()
        return Counter(line.split(" ", 1)[0] for line in lines)

    def done(self) -> bool:
        """Whether every job put so far is done by the queue's own account."""
        pipe = self.client.pipeline(transaction=False)
        for job in self.enqueued:
            pipe.hget(keys.job(self.queue_name, job), "state")
        return all(text(state) == "done" for state in pipe.execute())

    def close(self) -> None:
        """End everything that was started, in order; may be called at any point and twice."""
        self.stop_load()
        for worker in self.workers.values():
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in self.workers.values():
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        if agent := getattr(self, "agent", None):
            agent.stop()
        if http := getattr(self, "http", None):
            http.stop()
        if connections := getattr(self, "connections", None):
            if self._server is None and hasattr(self, "queue"):
                self._sweep_up()
            connections.close()
        if self._server is not None:
            self._server.stop()
        self._folder.cleanup()

    def _sweep_up(self) -> None:
        """Leave nothing of the demo's queue in a Redis that is not ours."""
        found = list(self.client.scan_iter(match=f"{keys.stem(self.queue_name)}*".replace("[", "\\["), count=500))
        for start in range(0, len(found), 500):
            self.client.unlink(*found[start : start + 500])
        self.client.srem(keys.QUEUES, self.queue_name)
