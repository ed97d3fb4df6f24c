"""From enqueue to start for an idle worker: one job at a time, ours and the others' in one run; median and 99th percentile.

Sender and worker share the machine's monotonic clock. The time includes the sender's own work up to the command.

python bench/wakeup.py [--jobs 100] [--gap 0.05] [--rounds 3] [--systems unstuck,huey,…]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from side_by_side import CRASH_SAFE, SYSTEMS, System
from stand import Server, machine, wait_for


def measure(name: str, jobs: int, gap: float, folder: Path) -> list[float]:
    with Server() as server:
        system = System(name, server, folder / "marks")
        if name == "taskiq":  # its group is made by the sender's start
            system.send(1)
        with system.worker():
            system.send(5, 0.3)
            wait_for(lambda: system.done >= 5, f"{name}: the first jobs", within=60)
            already = system.done
            system.send(jobs, gap)
            wait_for(lambda: system.done >= already + jobs, f"{name}: all jobs", within=60)
            return system.latencies()[already:]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=100)
    options.add_argument("--gap", type=float, default=0.05, help="seconds between two jobs, ± 30 %%")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--systems", default=",".join(SYSTEMS))
    args = options.parse_args()
    found: dict[str, list[float]] = {name: [] for name in args.systems.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for name, all_of_it in found.items():
                all_of_it.extend(measure(name, args.jobs, args.gap, Path(folder)))
    with Server() as server:
        print(f"# {machine(server.client)}; {args.rounds} × {args.jobs} jobs, one every {args.gap:g} s")
    print("| system | crash-safe | median ms | p99 ms |")
    print("|---|---|---|---|")
    for name, latencies in found.items():
        ordered = sorted(latencies)
        p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        print(f"| {name} | {CRASH_SAFE[name]} | {statistics.median(ordered) * 1000:.1f} | {p99 * 1000:.1f} |")


if __name__ == "__main__":
    main()
