"""Complete + claim alone: what one job costs the server when the client's slots do nothing else, 1 to 10 slots that each have
a connection of their own, or that go together in one script; beside it a bare PING over as many connections. A lone
connection wakes the server for each command; that share is not the job's.
The server has worked before: a fresh one takes its memory from the kernel page by page, which costs 10 to 20 µs per job.

python bench/claims.py [--jobs 20000] [--rounds 5] [--slots 1,4,10]
"""

from __future__ import annotations

import argparse
import statistics
import threading
from collections.abc import Callable

import redis
from stand import Server, machine

from unstuck.protocol import Lease, Queue, Terms
from unstuck.protocol.together import Handed, complete_and_claim

WORKER = "bench:1:0123abcd"


def per_call(server: Server, jobs: list[Callable[[], object]], times: int) -> float:
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


class Slots:
    """Complete the jobs in hand and claim as many, in one script over one connection."""

    def __init__(self, client: redis.Redis, numbers: range) -> None:
        self.queue = Queue(client, "bench")
        self.leases: list[Lease] = []
        for number in numbers:
            taken = self.queue.claim(WORKER, str(number), Terms())
            assert isinstance(taken, Lease)
            self.leases.append(taken)

    def __call__(self) -> None:
        answers = complete_and_claim(self.queue, WORKER, Terms(), [Handed(lease) for lease in self.leases])
        self.leases = []
        for answer in answers:
            assert answer is not None and isinstance(answer[1], Lease)  # noqa: PT018  one question
            self.leases.append(answer[1])


def measure(slots: int, connections: int, jobs: int) -> tuple[float, float]:
    with Server() as server:
        clients = [redis.Redis(port=server.port, decode_responses=True, protocol=2) for _ in range(connections)]
        times, each, cost = jobs // slots, slots // connections, 0.0
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
            calls = [Slots(client, range(n * each, (n + 1) * each)) for n, client in enumerate(clients)]
            cost = per_call(server, calls, times) / each
        return cost, per_call(server, [client.ping for client in clients], jobs // connections)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--slots", default="1,4,10")
    args = options.parse_args()
    slots = [int(text) for text in args.slots.split(",")]
    ways = [(n, n) for n in slots] + [(n, 1) for n in slots if n > 1]
    found: dict[tuple[int, int], list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(args.rounds):  # in turn, so that a noisy minute hits all alike
        for way, figures in found.items():
            figures.append(measure(*way, args.jobs))
    with Server() as server:
        print(f"# {machine(server.client)}; {args.jobs} jobs, medians of {args.rounds} rounds (best)")
    print("| slots | connections | complete + claim, server CPU µs per job | a bare PING |")
    print("|---|---|---|---|")
    for (number, connections), figures in found.items():
        job, ping = ([one[i] for one in figures] for i in (0, 1))
        cells = [f"{statistics.median(one):.0f} ({min(one):.0f})" for one in (job, ping)]
        print(f"| {number} | {connections} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
