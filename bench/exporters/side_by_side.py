"""One scrape of ours beside one of Debian's prometheus-redis-exporter and of rq-exporter, over the same Redis, in one run.

100,000 locks: the redis exporter with --count-keys and --check-keys. RQ with 10,000 jobs and 1,000 workers: rq-exporter. Ours is the
agent as a process; its scrape costs Redis nothing, so what its sweeps cost in the same time stands beside it, per sweep.
Medians of a few scrapes; wall times of a busy machine are noisy, commands and series are exact.

python bench/exporters/side_by_side.py [--locks 100000] [--jobs 10000] [--workers 1000] [--rounds 3]

Needs prometheus-redis-exporter on PATH, and rq-exporter on PATH or named by RQ_EXPORTER (it wants another redis-py than we do,
so give it an environment of its own).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import redis

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from stand import Server, Spent, cpu_seconds, free_port, machine, resident_mb, running, wait_for
from sweep import QUEUE, fill

from unstuck.protocol import keys

PATIENCE = 120.0
# All that is held beats ahead of time, so that nothing falls silent while the others are measured.
BEAT = """
local t = redis.call('TIME')
local ids = redis.call('ZRANGE', KEYS[1], 0, -1)
for i = 1, #ids do redis.call('ZADD', KEYS[1], t[1] * 1000 + 3600000, ids[i]) end
"""


def scrape(port: int) -> tuple[int, int]:
    """Series and bytes."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        body = answer.read()
    return sum(1 for line in body.splitlines() if line and not line.startswith(b"#")), len(body)


def listens(port: int, path: str = "/") -> Callable[[], bool]:
    def asked() -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE).close()
        except OSError:
            return False
        return True

    return asked


def row(name: str, wall: float, spent: Spent, series: int, size: int, own_cpu: float, memory: float) -> None:
    calls = sum(spent.calls.values())
    print(
        f"| {name} | {wall * 1000:,.0f} ms | {spent.cpu * 1000:,.0f} ms | {calls:,} "
        f"| {series:,} | {size / 1e6:,.2f} MB | {own_cpu * 1000:,.0f} ms | {memory:,.0f} MB |",
        flush=True,
    )


def peer(name: str, command: list[str], port: int, server: Server, rounds: int, path: str = "/") -> None:
    """An exporter that asks Redis at every scrape."""
    with running(command) as process:
        wait_for(listens(port, path), f"{name} listens", PATIENCE)
        scrape(port)
        seen = []
        for _ in range(rounds):
            before, begun, cpu = server.moment(), time.perf_counter(), cpu_seconds(process.pid)
            series, size = scrape(port)
            wall = time.perf_counter() - begun
            seen.append((wall, server.moment().since(before), series, size, cpu_seconds(process.pid) - cpu))
        seen.sort(key=lambda one: one[0])
        wall, spent, series, size, cpu = seen[len(seen) // 2]
        row(name, wall, spent, series, size, cpu, resident_mb(process.pid))


@contextmanager
def agent(server: Server) -> Iterator[tuple[int, int]]:
    """The agent as a process that has seen everything: its port and its process id."""
    port = free_port()
    environ = {**os.environ, "UNSTUCK_REDIS": server.url, "UNSTUCK_HTTP_LISTEN": f"127.0.0.1:{port}"}
    with running([sys.executable, "-m", "unstuck", "run"], env=environ) as process:
        wait_for(listens(port, "/readyz"), "the agent is ready", PATIENCE)
        yield port, process.pid


def ours(name: str, server: Server, rounds: int) -> None:
    with agent(server) as (port, pid):
        scrape(port)
        # The audit, the slow pass over all keys that an agent begins with, is no part of a sweep: let it end.
        wait_for(lambda: _metric(port, 'unstuck_collector_success{collector="audit"}'), "the first audit", 300, 1.0)
        time.sleep(3)
        sweeps = _sweeps(port)
        before, begun, cpu = server.moment(), time.perf_counter(), cpu_seconds(pid)
        time.sleep(10)
        idle, rest = server.moment().since(before), time.perf_counter() - begun
        idle_cpu, passed = cpu_seconds(pid) - cpu, max(1, _sweeps(port) - sweeps)
        before, cpu, walls, scrapes, began = server.moment(), cpu_seconds(pid), [], 20 * rounds, time.perf_counter()
        swept = _sweeps(port)
        for _ in range(scrapes):
            begun = time.perf_counter()
            series, size = scrape(port)
            walls.append(time.perf_counter() - begun)
            time.sleep(0.15)
        busy, took = server.moment().since(before), time.perf_counter() - began
        share = took / rest
        # By sweeps, not by time: a window holds one more or less.
        more = sum(busy.calls.values()) - sum(idle.calls.values()) / passed * (_sweeps(port) - swept)
        own = max(0.0, cpu_seconds(pid) - cpu - idle_cpu * share) / scrapes
        row(f"{name}: a scrape", statistics.median(walls), Spent(0, 0), series, size, own, resident_mb(pid))
        print(
            f"| {name}: commands in {scrapes} scrapes beyond those of the sweeps meanwhile | | | {more:+,.0f} | | | | |"
        )
        each = Spent(rest / passed, idle.cpu / passed, {name: round(n / passed) for name, n in idle.calls.items()})
        row(
            f"{name}: a sweep, all duties meanwhile included",
            _duration(port),
            each,
            0,
            0,
            idle_cpu / passed,
            resident_mb(pid),
        )


def _metric(port: int, start: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(start)), 0.0)


