"""A day in the life of some queues, in a minute: load, a killed worker, its rescue, a change of the leader, a restart of Redis.

Two real agents watch, a real Prometheus scrapes both every second and evaluates the shipped alert rules. Everything that the
dashboards ask about has then happened; the Prometheus stays up until `close`, to be asked.

`PYTHONPATH=tests python -m dashboards.scenario --stretch 8 --pictures docs/pictures/dashboards` plays it more slowly and
draws the previews from it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
import rq

from support.ports import free_port
from support.processes import Process, Processes
from support.programs import prometheus_program
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.protocol import Queue

ROOT = Path(__file__).resolve().parents[2]
AGENT = """
mode: reclaim
sweep_interval: 500ms
heartbeat_interval: 1s
lock_ttl: 4s
stuck_after: 4s
abort_after: 3s
gone_after: 1s
confirm_after: 1s
retry_delay: 1s
leader: {lease: 3s}
audit: {interval: 20s}
pacing: {delay_threshold: 2s, backlog_threshold: 40}
"""
PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: unstuck
    static_configs: [{{targets: [{targets}]}}]
"""
QUICK_RULES = ("stuck_for=1s", "redis_down_for=1s", "agent_down_for=1s", "no_workers_for=10s")
PATIENCE = 120.0
"""Longest wait for anything, in seconds: the machine may be busy with other things."""


