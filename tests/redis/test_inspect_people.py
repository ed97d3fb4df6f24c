"""`unstuck inspect` for people: what they read first, what they do next, and hostile names on their terminal."""

import itertools
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest
import redis

from conformance.benches.rq import RQBench
from conformance.benches.unstuck import UnstuckBench
from support.cli import run_cli
from support.looking import inspect, row, run_one
from support.processes import Processes, child_env
from support.redis_server import RedisServer
from support.waiting import wait_until

HOSTILE = "[red]a\x1b[31m\x07\u202e\x9b2J\n{b}"


@pytest.fixture
def own(redis_server: RedisServer, processes: Processes) -> Iterator[UnstuckBench]:
    bench = UnstuckBench(redis_server, processes)
    yield bench
    bench.client.close()


@pytest.fixture
def rq_bench(redis_server: RedisServer, processes: Processes) -> Iterator[RQBench]:
    bench = RQBench(redis_server, processes)
    bench._number = itertools.count(1001)  # both benches count what ran by the job's name alone
    yield bench
    bench.client.close()


def test_people_are_told_what_is_stuck_why_and_what_to_do(own: UnstuckBench, rq_bench: RQBench) -> None:
    own.enqueue(queue="other")
    job, worker, process = run_one(rq_bench)
    process.kill_tree()
    wait_until(lambda: rq_bench.listeners(worker) == 0, why="its connection is gone")
    lines = run_cli("inspect", "--redis", own.url).stdout.splitlines()
    assert lines[0] == "1 stuck job in 1 of 2 queues, 2 other findings"
    assert lines[1].startswith("Redis ")
    assert f"master at {own.url}" in lines[1]
    table = [line for line in lines if line.startswith(("backend", "rq ", "unstuck "))]
    head = table[0]
    assert head.split() == [
        "backend",
        "queue",
        "waiting",
        "oldest",
        "running",
        "workers",
        "stuck",
        "dead",
        "mode",
        "interval",
    ]
    for name in ("waiting", "running", "workers", "stuck", "dead"):
        assert all(line[head.index(name) + len(name) - 1].isdigit() for line in table[1:]), name
    text = "\n".join(lines)
    assert f"stuck  rq/mail  job {job}, worker {worker}" in text
    assert "  why    worker_gone: " in text
    assert "  since  nothing of it has changed for " in text
    assert "  would  be put back into its queue (rescue 1 of 3)" in text
    assert '    - {backend: rq, queue: "mail", mode: reclaim}  # RQ cannot refuse a late attempt' in text
    assert "or once, now: unstuck sweep --mode reclaim --queue rq/mail" in text


def test_hostile_names_are_shown_as_text(redis_client: redis.Redis, redis_url: str) -> None:
    redis_client.sadd("rq:queues", f"rq:queue:{HOSTILE}", f"rq:queue:{'x' * 300}")
    redis_client.lpush(f"rq:queue:{HOSTILE}", HOSTILE)
    document = inspect(redis_url)
    assert row(document, "rq", HOSTILE)["waiting"] == 1
    ran = run_cli("inspect", "--redis", redis_url, env={"COLUMNS": "100"})
    assert ran.code == 0
    assert not set("\x1b\x07\u202e\x9b") & set(ran.stdout + ran.stderr)
    assert r"[red]a\x1b[31m\x07\u202e\x9b2J\n{b}" in ran.stdout
    assert "…" in ran.stdout
    assert max(len(line) for line in ran.stdout.splitlines() if line.startswith(("rq", "backend"))) <= 100
    raw = run_cli("inspect", "--redis", redis_url, "--json").stdout
    assert raw.isascii()


def on_a_terminal(*args: str) -> str:
    """What a command shows on a terminal, its progress included."""
    ours, theirs = pty.openpty()
    env = {**child_env({"NO_COLOR": None}), "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, "-m", "unstuck", *args], stdout=theirs, stderr=theirs, stdin=theirs, env=env
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 4096):
                said += part
        except OSError:
            pass  # the other end is closed
        assert process.wait() == 0
    os.close(ours)
    return said.decode()


def test_colours_and_progress_are_for_a_terminal_alone(own: UnstuckBench) -> None:
    run_one(own)[2].kill_tree()
    said = on_a_terminal("inspect", "--redis", own.url)
    assert "looked once; looking again in" in said
    assert "\x1b[1;31m1 stuck job in 1 of 1 queue" in said
    piped = run_cli("inspect", "--redis", own.url, env={"NO_COLOR": None, "TERM": "xterm-256color"})
    assert "\x1b" not in piped.stdout
    assert piped.stderr == ""