def _sweeps(port: int) -> int:
    return int(_metric(port, 'unstuck_redis_command_duration_seconds_count{operation="sweep"}'))


def _duration(port: int) -> float:
    return _metric(port, 'unstuck_collector_duration_seconds{collector="sweep"}')


def rq(client: redis.Redis, jobs: int, workers: int) -> None:
    """What RQ leaves: jobs in a queue, and as many running as there are workers."""
    now = datetime.now(UTC)
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    client.sadd("rq:queues", "rq:queue:default")
    pipe = client.pipeline(transaction=False)
    for n in range(jobs + workers):
        job = str(uuid.UUID(int=n + 1))
        status = "queued" if n < jobs else "started"
        body = {
            "created_at": stamp,
            "enqueued_at": stamp,
            "origin": "default",
            "status": status,
            "data": b"x" * 100,
            "timeout": 180,
        }
        if status == "queued":
            pipe.rpush("rq:queue:default", job)
        else:
            worker = f"{n - jobs:032x}"
            body |= {"started_at": stamp, "last_heartbeat": stamp, "worker_name": worker}
            execution = f"{job}:{n:032x}"
            pipe.zadd("rq:wip:default", {execution: now.timestamp() + 600})
            pipe.sadd("rq:workers", f"rq:worker:{worker}")
            pipe.sadd("rq:workers:default", f"rq:worker:{worker}")
            record = {"birth": stamp, "last_heartbeat": stamp, "queues": "default", "state": "busy", "current_job": job}
            record |= {
                "pid": str(n),
                "hostname": "host",
                "successful_job_count": 3,
                "failed_job_count": 1,
                "total_working_time": 9.5,
            }
            pipe.hset(f"rq:worker:{worker}", mapping={**record, "python_version": "3.11", "version": "2.0"})
            pipe.expire(f"rq:worker:{worker}", 3600)
        pipe.hset(f"rq:job:{job}", mapping=body)
        if n % 1000 == 999:
            pipe.execute()
    pipe.execute()


def program(name: str, variable: str, how: str) -> str:
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        raise SystemExit(f"bench: there is no {name}; {how}, or name it with {variable}")
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--locks", type=int, default=100_000)
    options.add_argument("--jobs", type=int, default=10_000)
    options.add_argument("--workers", type=int, default=1_000)
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    redis_exporter = program("prometheus-redis-exporter", "REDIS_EXPORTER", "apt-get install prometheus-redis-exporter")
    rq_exporter = program("rq-exporter", "RQ_EXPORTER", "pip install rq-exporter into an environment of its own")
    head = "| exporter | wall | Redis' CPU | commands | series | bytes | its own CPU | memory |\n|---|---|---|---|---|---|---|---|"
    with Server() as server:
        print(machine(server.client))
        print(f"\n### {args.locks:,} locks\n\n{head}")
        fill(server.client, args.locks, 0)
        for key in (keys.active(QUEUE), keys.workers(QUEUE)):
            server.client.eval(BEAT, 1, key)
        for worker in server.client.zrange(keys.workers(QUEUE), 0, -1):
            # Whose record says that it listens, and who does not, has vanished: these have never said so.
            server.client.hdel(keys.worker(QUEUE, str(worker)), "control")
        pattern = f"db0={keys.lock(QUEUE, '*')}"
        ours("unstuck", server, args.rounds)
        for flag in ("--count-keys", "--check-keys"):
            port = free_port()
            command = [
                redis_exporter,
                f"--redis.addr={server.url}",
                f"--web.listen-address=127.0.0.1:{port}",
                flag,
                pattern,
            ]
            peer(f"redis exporter {flag}", command, port, server, args.rounds)
    with Server() as server:
        print(f"\n### RQ: {args.jobs:,} jobs, {args.workers:,} workers\n\n{head}")
        rq(server.client, args.jobs, args.workers)
        ours("unstuck", server, args.rounds)
        port = free_port()
        command = [rq_exporter, "--redis-url", server.url, "--host", "127.0.0.1", "--port", str(port)]
        peer("rq-exporter", command, port, server, args.rounds, "/metrics")


if __name__ == "__main__":
    main()