class Scenario:
    """Plays in `folder`; `stretch` makes each act so many times longer."""

    def __init__(self, folder: Path, stretch: float = 1.0) -> None:
        self._processes = Processes(folder)
        self._folder = folder
        self._stretch = stretch
        # A small limit of memory, so that the share of it can be seen.
        self._redis = RedisServer(appendonly=True, appendfsync="everysec", maxmemory="64mb")
        self._random = random.Random(11)
        self._load = threading.Thread(target=self._produce, name="load", daemon=True)
        self._end_of_load = threading.Event()
        self._jobs_per_second = 6.0
        self._workers: list[Process] = []
        self.prometheus = ""
        self.begun = 0.0  # Unix time
        self.ended = 0.0

    # ── setting up ──

    def play(self) -> None:
        """From the first process to the moment at which everything can be asked about."""
        self._redis.start()
        self._client: Any = self._redis.client(decode_responses=True, socket_timeout=5)
        self._start_prometheus()
        self._agents = {port: self._start_agent(port) for port in self._ports}
        for queue, slots in (("mail", 2), ("mail", 2), ("mail", 2), ("thumbnails", 1)):
            self._start_worker(queue, slots)
        self._other_queues()
        self._load.start()
        self._await("sum(up) == 2", "both agents")
        self.begun = time.time()
        self._await("sum(unstuck_gate_open) == 1", "a leader with an open gate")
        self._await('sum(unstuck_jobs_finished_total{queue="mail"}) > 10', "finished jobs")
        self._pass(8)
        self._kill_a_worker()
        self._pass(6)
        self._a_burst()
        self._kill_the_leader()
        self._pass(6)
        self._restart_redis()
        self._await("sum(unstuck_locks_without_expiry) >= 0", "a complete audit")
        self._client.set("gate:report-0", "1")
        self._pass(10)
        self.ended = time.time()
        self._end_of_load.set()
        self._load.join(30)

    def close(self) -> None:
        """End everything that was started."""
        self._end_of_load.set()
        self._processes.stop_all()
        self._redis.close()

    def _start_prometheus(self) -> None:
        self._ports = (free_port(), free_port())
        words = [sys.executable, "-m", "unstuck", "rules", *(f"--set={one}" for one in QUICK_RULES)]
        rules = subprocess.run(words, check=True, capture_output=True, text=True, cwd=self._folder).stdout
        (self._folder / "rules.yml").write_text(rules)
        targets = ", ".join(f'"127.0.0.1:{port}"' for port in self._ports)
        (self._folder / "prometheus.yml").write_text(
            PROMETHEUS.format(rules=json.dumps(str(self._folder / "rules.yml")), targets=targets)
        )
        port = free_port()
        self._processes.start(
            prometheus_program(),
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        self.prometheus = f"http://127.0.0.1:{port}"

    def _start_agent(self, port: int) -> Process:
        (self._folder / "unstuck.yaml").write_text(AGENT)
        return self._processes.unstuck(
            *("run", "--config", self._folder / "unstuck.yaml", "--redis", self._redis.url),
            *("--http-listen", f"127.0.0.1:{port}"),
        )

    def _start_worker(self, queue: str, slots: int) -> None:
        self._workers.append(
            self._processes.unstuck(
                *("worker", queue, "dashboards.load:work", "--concurrency", str(slots), "--redis", self._redis.url),
                *("--heartbeat-interval", "1s", "--lock-ttl", "4s", "--abort-after", "3s"),
            )
        )

    def _other_queues(self) -> None:
        """One of RQ with a job that runs for a while, and one to which no worker listens."""
        self._processes.python("-m", "support.rq_jobs", self._redis.url, "reports")
        with redis.Redis.from_url(self._redis.url) as client:  # RQ wants bytes
            reports = rq.Queue("reports", connection=client)
            for number in range(3):
                reports.enqueue("support.rq_jobs.gated", self._redis.url, f"report-{number}")
        for _ in range(4):
            self._put("newsletter", 1.0)

    # ── the acts ──

    def _kill_a_worker(self) -> None:
        """SIGKILL one in the middle of a long job, and start another in its place."""
        job = self._put("mail", 8.0)
        held = wait_until(lambda: self._holder(job), PATIENCE, "a worker to take the long job")
        victim = next(worker for worker in self._workers if worker.pid == held)
        victim.kill_tree()
        self._start_worker("mail", 2)
        self._await("sum(unstuck_stuck_jobs) > 0", "the stuck job", ever=True)
        self._await('sum(increase(unstuck_reclaims_total{action="requeued"}[1m])) > 0', "its rescue", ever=True)

    def _a_burst(self) -> None:
        """More than the workers can do: the backlog grows, the interval with it."""
        for _ in range(120):
            self._put("mail", self._random.uniform(0.1, 0.6))
        self._await('max(unstuck_poll_score_ratio{queue="mail"}) > 0', "the interval to follow the backlog", ever=True)

    def _kill_the_leader(self) -> None:
        leader = wait_until(self._leading_port, PATIENCE, "one leader")
        self._agents[leader].kill_tree()
        self._await(f'unstuck_leader{{instance!="127.0.0.1:{leader}"}} == 1', "the other agent to lead")
        self._agents[leader] = self._start_agent(leader)
        self._await("sum(up) == 2 and on () sum(unstuck_gate_open) == 1", "both agents, and an open gate")

    def _restart_redis(self) -> None:
        self._redis.stop()
        self._await("min(unstuck_redis_up) == 0", "an agent to miss Redis", ever=True)
        self._redis.start()
        self._await("min(unstuck_redis_up) == 1 and on () sum(unstuck_gate_open) == 1", "Redis and an open gate")

    # ── the load ──

    def _put(self, queue: str, seconds: float, end: str = "well") -> str:
        return Queue(self._client, queue).enqueue({"seconds": round(seconds, 2), "end": end}).id

    def _produce(self) -> None:
        chance = random.Random(7)
        while not self._end_of_load.wait(1 / self._jobs_per_second):
            end = chance.choices(["well", "badly", "hopeless"], [90, 8, 2])[0]
            queue = "thumbnails" if chance.random() < 0.2 else "mail"
            try:
                self._put(queue, chance.uniform(0.05, 0.8), end)
            except redis.RedisError:
                time.sleep(0.2)  # it is being restarted

    def _holder(self, job: str) -> int | None:
        """The process that runs the job."""
        worker = str(Queue(self._client, "mail").show(job).get("worker") or "")
        return int(worker.split(":")[1]) if worker.count(":") >= 2 else None

    # ── asking ──

    def _leading_port(self) -> int | None:
        found = self.ask("unstuck_leader == 1")
        return int(found[0]["metric"]["instance"].rpartition(":")[2]) if len(found) == 1 else None

    def _await(self, query: str, what: str, *, ever: bool = False) -> None:
        """Wait until the query has an answer; with `ever` it need not last until we look."""
        asked = f"max_over_time(({query})[5m:1s])" if ever else query
        wait_until(lambda: self.ask(asked), PATIENCE, f"Prometheus to show {what}")

    def _pass(self, seconds: float) -> None:
        # Not a wait for anything: the graphs need some time in which nothing happens.
        time.sleep(seconds * self._stretch)

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The answer of now."""
        return self._get("query", query=query)

    def ask_range(self, query: str, step: float) -> list[dict[str, Any]]:
        """The answer over the whole scenario."""
        return self._get("query_range", query=query, start=f"{self.begun}", end=f"{self.ended}", step=f"{step}")

    def values(self, label: str) -> set[str]:
        """The values that a label of ours has had."""
        url = f"{self.prometheus}/api/v1/label/{label}/values?" + urllib.parse.urlencode(
            {"match[]": '{__name__=~"unstuck_.+"}'}
        )
        with urllib.request.urlopen(url, timeout=30) as answer:
            return set(json.loads(answer.read())["data"])

    def _get(self, kind: str, **words: str) -> list[dict[str, Any]]:
        url = f"{self.prometheus}/api/v1/{kind}?{urllib.parse.urlencode(words)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return list(json.loads(answer.read())["data"]["result"])
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{words}: {refused.read().decode()}") from None
        except OSError:
            return []


def played(folder: Path, stretch: float = 1.0, then: Callable[[Scenario], None] = lambda _: None) -> None:
    """Play it, do something with its Prometheus, and end everything."""
    scenario = Scenario(folder, stretch)
    try:
        scenario.play()
        then(scenario)
    finally:
        scenario.close()


def main() -> None:
    """Play it by hand: for the pictures, or to look at the Prometheus while it waits for Enter."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--stretch", type=float, default=1.0, help="how many times longer each act lasts")
    parser.add_argument("--pictures", type=Path, help="folder for the pictures that grafana/preview.py draws")
    parser.add_argument("--wait", action="store_true", help="wait for Enter before the end")
    given = parser.parse_args()

    def then(scenario: Scenario) -> None:
        about = ("--prometheus", scenario.prometheus, "--from", f"{scenario.begun}", "--to", f"{scenario.ended}")
        print(*about, flush=True)
        if given.pictures:
            subprocess.run(
                [sys.executable, ROOT / "grafana" / "preview.py", *about, "--out", given.pictures], check=True
            )
        if given.wait:
            input()

    with tempfile.TemporaryDirectory() as name:
        played(Path(name), given.stretch, then)


if __name__ == "__main__":
    main()
