"""The same on a real Redis: 200 real pollers, real scripts, the worker's own waits, the agent's own publisher.

`python -m pacing.real FOLDER [busy] [idle]` from bench/, a quarter of an hour; starts a Redis of its own on a free port. Each way of polling gets a
quiet time, then a steady load, then a burst of 600 jobs. Four processes hold 50 pollers each; a job is a sleep.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pacing import simulator as sim
from pacing.simulator import Way
from unstuck.config import Pacing, Seconds, Settings
from unstuck.connections import Connections
from unstuck.duties.publishing import Publisher
from unstuck.duties.sweeping import Judged
from unstuck.protocol import Claim, Lease, Queue, Terms
from unstuck.queue import Limits
from unstuck.queues.unstuck import UnstuckAdapter
from unstuck.server import read_server
from unstuck.worker.waiting import Board, OwnPace, Waiter

QUEUE = "bench"
PROCESSES, THREADS = 4, 50
BASE, RUN_TIME, RATE, BURST = 2.0, 4.0, 27.0, 600  # the workers could do 50 jobs/s
QUIET, STEADY = 20.0, 20.0  # seconds before the load, and before the burst
EVERY = 0.5
WAYS = (sim.FIXED_EVERY_POLL, sim.FIXED, sim.CONTRACT, sim.CONTRACT_SLEEPING, sim.NAIVE)
IDLE_WAYS = (sim.FIXED, sim.CONTRACT, sim.CONTRACT_SLEEPING)


@contextmanager
def redis_server() -> Iterator[str]:
    """A server that keeps nothing; its address."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("bench/pacing: no redis-server on PATH")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--port", str(port), "--save", "", "--dir", folder, "--logfile", "log"]
        server = subprocess.Popen(command)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            until = time.monotonic() + 10
            while time.monotonic() < until:
                try:
                    with socket.create_connection(("127.0.0.1", port), 1):
                        break
                except OSError:
                    time.sleep(0.05)
            yield url
        finally:
            server.terminate()
            server.wait(10)


def pollers(url: str, way: Way, number: int, pipe: Connection, run_time: float) -> None:
    """One process of pollers, until its pipe says something; answers with the waits of its jobs."""
    stopping, waits = threading.Event(), []
    connections = Connections(url, role="bench", max_connections=THREADS + 4)
    board = Board(connections, QUEUE, OwnPace(BASE, 10.0, 0.2))
    queue = Queue(connections.scripting(), QUEUE)

    def poll(slot: int) -> None:
        waiter = Waiter(connections, QUEUE, board, stopping, wake=way.wakes)
        chance = random.Random(slot)
        worker, taken = f"bench:{number}:{slot:08x}", None
        while not stopping.is_set():
            taken = taken or queue.claim(worker, "0", Terms())
            if isinstance(taken, Lease):
                waits.append((taken.claimed_ms / 1000, taken.claimed_ms / 1000 - taken.decoded()))
                waiter.got_a_job()
                stopping.wait(run_time * chance.uniform(0.5, 1.5))
                if way.after_jobs:
                    queue.complete(taken)
                    taken = None
                    stopping.wait(interval(way, board) * chance.uniform(0.8, 1.2))
                else:
                    taken = queue.complete_and_claim(taken, Terms())[1]
                continue
            empty, taken = taken, None
            if way.grows:
                waiter.wait(empty)
            else:
                look(way, board, empty)
                stopping.wait(interval(way, board) * chance.uniform(0.8, 1.2))

    threads = [threading.Thread(target=poll, args=(slot,), daemon=True) for slot in range(THREADS)]
    for thread in threads:
        thread.start()
    pipe.send("ready")
    pipe.recv()
    stopping.set()
    pipe.send(list(waits))


def look(way: Way, board: Board, empty: Claim) -> None:
    if way.policy != "fixed":
        board.look(empty.now_ms)


def interval(way: Way, board: Board) -> float:
    """What a poller that ignores the contract waits: the base, or whatever is published, after every poll."""
    if way.policy == "fixed":
        return BASE
    board.look(int(time.time() * 1000))
    return board.pace.interval


