"""`unstuck inspect` writes nothing, needs few rights, works on a replica, and says in one sentence what it cannot do."""

import itertools
import signal
from collections.abc import Callable, Iterator

import pytest

from conformance.benches.rq import RQBench
from conformance.benches.unstuck import UnstuckBench
from support.cli import Ran, run_cli
from support.looking import BRISK, about, inspect, run_one
from support.ports import free_port
from support.processes import Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.protocol import Queue

WRITES = "set del hset hdel sadd srem zadd zrem lpush rpush xadd expire pexpire incr publish spublish script|load eval"


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


# ── writes nothing ──


def test_nothing_is_written_not_even_where_jobs_are_stuck(
    redis_server: RedisServer, own: UnstuckBench, rq_bench: RQBench
) -> None:
    run_one(own)[2].kill_tree()
    _, worker, process = run_one(rq_bench)
    process.kill_tree()
    wait_until(lambda: rq_bench.listeners(worker) == 0, why="its connection is gone")
    client = redis_server.client(decode_responses=False)
    before = {key: client.dump(key) for key in client.keys("*")}
    volatile = {key for key in before if client.ttl(key) != -1}
    client.config_resetstat()
    assert len([one for one in inspect(own.url)["findings"] if one["verdict"] == "stuck"]) == 2
    used = set(redis_server.client().info("commandstats"))
    after = {key: client.dump(key) for key in client.keys("*")}
    assert {key: dump for key, dump in before.items() if key in after or key not in volatile} == after
    written = {f"cmdstat_{name}" for name in WRITES.split()} - {"cmdstat_eval"}
    assert not used & written


def test_a_user_that_may_only_read_is_enough(make_redis: Callable[..., RedisServer], processes: Processes) -> None:
    server = make_redis()
    own = UnstuckBench(server, processes)
    job, _, process = run_one(own)
    process.send(signal.SIGKILL)
    for rights in (
        "~* &* +@read +@connection +@scripting +info +time +pubsub|numsub +pubsub|shardnumsub",
        "~* &* +@all -@write",
        "~* &* +@all -@write -@dangerous",
    ):
        own.client.execute_command("ACL", "SETUSER", "bob", "reset", "on", ">pw", *rights.split())
        document = inspect(f"redis://bob:pw@127.0.0.1:{server.port}/0")
        assert about(document, job)["verdict"] == "stuck", rights
        assert document["redis"]["version"] == own.client.info("server")["redis_version"]
        assert document["redis"]["role"] == "master"
    own.client.close()


def test_on_a_replica_connections_are_no_evidence(make_redis: Callable[..., RedisServer], processes: Processes) -> None:
    server = make_redis()
    own, theirs = UnstuckBench(server, processes), RQBench(server, processes)
    run_one(own)
    run_one(theirs)
    replica = make_redis(replicaof=("127.0.0.1", str(server.port)))
    server.wait_for_replicas(1)
    document = inspect(replica.url)
    assert document["redis"]["role"] == "slave"
    assert document["redis"]["gate"] == {"open": False, "reasons": ["readonly"]}
    assert [one for one in document["findings"] if one["verdict"] == "stuck"] == []
    assert [(one["running"], one["workers"]) for one in document["queues"]] == [(1, 1), (1, 1)]
    own.client.close()
    theirs.client.close()


def test_on_a_replica_a_heartbeat_that_is_too_old_is_proof(
    make_redis: Callable[..., RedisServer], processes: Processes
) -> None:
    server = make_redis()
    own = UnstuckBench(server, processes)
    job, _, process = run_one(own)
    process.send(signal.SIGKILL)
    replica = make_redis(replicaof=("127.0.0.1", str(server.port)))
    server.wait_for_replicas(1)
    finding = wait_until(lambda: about(inspect(replica.url, env=BRISK), job), 30, "it is found")
    assert (finding["verdict"], finding["unchanged_seconds"] >= 3) == ("stuck", True)
    own.client.close()


# ── refused ──


def refused(ran: Ran, code: int) -> str:
    assert ran.code == code
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1, ran.stderr
    return ran.stderr


def test_a_redis_that_is_not_there_is_one_sentence(make_redis: Callable[..., RedisServer]) -> None:
    said = refused(run_cli("inspect", "--json", "--redis", f"redis://127.0.0.1:{free_port()}"), 3)
    assert "refused the connection" in said


def test_a_wrong_password_is_one_sentence_without_the_password(make_redis: Callable[..., RedisServer]) -> None:
    server = make_redis(password="right")
    said = refused(run_cli("inspect", "--json", "--redis", f"redis://:hush@127.0.0.1:{server.port}"), 3)
    assert "refused the user name or password" in said
    assert "hush" not in said


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("sentinel://127.0.0.1:{port}/mymaster", "is no Sentinel; use redis:// for a plain Redis"),
        ("rediss://127.0.0.1:{port}", "did not answer the TLS handshake in time; if that port does not speak TLS, use"),
    ],
)
def test_a_form_of_address_that_does_not_fit_a_plain_redis_is_one_sentence(
    address: str, words: str, redis_server: RedisServer
) -> None:
    where = address.format(port=redis_server.port)
    said = refused(run_cli("inspect", "--redis", where, env={"UNSTUCK_REDIS_TIMEOUT": "1s"}), 3)
    assert f"Redis at {where}" in said
    assert words in said


def test_a_user_without_any_rights_is_one_sentence(make_redis: Callable[..., RedisServer]) -> None:
    server = make_redis()
    server.client().execute_command("ACL", "SETUSER", "bob", "reset", "on", ">pw", "+ping")
    said = refused(run_cli("inspect", "--redis", f"redis://bob:pw@127.0.0.1:{server.port}"), 3)
    assert "does not give this user the right to" in said


def test_a_user_with_rights_to_our_keys_alone_sees_ours_and_is_told(make_redis: Callable[..., RedisServer]) -> None:
    server = make_redis()
    client = server.client()
    Queue(client, "mail").enqueue({})
    rights = "~unstuck:* &unstuck:* +@all -@write"
    client.execute_command("ACL", "SETUSER", "bob", "reset", "on", ">pw", *rights.split())
    document = inspect(f"redis://bob:pw@127.0.0.1:{server.port}")
    assert [one["backend"] for one in document["queues"]] == ["unstuck"]
    (finding,) = [one for one in document["findings"] if one["reason"] == "unreadable"]
    assert (finding["backend"], finding["queue"]) == ("rq", "")


@pytest.mark.parametrize("window", ["5", "soon", "-1s", "2h"])
def test_a_window_without_sense_is_wrong_usage(window: str) -> None:
    assert "--window" in refused(run_cli("inspect", f"--window={window}"), 2)
