"""The agent's HTTP side while Redis is down, killed, frozen, loading, or wants another password: always an answer in a second."""

import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from support.processes import Process, Processes
from support.programs import redis_server_program
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.protocol import Queue

PATHS = ("/metrics", "/healthz", "/readyz", "/", "/api/v1/status")


class Agent:
    """An agent in a process of its own, and how fast it answers."""

    def __init__(self, processes: Processes, url: str) -> None:
        self.port = free_port()
        self.process = processes.unstuck(
            *("run", "--redis", url, "--http-listen", f"127.0.0.1:{self.port}", "--sweep-interval", "500ms"),
            env={"UNSTUCK_REDIS_TIMEOUT": "2s", "UNSTUCK_LEADER_LEASE": "2s"},
        )
        wait_until(lambda: self.ask("/healthz")[0] == 200, 60, "the agent listens")

    def ask(self, path: str) -> tuple[int, str, float]:
        """Status, text, seconds."""
        begun = time.monotonic()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode(), time.monotonic() - begun
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode(), time.monotonic() - begun
        except OSError:
            return 0, "", time.monotonic() - begun

    def up(self) -> str:
        found = re.search(r'^unstuck_redis_up\{source="default"\} (\d)$', self.ask("/metrics")[1], re.MULTILINE)
        return found[1] if found else ""

    def answers_within_a_second(self) -> None:
        """Each path six times over some seconds; one slow answer of thirty is the machine's."""
        took = []
        for _ in range(6):
            for path in PATHS:
                status, _, seconds = self.ask(path)
                assert status in ({200, 503} if path == "/readyz" else {200}), path
                took.append(seconds)
            time.sleep(0.3)
        assert sorted(took)[-2] <= 1.0


def down(make: Callable[..., RedisServer], processes: Processes, folder: Path) -> Agent:
    return Agent(processes, f"redis://127.0.0.1:{free_port()}/0")


def wrong_password(make: Callable[..., RedisServer], processes: Processes, folder: Path) -> Agent:
    return Agent(processes, f"redis://:wrong@127.0.0.1:{make(password='right').port}/0")


def watched(server: RedisServer, processes: Processes) -> Agent:
    """An agent that has seen a queue."""
    Queue(server.client(), "mail").enqueue({})
    agent = Agent(processes, server.url)
    wait_until(lambda: "unstuck_queue_jobs{" in agent.ask("/metrics")[1], 60, "the agent has seen the queue")
    assert agent.up() == "1"
    return agent


def killed(make: Callable[..., RedisServer], processes: Processes, folder: Path) -> Agent:
    server = make()
    agent = watched(server, processes)
    server.kill()
    return agent


def frozen(make: Callable[..., RedisServer], processes: Processes, folder: Path) -> Agent:
    server = make()
    agent = watched(server, processes)
    server.freeze()
    return agent


def loading(make: Callable[..., RedisServer], processes: Processes, folder: Path) -> Agent:
    """A server that needs minutes for its data, and says so."""
    server = make()
    client: Any = server.client(decode_responses=False)
    for number in range(3000):
        client.set(f"filler:{number}", b"x" * 2000)
    client.config_set("rdbcompression", "no")
    client.save()
    where = server.client()
    saved = Path(where.config_get("dir")["dir"]) / where.config_get("dbfilename")["dbfilename"]
    shutil.copy(saved, folder / "slow.rdb")
    server.kill()
    slow: Process = processes.start(
        redis_server_program(),
        *("--port", str(server.port), "--dir", folder, "--dbfilename", "slow.rdb", "--save", ""),
        *("--key-load-delay", "50000", "--loading-process-events-interval-bytes", "1024"),
    )
    slow.wait_for_output("Loading RDB", timeout=60)
    agent = Agent(processes, server.url)
    wait_until(lambda: "kind=loading" in agent.process.output, 60, "the agent hears that Redis is loading")
    return agent


@pytest.mark.parametrize("state", [down, wrong_password, killed, frozen, loading], ids=lambda state: state.__name__)
def test_it_answers_within_a_second_and_says_that_redis_is_not_there(
    state, make_redis: Callable[..., RedisServer], processes: Processes, tmp_path: Path
) -> None:
    agent = state(make_redis, processes, tmp_path)
    agent.answers_within_a_second()
    wait_until(lambda: agent.up() == "0", 60, "unstuck_redis_up is 0")
    agent.answers_within_a_second()
    wait_until(lambda: "unstuck_queue_jobs{" not in agent.ask("/metrics")[1], 60, "old data is absent, not frozen")
    status, text, _ = agent.ask("/readyz")
    assert status == 503
    assert "Redis is not reached" in text
    assert agent.ask("/healthz")[0] == 200, "no reason to restart the agent"
