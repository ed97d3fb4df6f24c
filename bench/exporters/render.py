"""How long a scrape of many queues takes: wall time, samples, bytes; and what the client library's writer would take.

python bench/exporters/render.py [--queues 1000] [--rounds 15] [--compare]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from unstuck.model import (
    Action,
    Capability,
    GateState,
    Lease,
    Mode,
    QueueSnapshot,
    Reason,
    Reclaimed,
    ServerSnapshot,
    Standing,
    Totals,
    Verdict,
)
from unstuck.queues.unstuck import BEAT_BOUNDS
from unstuck_exporters.board import Board, Paced
from unstuck_exporters.prometheus import Exporter

BOUNDS_MS = (50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000)


def busy_board(queues: int) -> Board:
    """A board on which every family of a queue has something to say."""
    board = Board(version="0.0.0", queue_limit=queues)
    board.leads(1)
    board.gated(GateState(open=True))
    board.redis_answered("look", 0.001)
    board.saw_server(ServerSnapshot("r", "p", "master", "7.0.15", int(time.time() * 1000), 1000.0), clock_offset=0.001)
    sweep(board, queues, 1)
    return board


def sweep(board: Board, queues: int, n: int, every: int = 1) -> None:
    """What sweep number `n` writes, if each `every`-th queue had something to do since the one before."""
    now = int(time.time() * 1000)
    busy = {str(bound): n for bound in BOUNDS_MS} | {"inf": n}
    idle = {str(bound): 1 for bound in BOUNDS_MS} | {"inf": 1}
    quiet = Totals(1, 1, 1, 1, delay_ms=1, run_ms=1, delay_buckets=idle, run_buckets=dict(idle))
    worked = Totals(n, n, n, n, delay_ms=n, run_ms=n, delay_buckets=busy, run_buckets=dict(busy))
    ages = dict.fromkeys(BEAT_BOUNDS, n % 7)  # spelled as the adapter does
    snapshots = [
        QueueSnapshot(
            "unstuck",
            f"queue-{i}",
            Capability.RECLAIM,
            server_ms=now,
            waiting=i + (n if i % every == 0 else 0),
            running=7,
            oldest_waiting=1.5,
            oldest_running=2.5,
            oldest_dead_ms=now,
            workers={"busy": 1, "idle": 1},
            locks_held=5,
            locks_without_expiry=0,
            soonest_lock_expiry_ms=now,
            oldest_heartbeat_ms=now,
            heartbeats_missing=0,
            heartbeat_buckets=ages if i % every == 0 else dict.fromkeys(ages, 0),
            totals=worked if i % every == 0 else quiet,
        )
        for i in range(queues)
    ]
    for s in snapshots:
        board.configured(s.backend, s.queue, mode=Mode.RECLAIM, backlog_threshold=1000)
    board.looked("unstuck", snapshots)
    for i, s in enumerate(snapshots):
        lease = Lease(f"job-{n}", token=f"{n}.0")
        verdicts = [Verdict(s.backend, s.queue, lease, Standing.STUCK, Reason.WORKER_DEAD, 40.0)] if i % 10 == 0 else []
        board.judged(s.backend, s.queue, verdicts)
        board.paced(s.backend, s.queue, Paced(0.25, 0.2, 0.25, 0.15, 0.1, average_delay=1.5))
        if verdicts:
            board.reclaimed(s.backend, s.queue, Reason.WORKER_DEAD, Reclaimed("job", Action.REQUEUED), delay=2.0)


def timed(work: Callable[[], object], rounds: int) -> list[float]:
    """Milliseconds of processor time of each round, ascending (wall time on a machine that does nothing else)."""
    took = []
    for _ in range(rounds):
        begin = time.thread_time()
        work()
        took.append((time.thread_time() - begin) * 1000)
    return sorted(took)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--queues", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--compare", action="store_true", help="also time the client library's own writer")
    args = options.parse_args()
    board = busy_board(args.queues)
    exporter = Exporter(board)
    body = b"".join(exporter.render())
    samples = sum(1 for line in body.splitlines() if not line.startswith(b"#"))
    print(f"{args.queues} queues: {samples} samples, {len(body) / 1e6:.1f} MB")
    n = 1
    for openmetrics in (False, True):
        for every in (10, 1):  # every scrape sees another sweep, as it would in life
            took = []
            for _ in range(args.rounds):
                n += 1
                sweep(board, args.queues, n, every)
                took += timed(lambda form=openmetrics: exporter.render(openmetrics=form), 1)
            name = "OpenMetrics" if openmetrics else "text"
            share = "a tenth of the queues worked" if every == 10 else "every queue worked"
            print(f"{name:12} {share:30} median {statistics.median(took):6.1f} ms   best {min(took):6.1f} ms")
    took = timed(lambda: (exporter.render(), None), args.rounds)
    print(
        f"text         nothing changed                median {statistics.median(took):6.1f} ms   best {took[0]:6.1f} ms"
    )
    took = timed(lambda: sweep(board, args.queues, 99), 5)
    print(f"writing a sweep to the board: median {statistics.median(took):6.1f} ms")
    if args.compare:
        families = list(text_string_to_metric_families(body.decode()))

        class Ready(Collector):
            def collect(self) -> list[object]:  # type: ignore[override]
                return list(families)

        registry = CollectorRegistry()
        registry.register(Ready())
        took = timed(lambda: generate_latest(registry), 3)
        print(f"client library's writer, families ready made: median {statistics.median(took):6.1f} ms")


if __name__ == "__main__":
    main()
