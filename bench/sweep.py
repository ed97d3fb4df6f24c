"""One sweep of our own queue among many leases, a few of them stuck; and beside it the way that scans the locks.

The sweep is the agent's own (`Sweeper` with our adapter): round trips, commands as sent (seen by MONITOR), the server's CPU
and the wall time, medians. The scanning way is SCAN COUNT 1000 for the lock keys, then PTTL and HMGET for each in one
pipeline per page.

python bench/sweep.py [--leases 10000,100000] [--stuck 100] [--rounds 7]     (1000000 takes about 1.5 GB and two minutes)
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import redis
from stand import Server, Spent, machine, overheard

from unstuck.clock import ManualClock
from unstuck.config import load
from unstuck.duties.sweeping import Sweeper
from unstuck.model import Standing
from unstuck.protocol import keys
from unstuck.queues.unstuck import UnstuckAdapter

QUEUE = "bench"
# What heartbeats do for all that are not silent: the filling took a while.
BEAT = """
local t = redis.call('TIME')
local ids = redis.call('ZRANGE', KEYS[1], ARGV[1], -1)
for i = 1, #ids do redis.call('ZADD', KEYS[1], t[1] * 1000, ids[i]) end
"""
WORKERS = 100


def fill(client: redis.Redis, leases: int, stuck: int) -> None:
    """Leases as claims and heartbeats leave them; the first `stuck` have been silent for a minute, their locks have lapsed."""
    seconds, micros = client.time()
    now = seconds * 1000 + micros // 1000
    client.sadd(keys.QUEUES, QUEUE)
    client.hset(keys.meta(QUEUE), "v", "1")
    for start in range(0, leases, 1000):
        pipe = client.pipeline(transaction=False)
        for n in range(start, min(start + 1000, leases)):
            silent = n < stuck
            beat, job, worker = now - 60_000 if silent else now, f"{n:032x}", f"host:{n % WORKERS}:0123abcd"
            token = f"1.{n:016x}"
            body = {
                "state": "active",
                "attempt": 1,
                "rescues": 0,
                "failures": 0,
                "version": 2,
                "payload": '{"n":1}',
                "token": token,
                "worker": worker,
                "lock": "ttl",
                "lock_ttl_ms": 30_000,
                "heartbeat_ms": 5_000,
                "abort_after_ms": 20_000,
                "started_at": now - 90_000,
                "heartbeat_at": beat,
            }
            pipe.hset(keys.job(QUEUE, job), mapping=body)
            pipe.zadd(keys.active(QUEUE), {job: beat})
            pipe.zadd(keys.started(QUEUE), {job: now - 90_000})
            pipe.sadd(keys.held(QUEUE, worker), job)
            if not silent:
                pipe.set(keys.lock(QUEUE, job), token, px=3_600_000)
        pipe.execute()
    names = [f"host:{n}:0123abcd" for n in range(WORKERS)]
    client.zadd(keys.workers(QUEUE), dict.fromkeys(names, now))
    for name in names:
        client.hset(keys.worker(QUEUE, name), mapping={"since": now, "control": 1})


def beat(client: redis.Redis, stuck: int) -> None:
    client.eval(BEAT, 1, keys.active(QUEUE), stuck)
    client.eval(BEAT, 1, keys.workers(QUEUE), 0)


def listen_like_workers(client: redis.Redis) -> Any:
    """Hold the control subscription of every worker."""
    subscription = client.pubsub()
    subscription.ssubscribe(*(keys.control(QUEUE, f"host:{n}:0123abcd") for n in range(WORKERS)))
    return subscription


def sweep_by_scan(client: redis.Redis, threshold_ms: int = 30_000) -> int:
    """What needs no index of its own: find every job by SCAN and look at its lock and its heartbeat. How many are silent."""
    prefix, silent, cursor = keys.job(QUEUE, ""), 0, 0
    seconds, micros = client.time()
    now = seconds * 1000 + micros // 1000
    while True:
        cursor, found = client.scan(cursor, match=f"{prefix}*", count=1000)
        pipe = client.pipeline(transaction=False)
        for name in found:
            pipe.pttl(keys.lock(QUEUE, name.removeprefix(prefix)))
            pipe.hmget(name, ["state", "heartbeat_at"])
        answers: list[Any] = pipe.execute()
        for ttl, (state, beat) in zip(answers[::2], answers[1::2], strict=True):
            silent += ttl == -2 and state == "active" and int(beat) < now - threshold_ms
        if not cursor:
            return silent


def measured(server: Server, work: Callable[[], object], rounds: int, stuck: int = 0) -> Spent:
    spent = []
    for _ in range(rounds):
        beat(server.client, stuck)
        before = server.moment()
        begun = time.perf_counter()
        work()
        wall = time.perf_counter() - begun
        took = server.moment().since(before)
        spent.append(Spent(wall, took.cpu, took.calls, took.reads))
    return sorted(spent, key=lambda one: one.cpu)[len(spent) // 2]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--leases", default="10000,100000")
    options.add_argument("--stuck", type=int, default=100)
    options.add_argument("--rounds", type=int, default=7)
    args = options.parse_args()
    rows = []
    head = ""
    for leases in map(int, args.leases.split(",")):
        with Server() as server:
            head = head or machine(server.client)
            fill(server.client, leases, args.stuck)
            subscription = listen_like_workers(server.client)
            reading = redis.Redis(port=server.port, protocol=2)
            idle = statistics.median(
                measured(server, lambda: None, 1, args.stuck).cpu for _ in range(5)
            )  # the looks of the bench
            clock = ManualClock()
            own = UnstuckAdapter(reading, reading)
            sweeper = Sweeper(load(), [own], reading, clock, exchanged=lambda _op, _s: None)

            def sweep(sweeper: Sweeper = sweeper, clock: ManualClock = clock) -> int:
                clock.advance(60)  # it is always due
                return sum(one.standing is not Standing.HEALTHY for one in sweeper.sweep().queues[0].verdicts)

            beat(server.client, args.stuck)
            found = sweep()
            with overheard(server) as heard:
                sweep()
            sent = [name for _, name in heard]
            ours = measured(server, sweep, args.rounds, args.stuck)
            rows.append((leases, "sweep", ours, idle, len(sent), found))
            print(f"{leases}: {' '.join(sent)}", file=sys.stderr)
            naive = measured(server, lambda: sweep_by_scan(server.client), 1 if leases > 100_000 else 3, args.stuck)
            seen = sweep_by_scan(server.client)
            subscription.close()
            rows.append((leases, "SCAN, PTTL, HMGET", naive, idle, sum(naive.calls.values()), seen))
    print(f"# {head}; {args.stuck} stuck leases, medians of {args.rounds} rounds")
    print("| leases | way | commands sent | server CPU ms | wall ms | silent ones found |")
    print("|---|---|---|---|---|---|")
    for leases, way, spent, idle, sent_count, found in rows:
        cpu = max(0.0, spent.cpu - idle) * 1000
        print(f"| {leases:,} | {way} | {sent_count:,} | {cpu:.2f} | {spent.wall * 1000:.1f} | {found} |")


if __name__ == "__main__":
    main()
