"""`unstuck demo` as a newcomer runs it: on an embedded server, on one that is given, too short, and interrupted."""

import os
import shutil
import signal
from pathlib import Path

import redis

from support.cli import run_cli
from support.processes import Processes
from support.redis_server import RedisServer


def path_without_servers() -> str:
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(
        folder
        for folder in folders
        if not any(shutil.which(name, path=folder) for name in ("redis-server", "valkey-server"))
    )


def test_without_a_server_on_the_machine_the_demo_uses_the_embedded_one_and_every_job_finishes_once() -> None:
    told = run_cli("demo", "--seconds", "120", env={"PATH": path_without_servers()}, timeout=180)
    assert told.code == 0, told.stdout + told.stderr
    for word in ("kill -9", "suspected", "confirmed", "requeued", "running again at worker", "exactly once"):
        assert word in told.stdout
    assert told.left_behind == ()


def test_on_a_given_redis_the_demo_leaves_nothing_behind(
    redis_server: RedisServer, redis_client: "redis.Redis[str]"
) -> None:
    redis_client.set("somebody:else", "1")
    told = run_cli("demo", "--seconds", "120", "--redis", redis_server.url, timeout=180)
    assert told.code == 0, told.stdout + told.stderr
    left = [key for key in redis_client.scan_iter() if key not in ("somebody:else", "unstuck:leader", "unstuck:queues")]
    assert left == []
    assert redis_client.smembers("unstuck:queues") == set()


def test_a_demo_that_has_too_little_time_says_what_it_waited_for_and_fails() -> None:
    told = run_cli("demo", "--seconds", "2", timeout=60)
    assert told.code == 1
    assert "still waiting for" in told.stdout
    assert told.left_behind == ()


def test_ctrl_c_ends_the_demo_and_everything_it_started(processes: Processes, tmp_path: Path) -> None:
    demo = processes.unstuck("demo", "--seconds", "120", env={"TMPDIR": str(tmp_path)})
    demo.wait_for_output("Load: ", timeout=60)
    os.kill(demo.pid, signal.SIGINT)
    assert demo.wait(30) == 130
    assert demo.family() == []
    assert list(tmp_path.glob("unstuck-demo-*")) == []


def test_a_given_redis_that_refuses_is_one_sentence_and_exit_status_3(redis_server: RedisServer) -> None:
    redis_server.stop()
    told = run_cli("demo", "--redis", redis_server.url, timeout=60)
    assert told.code == 3
    assert told.stderr.startswith("unstuck: ")
    assert told.stderr.count("\n") == 1