def measured(url: str, way: Way, *, after_burst: float, rate: float, burst: int, run_time: float) -> dict[str, Any]:
    """One way through quiet, load and burst."""
    connections = Connections(url, role="bench")
    client = connections.reading()
    client.flushall()
    client.config_resetstat()
    queue = Queue(connections.scripting(), QUEUE)
    processes, pipes = [], []
    for number in range(PROCESSES):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=pollers, args=(url, way, number, theirs, run_time))
        process.start()
        processes.append(process)
        pipes.append(ours)
    for ours in pipes:
        ours.recv()
    settings = Settings(pacing=Pacing(base_interval=Seconds(BASE)))
    adapter = UnstuckAdapter(connections.reading(), connections.scripting())
    publisher = Publisher(connections.scripting(), 2.0, settings)
    begun, samples = time.time(), []
    next_look = next_job = begun
    next_job += QUIET
    burst_at, until = begun + QUIET + STEADY, begun + QUIET + STEADY + after_burst
    done_burst = not burst
    chance = random.Random(1)
    while (now := time.time()) < until:
        if now >= next_look:
            (snapshot,) = adapter.look({QUEUE: Limits()})
            publisher.publish([Judged(snapshot, settings)], read_server(client), 1, time.monotonic())
            next_look += 2.0
        if rate and now >= next_job:
            due = []
            while next_job <= now:
                due.append(next_job)
                next_job += chance.expovariate(rate)
            queue.enqueue_many(due)
        if not done_burst and now >= burst_at:
            queue.enqueue_many([burst_at] * burst)
            done_burst = True
        if not samples or now - begun - samples[-1]["at"] >= EVERY:
            samples.append({"at": now - begun, **state(client)})
        time.sleep(0.005)
    for pipe in pipes:
        pipe.send("stop")
    stats = {name.decode(): int(value) for name, value in client.hgetall(f"unstuck:{{{QUEUE}}}:stats").items()}
    waits = [(at - begun, wait) for pipe in pipes for at, wait in pipe.recv()]
    for process in processes:
        process.join(20)
    connections.close()
    return {"samples": samples, "waits": sorted(waits), "burst_at": QUIET + STEADY, "stats": stats}


def state(client: Any) -> dict[str, float]:
    """Backlog, commands and processor time so far, published interval."""
    pipe = client.pipeline(transaction=False)
    pipe.llen(f"unstuck:{{{QUEUE}}}:pending")
    pipe.info("commandstats")
    pipe.info("cpu")
    pipe.hget(f"unstuck:{{{QUEUE}}}:pacing", "interval_ms")
    backlog, commands, cpu, told = pipe.execute()
    sent = sum(commands.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "blpop"))
    return {
        "backlog": backlog,
        "polls": sent,
        "cpu": cpu["used_cpu_sys"] + cpu["used_cpu_user"],
        "interval_ms": int(told or 0),
    }


def main() -> None:
    """All ways, twice: under load with a burst, and (nearly) idle, for what a wait costs and how soon a job starts."""
    folder, wanted = Path(sys.argv[1]), sys.argv[2:] or ["busy", "idle"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "real.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    plans = {
        "busy": (WAYS, {"after_burst": 100.0, "rate": RATE, "burst": BURST, "run_time": RUN_TIME}),
        "idle": (IDLE_WAYS, {"after_burst": 40.0, "rate": 1.0, "burst": 0, "run_time": 0.01}),
    }
    with redis_server() as url:
        for name in wanted:
            ways, plan = plans[name]
            found[name] = {}
            for way in ways:
                run = found[name][way.name] = measured(url, way, **plan)
                print(summary(name, way, run), flush=True)
    path.write_text(json.dumps(found))


def summary(name: str, way: Way, run: dict[str, Any]) -> str:
    """One line: what the fleet costs while it is quiet, and how long jobs wait (by Redis' own clock)."""
    quiet = [one for one in run["samples"] if 10 <= one["at"] < QUIET]
    seconds = quiet[-1]["at"] - quiet[0]["at"]
    commands, cpu = ((quiet[-1][what] - quiet[0][what]) / seconds for what in ("polls", "cpu"))
    stats = run["stats"]
    prompt = stats.get("delay_le_50", 0) / max(1, stats.get("started", 0))
    waits = sorted(wait for at, wait in run["waits"] if at - wait >= run["burst_at"] - 0.01) or [0.0]
    return (
        f"{name:5} {way.name:36} quiet: {commands:6.1f} commands/s, {cpu:5.2%} of a core; "
        f"started within 50 ms: {prompt:4.0%} of {stats.get('started', 0)}; p95 {waits[int(0.95 * (len(waits) - 1))]:.2f} s"
    )


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
