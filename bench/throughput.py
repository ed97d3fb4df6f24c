"""One worker process with no-op jobs, ours and the others' in one run: jobs/s, commands and round trips per job, and the
server's CPU per job. The jobs wait in the queue before the worker starts; the first and the last tenth are not counted.

On a busy machine every time is wrong: `--instructions` runs the server under valgrind and counts what it executes per
job instead (without the kernel's part), which repeats to a few percent; times are then meaningless.

python bench/throughput.py [--jobs 4000] [--concurrency 1] [--rounds 3] [--systems unstuck,dramatiq,…] [--instructions]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from counting import Counted, callgrind
from side_by_side import CRASH_SAFE, SYSTEMS, System
from stand import Server, machine, wait_for


@dataclass
class Figure:
    rate: float  # jobs per second
    cpu: float  # server's microseconds per job
    trips: float  # reads of a socket by the server, per job
    commands: float  # as clients sent them or scripts called them, per job
    instructions: float  # thousands per job, 0 where they were not counted


def measure(
    name: str, jobs: int, concurrency: int, folder: Path, *, count: bool
) -> tuple[Figure, dict[str, float]] | None:
    with Server(wrapper=callgrind(folder) if count else (), patience=60) as server:
        system = System(name, server, folder / "marks", concurrency)
        if not system.command:
            return None
        if name == "taskiq":  # its group is made by the sender's start
            system.send(1)
        system.send(jobs)
        counted = Counted(server, folder)
        with system.worker():
            wait_for(lambda: system.done >= jobs // 10, f"{name}: a tenth of the jobs", pause=0.002)
            first, before = system.done, server.moment()
            if count:
                counted.between()
            wait_for(lambda: system.done >= jobs * 9 // 10, f"{name}: nine tenths", within=300, pause=0.002)
            executed = counted.between() if count else 0
            spent, n = server.moment().since(before), system.done - first
        calls = {command: count / n for command, count in spent.calls.items()}
        figure = Figure(n / spent.wall, spent.cpu / n * 1e6, spent.reads / n, sum(calls.values()), executed / n / 1000)
        return figure, calls


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=4000)
    options.add_argument("--concurrency", type=int, default=1)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--systems", default=",".join(SYSTEMS))
    options.add_argument("--calls", action="store_true", help="also which commands")
    options.add_argument("--instructions", action="store_true", help="count them, with valgrind")
    args = options.parse_args()
    figures: dict[str, list[Figure]] = {name: [] for name in args.systems.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):  # in turn, so that a noisy minute hits all alike
            for name, one in figures.items():
                jobs = args.jobs // 4 if name == "rq" else args.jobs
                if found := measure(name, jobs, args.concurrency, Path(folder), count=args.instructions):
                    one.append(found[0])
                    print(f"{name}: {found[0]}", file=sys.stderr)
                    if args.calls:
                        print(
                            name, {call: round(n, 2) for call, n in sorted(found[1].items(), key=lambda one: -one[1])}
                        )
    with Server() as server:
        print(
            f"# {machine(server.client)}; {args.jobs} jobs, concurrency {args.concurrency}, medians of {args.rounds} rounds"
        )
    if args.instructions:
        print("| system | crash-safe | server's instructions/job (thousands) | round trips/job | commands/job |")
        print("|---|---|---|---|---|")
    else:
        print("| system | crash-safe | jobs/s | server CPU µs/job | round trips/job | commands/job |")
        print("|---|---|---|---|---|---|")
    for name, found in figures.items():
        if not found:
            continue
        rate, cpu, trips, commands, instructions = (
            statistics.median(getattr(one, field) for one in found)
            for field in ("rate", "cpu", "trips", "commands", "instructions")
        )
        cost = f"{instructions:.0f}" if args.instructions else f"{rate:,.0f} | {cpu:.0f}"
        print(f"| {name} | {CRASH_SAFE[name]} | {cost} | {trips:.2f} | {commands:.1f} |")


if __name__ == "__main__":
    main()
