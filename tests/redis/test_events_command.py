"""`unstuck events`: the audit of our own queues and of other systems', past and as it happens."""

import json

import pytest
import redis

from support.cli import run_cli
from support.own_queue import OwnQueue
from support.ports import free_port
from support.processes import Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.protocol import keys


@pytest.fixture
def mail(redis_client: redis.Redis) -> OwnQueue:
    return OwnQueue(redis_client)


def note(client: redis.Redis, tag: str, **fields: str) -> None:
    client.xadd(keys.events(tag), dict(fields))  # type: ignore[arg-type]


def test_what_happened_to_a_job_is_told_in_order(mail: OwnQueue, redis_url: str) -> None:
    mail.bury("first")
    document = run_cli("events", "mail", "--redis", redis_url, "--json").json()
    assert (document["backend"], document["queue"]) == ("unstuck", "mail")
    assert [one["event"] for one in document["events"]][-1] == "dead_lettered"
    assert {one["job"] for one in document["events"]} == {"first"}
    times = [one["at_ms"] for one in document["events"]]
    assert times == sorted(times)
    lines = run_cli("events", "mail", "--redis", redis_url).stdout.splitlines()
    assert len(lines) == len(times)
    assert "dead_lettered  job=first" in lines[-1]
    assert len(run_cli("events", "mail", "--redis", redis_url, "--count", "1").stdout.splitlines()) == 1


@pytest.mark.parametrize("args", [["rq/a/b"], ["a/b", "--backend", "rq"]])
def test_the_events_of_another_systems_queue_are_found(
    args: list[str], redis_client: redis.Redis, redis_url: str
) -> None:
    note(redis_client, keys.tag("rq", "a/b"), event="requeued", job="x\x1b[31m", cause="worker_gone", evidence="a=1")
    ran = run_cli("events", *args, "--redis", redis_url)
    assert ran.code == 0
    assert r"requeued       job=x\x1b[31m  cause=worker_gone  evidence=a=1" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_no_events_are_no_error(redis_url: str) -> None:
    ran = run_cli("events", "mail", "--redis", redis_url)
    assert (ran.code, ran.stdout) == (0, "")
    assert "no events of mail are recorded" in ran.stderr


def test_a_stream_of_another_type_is_one_sentence(redis_client: redis.Redis, redis_url: str) -> None:
    redis_client.set(keys.events("mail"), "x")
    ran = run_cli("events", "mail", "--redis", redis_url)
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (3, "", 1)
    assert "WRONGTYPE" in ran.stderr


@pytest.mark.parametrize(
    "command",
    [("events", "mail", "--follow"), ("dead", "list", "mail"), ("cancel", "mail", "x"), ("brake", "release", "mail")],
)
def test_a_redis_that_is_not_there_is_named_without_its_password(command: tuple[str, ...]) -> None:
    port = free_port()
    ran = run_cli(*command, "--redis", f"redis://:hush@127.0.0.1:{port}")
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (3, "", 1)
    assert f"Redis at redis://:***@127.0.0.1:{port}/0 refused the connection" in ran.stderr
    assert "hush" not in ran.stderr


def test_it_follows_through_a_restart_of_redis(redis_server: RedisServer, processes: Processes) -> None:
    client = redis_server.client()
    note(client, "mail", event="past", job="0")
    following = processes.unstuck("events", "mail", "--follow", "--json", "--redis", redis_server.url)

    def said(count: int) -> list[str]:
        lines = following.stdout.splitlines()
        assert len(lines) >= count
        return [json.loads(line)["event"] for line in lines]

    wait_until(lambda: said(1), 20, "it shows the past")
    note(client, "mail", event="now", job="1")
    assert wait_until(lambda: said(2), 20, "it shows what happens") == ["past", "now"]
    redis_server.restart()  # without its data: the stream begins anew
    following.wait_for_output("waiting for it", 30)
    note(redis_server.client(), "mail", event="later", job="2")
    assert wait_until(lambda: said(3), 30, "it goes on")[-1] == "later"
    following.interrupt()
    assert following.wait() == 130
    assert following.stderr.count("waiting for it") == 1
    assert "Traceback" not in following.stderr
