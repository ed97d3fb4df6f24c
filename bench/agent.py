"""The agent itself: how soon it answers over HTTP, how much it holds and burns when idle, what it asks of Redis as leader
and as standby, and that a scrape asks nothing.

python bench/agent.py [--starts 7] [--idle 30] [--leases 10]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from stand import Server, cpu_seconds, free_port, machine, overheard, resident_mb, running, wait_for
from sweep import fill

LEASE_SECONDS = 10.0  # leader.lease as it is by default
BYTECODE = tempfile.TemporaryDirectory(prefix="unstuck-bench-")  # as an installed package has it


def command(server: Server, port: int) -> list[str]:
    program = str(Path(sys.executable).parent / "unstuck")
    flags = ["--redis", server.url, "--http-listen", f"127.0.0.1:{port}", "--log-level", "warning"]
    return [program, "run", *flags, "--stuck-after", "1h"]  # nobody beats for the leases of the bench


def environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return env | {"PYTHONPYCACHEPREFIX": BYTECODE.name}


def status(port: int, path: str) -> int:
    """The status of one request, 0 while nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except OSError:
        return 0
    finally:
        connection.close()


@contextlib.contextmanager
def agent(server: Server) -> Iterator[tuple[subprocess.Popen[bytes], int, float, float]]:
    """A running agent: process, port, and the seconds of wall and CPU from its start to its first answer to /readyz."""
    port = free_port()
    begun = time.perf_counter()
    with running(command(server, port), env=environment()) as process:
        wait_for(lambda: status(port, "/readyz"), "an answer of the agent", pause=0.005)
        wall = time.perf_counter() - begun
        yield process, port, wall, cpu_seconds(process.pid)


def interpreter() -> tuple[float, float]:
    """Seconds of wall and CPU that Python needs for nothing: the part of a start that is not ours."""
    walls, cpus = [], []
    for _ in range(5):
        begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "pass"], check=True, env=environment())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls.append(time.perf_counter() - begun)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(walls), statistics.median(cpus)


def starts(server: Server, number: int) -> None:
    with agent(server):  # its bytecode is written now
        pass
    walls, cpus = [], []
    for _ in range(number):
        with agent(server) as (_, _, wall, cpu):
            walls.append(wall)
            cpus.append(cpu)
    nothing = interpreter()
    print(
        f"start to first answer over HTTP: median {statistics.median(walls):.2f} s (best {min(walls):.2f} s), of it CPU "
        f"{statistics.median(cpus):.2f} s; the interpreter alone {nothing[0]:.3f} s, CPU {nothing[1]:.3f} s"
    )


def per_minute(heard: list[tuple[str, str]], seconds: float) -> str:
    counts = Counter(name for _, name in heard)
    return ", ".join(f"{name} {n / seconds * 60:.0f}" for name, n in counts.most_common())


def idle(server: Server, pid: int, seconds: float) -> list[tuple[str, str]]:
    """Watch a leader that has nothing to do; what it sent."""
    burnt, before = cpu_seconds(pid), server.moment()
    with overheard(server) as heard:
        time.sleep(seconds)
    spent = server.moment().since(before)
    heard = [one for one in heard if one[1] not in ("INFO", "ECHO") or one[0] != heard[-1][0]]
    print(
        f"leader, idle: {resident_mb(pid):.1f} MB resident, {(cpu_seconds(pid) - burnt) / spent.wall:.1%} CPU, "
        f"server {spent.cpu / spent.wall:.2%} CPU"
    )
    print(f"  sends per minute: {per_minute(heard, spent.wall)}")
    return heard


def scrapes(server: Server, pid: int, port: int, seconds: float, quiet: int, number: int = 50) -> None:
    begun = time.perf_counter()
    with overheard(server) as heard:
        for _ in range(number):
            if status(port, "/metrics") != 200:
                raise SystemExit("bench: /metrics did not answer 200")
        each = (time.perf_counter() - begun) / number * 1000
        time.sleep(max(0.0, seconds - (time.perf_counter() - begun)))
    print(
        f"{number} scrapes, {each:.1f} ms each: {len(heard)} commands sent in {seconds:g} s, {quiet} in as long without a "
        f"scrape; {resident_mb(pid):.1f} MB resident then"
    )


def standby(server: Server, seconds: float) -> None:
    leaders = {one["addr"] for one in server.client.client_list()}
    with agent(server) as (process, _, _, _):
        time.sleep(LEASE_SECONDS)  # its first look at the lease, and all it does once
        burnt = cpu_seconds(process.pid)
        with overheard(server) as heard:
            time.sleep(seconds)
        theirs = [one for one in heard if one[0] not in leaders and one[1] not in ("MONITOR", "ECHO")]
        print(
            f"standby: {resident_mb(process.pid):.1f} MB resident, {(cpu_seconds(process.pid) - burnt) / seconds:.1%} CPU; "
            f"{len(theirs) / seconds * LEASE_SECONDS:.2f} commands per lease interval of {LEASE_SECONDS:g} s "
            f"({per_minute(theirs, seconds)} per minute)"
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--starts", type=int, default=7)
    options.add_argument("--idle", type=float, default=30.0, help="seconds to watch it idle")
    options.add_argument("--leases", type=int, default=10)
    args = options.parse_args()
    with Server() as server:
        print(f"# {machine(server.client)}; one queue of {args.leases} healthy leases")
        starts(server, args.starts)
        fill(server.client, args.leases, 0)
        with agent(server) as (leader, port, _, _):
            wait_for(lambda: status(port, "/readyz") == 200, "readiness")
            time.sleep(5)
            heard = idle(server, leader.pid, args.idle)
            scrapes(server, leader.pid, port, args.idle, len(heard))
            standby(server, max(args.idle, 2 * LEASE_SECONDS))


if __name__ == "__main__":
    main()
