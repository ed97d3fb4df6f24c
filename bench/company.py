"""Completions of a worker's slots go to Redis together, and short jobs wait for each other (worker/handover.py). Does that
cost throughput? Handlers that sleep for a while, ten slots; each length with slots together and with each by itself, in turn.

python bench/company.py [--jobs 4000] [--rounds 3] [--concurrency 10] [--lengths 0-0,0.1-0.6,0.5-1.5,0.2-3,2-20]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from typing import Any

from stand import HERE, Server, machine, running, wait_for

from unstuck import cli
from unstuck.connections import Connections
from unstuck.protocol import Queue
from unstuck.worker.context import Context
from unstuck.worker.handover import Handover


def job(payload: Any, _: Context) -> None:
    """Sleeps between so many milliseconds; the payload says which."""
    shortest, longest = payload
    if longest:
        time.sleep(random.uniform(shortest, longest) / 1000)


def measure(lengths: tuple[float, float], jobs: int, concurrency: int, way: str) -> tuple[float, float, float]:
    """Jobs per second, server CPU µs per job, script calls per job."""
    with Server() as server, Connections(server.url) as connections:
        Queue(connections.scripting(), "bench").enqueue_many([lengths] * jobs)
        command = [sys.executable, __file__, "--work", way, "worker", "bench", "company:job", "--redis", server.url]
        command += ["--concurrency", str(concurrency), "--log-level", "warning"]
        env = dict(os.environ) | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
        with running(command, cwd=HERE, env=env):

            def done() -> int:
                return int(server.client.hget("unstuck:{bench}:stats", "completed") or 0)

            wait_for(lambda: done() >= jobs // 10, "a tenth of the jobs")
            first, before = done(), server.moment()
            wait_for(lambda: done() >= jobs * 9 // 10, "nine tenths", within=300)
            n, spent = done() - first, server.moment().since(before)
        return n / spent.wall, spent.cpu / n * 1e6, spent.calls["evalsha"] / n


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        if sys.argv[2] == "by itself":
            Handover.__call__ = lambda self, handed: self._send([handed])[0]  # type: ignore[method-assign]
        cli.main(sys.argv[3:])
        return
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=4000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--concurrency", type=int, default=10)
    options.add_argument("--lengths", default="0-0,0.1-0.6,0.5-1.5,0.2-3,2-20", help="milliseconds")
    args = options.parse_args()
    rows: dict[tuple[str, str], list[tuple[float, float, float]]] = {
        (lengths, way): [] for lengths in args.lengths.split(",") for way in ("by itself", "together")
    }
    for _ in range(args.rounds):  # in turn, so that a noisy minute hits all alike
        for (lengths, way), figures in rows.items():
            shortest, longest = map(float, lengths.split("-"))
            figures.append(measure((shortest, longest), args.jobs, args.concurrency, way))
    with Server() as server:
        print(
            f"# {machine(server.client)}; {args.jobs} jobs, {args.concurrency} slots, medians of {args.rounds} rounds"
        )
    print("| job takes, ms | slots | jobs/s | server CPU µs/job | script calls/job |")
    print("|---|---|---|---|---|")
    for (lengths, way), figures in rows.items():
        rate, cpu, calls = (statistics.median(one[i] for one in figures) for i in range(3))
        print(f"| {lengths} | {way} | {rate:,.0f} | {cpu:.0f} | {calls:.2f} |")


if __name__ == "__main__":
    main()
