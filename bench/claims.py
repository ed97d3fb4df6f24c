"""Complete + claim alone: what one job costs the server when the client's slots do nothing else, over 1 to 10 connections;
beside it a bare PING over as many. A lone connection wakes the server for each command; that share is not the job's.
The server has worked before: a fresh one takes its memory from the kernel page by page, which costs 10 to 20 µs per job.

python bench/claims.py [--jobs 20000] [--rounds 5] [--connections 1,4,10]
"""

from __future__ import annotations

import argparse
import statistics
import threading
from collections.abc import Callable

import redis
from stand import Server, machine

from unstuck.protocol import Lease, Queue, Terms

WORKER = "bench:1:0123abcd"


def together(server: Server, jobs: list[Callable[[], object]], times: int) -> float:
    """Microseconds of the server's CPU per call, each of `jobs` called so often in a thread of its own."""

    def repeat(job: Callable[[], object]) -> None:
        for _ in range(times):
            job()

    threads = [threading.Thread(target=repeat, args=(job,)) for job in jobs]
    before = server.moment()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return server.moment().since(before).cpu / (times * len(jobs)) * 1e6


class Slot:
    """Completes the job in hand and claims the next, over a connection of its own."""

    def __init__(self, client: redis.Redis, number: int) -> None:
        self.queue = Queue(client, "bench")
        taken = self.queue.claim(WORKER, str(number), Terms())
        assert isinstance(taken, Lease)
        self.lease = taken

    def __call__(self) -> None:
        done, taken = self.queue.complete_and_claim(self.lease, Terms())
        assert done == "completed" and isinstance(taken, Lease)  # noqa: PT018  one question
        self.lease = taken


def measure(connections: int, jobs: int) -> tuple[float, float]:
    with Server() as server:
        clients = [redis.Redis(port=server.port, decode_responses=True, protocol=2) for _ in range(connections)]
        times = jobs // connections
        cost = 0.0
        for _ in ("warm", "measured"):
            server.client.flushall()
            queue = Queue(clients[0], "bench")
            queue.register(WORKER, control=True)
            for start in range(0, jobs + 500, 500):
                queue.enqueue_many(
                    [
                        {"n": n, "to": "someone@example.org", "template": "welcome", "language": "en", "tries": 3}
                        for n in range(start, start + 500)
                    ]
                )
            cost = together(server, [Slot(client, number) for number, client in enumerate(clients)], times)
        return cost, together(server, [client.ping for client in clients], times)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--connections", default="1,4,10")
    args = options.parse_args()
    found: dict[int, list[tuple[float, float]]] = {int(text): [] for text in args.connections.split(",")}
    for _ in range(args.rounds):  # in turn, so that a noisy minute hits all alike
        for connections, figures in found.items():
            figures.append(measure(connections, args.jobs))
    with Server() as server:
        print(f"# {machine(server.client)}; {args.jobs} jobs, medians of {args.rounds} rounds (best)")
    print("| connections | complete + claim, server CPU µs | a bare PING |")
    print("|---|---|---|")
    for connections, figures in found.items():
        job, ping = ([one[i] for one in figures] for i in (0, 1))
        cells = [f"{statistics.median(one):.0f} ({min(one):.0f})" for one in (job, ping)]
        print(f"| {connections} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
