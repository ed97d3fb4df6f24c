"""`unstuck inspect` on real servers: what it finds, and what two looks prove."""

import itertools
import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from conformance.benches.rq import RQBench
from conformance.benches.rq_states import lease_of
from conformance.benches.unstuck import UnstuckBench
from support.cli import run_cli
from support.looking import BRISK, about, inspect, row, run_one
from support.own_queue import OwnQueue
from support.processes import Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.protocol import Queue, keys


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


# ── what it finds ──


def test_an_empty_redis_gets_an_honest_answer(redis_url: str) -> None:
    document = inspect(redis_url)
    assert (document["queues"], document["findings"]) == ([], [])
    assert document["redis"]["gate"] == {"open": True, "reasons": []}
    ran = run_cli("inspect", "--redis", redis_url, "--fail-on", "any")
    assert ran.code == 0
    assert ran.stdout.splitlines()[0] == "No queues known to unstuck found"
    assert "Looked for: unstuck (the set unstuck:queues), rq (the set rq:queues)." in ran.stdout
    assert "This database is empty." in ran.stdout
    assert ran.stderr == ""


def test_other_peoples_keys_are_left_alone_and_counted(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    redis_client.rpush("celery", *range(100_000))
    redis_client.set("big", "x" * 20_000_000)
    redis_client.hset("rq:job:x", mapping={"a": "b"})
    redis_client.execute_command("SELECT", 3)
    redis_client.set("elsewhere", 1)
    redis_client.execute_command("SELECT", 0)
    redis_client.config_resetstat()
    ran = run_cli("inspect", "--redis", redis_server.url)
    assert ran.code == 0
    assert "No queues known to unstuck found" in ran.stdout
    assert "This database holds 3 other keys." in ran.stdout
    assert "Other databases of this server hold keys: 3 (1)" in ran.stdout
    assert not {"cmdstat_keys", "cmdstat_scan"} & set(redis_client.info("commandstats"))


def test_our_own_keys_are_not_counted_among_the_others(redis_client: redis.Redis, redis_url: str) -> None:
    redis_client.hset(keys.LEADER, "owner", "gone")
    assert "This database holds nothing else." in run_cli("inspect", "--redis", redis_url).stdout
    redis_client.set(keys.QUEUES, "somebody else's")
    redis_client.set("x", 1)
    said = run_cli("inspect", "--redis", redis_url).stdout
    assert "This database holds 1 other key." in said


@pytest.mark.parametrize("look", [("inspect",), ("dead", "list", "mail"), ("enqueue", "mail", "1")])
def test_our_list_of_queues_is_named_where_it_is_of_another_type(
    look: tuple[str, ...], redis_client: redis.Redis, redis_url: str
) -> None:
    redis_client.set(keys.QUEUES, "somebody else's")
    ran = run_cli(*look, "--redis", redis_url, *(["--json"] if look == ("inspect",) else []))
    said = ran.json()["findings"][0]["detail"] if look == ("inspect",) else ran.stderr
    assert "unstuck:queues holds a string where a set belongs" in said
    assert "RENAME unstuck:queues unstuck:queues:aside" in said


@pytest.mark.parametrize("name", ["unstuck:queues", "rq:queues"])
def test_a_registry_of_another_type_does_not_hide_the_other_system(
    name: str, redis_client: Any, redis_url: str
) -> None:
    Queue(redis_client, "mail").enqueue({})
    redis_client.sadd("rq:queues", "rq:queue:mail")
    redis_client.delete(name)
    redis_client.set(name, "somebody else's")
    document = inspect(redis_url)
    left = {"unstuck": "rq", "rq": "unstuck"}[name.partition(":")[0]]
    assert [one["backend"] for one in document["queues"]] == [left]
    ran = run_cli("inspect", "--redis", redis_url)
    assert "Traceback" not in ran.stderr


def test_the_queues_of_both_systems_are_found_and_counted(own: UnstuckBench, rq_bench: RQBench) -> None:
    own.enqueue(count=3, age=40.0)
    own.schedule(600.0)
    rq_bench.enqueue(count=2, age=50.0)
    rq_bench.start_worker(queues=["other"])
    document = inspect(own.url)
    assert [(one["backend"], one["queue"]) for one in document["queues"]] == [("rq", "mail"), ("unstuck", "mail")]
    ours, theirs = row(document, "unstuck"), row(document, "rq")
    assert (ours["waiting"], ours["scheduled"], ours["running"], ours["workers"]) == (3, 1, 0, 0)
    assert 40 <= ours["oldest_waiting_seconds"] < 75
    assert (theirs["waiting"], theirs["running"]) == (2, 0)
    assert 50 <= theirs["oldest_waiting_seconds"] < 85
    assert {one["mode"] for one in document["queues"]} == {"observe"}
    assert {(one["backend"], one["reason"], one["job"]) for one in document["findings"]} == {
        ("unstuck", "no_worker", None),
        ("rq", "no_worker", None),
    }


def test_a_choice_of_queues_is_kept_to(own: UnstuckBench, rq_bench: RQBench) -> None:
    own.enqueue()
    own.enqueue(queue="other")
    rq_bench.enqueue()

    def chosen(*options: str) -> list[str]:
        return [f"{one['backend']}/{one['queue']}" for one in inspect(own.url, *options)["queues"]]

    assert chosen("--backend", "rq") == ["rq/mail"]
    assert chosen("--queue", "mail") == ["rq/mail", "unstuck/mail"]
    assert chosen("--queue", "unstuck/o*") == ["unstuck/other"]
    assert chosen("--backend", "unstuck", "--queue", "nothing") == ["unstuck/nothing"]
    ran = run_cli("inspect", "--redis", own.url, "--queue", "mial", "--json")
    assert (ran.code, ran.json()["queues"]) == (0, [])
    assert "there is no queue 'mial' now; known: rq/mail, unstuck/mail, unstuck/other\n" in ran.stderr
    ran = run_cli("inspect", "--redis", own.url, "--queue", "o*r", "--queue", "rq/mial*")
    assert (
        ran.stderr == "unstuck: note: there is no queue 'rq/mial*' now; known: rq/mail, unstuck/mail, unstuck/other\n"
    )
    ran = run_cli("inspect", "--redis", own.url, "--backend", "celry")
    assert ran.code == 2
    assert "did you mean `celery`?" in ran.stderr


@pytest.mark.parametrize("command", ["inspect", "sweep"])
def test_a_queue_that_is_not_there_is_told_with_the_nearest_of_the_known(own: UnstuckBench, command: str) -> None:
    for name in ("mail", "mail-high", "mails", "email", "orders", "a", "b"):
        own.enqueue(queue=name)
    ran = run_cli(command, "--redis", own.url, "--queue", "mailz")
    assert ran.code == 0
    assert ran.stdout.splitlines()[0] == "No queue of that name was found"
    (line,) = ran.stderr.splitlines()
    said, _, names = line.partition("; known: ")
    assert said == "unstuck: note: there is no queue 'mailz' now"
    assert names.startswith("unstuck/mail, unstuck/email, unstuck/mails, unstuck/mail-high, unstuck/")
    assert names.endswith(" and 2 more")


@pytest.mark.parametrize("command", ["inspect", "sweep"])
def test_where_no_queue_is_at_all_a_chosen_one_changes_nothing_about_that(redis_url: str, command: str) -> None:
    ran = run_cli(command, "--redis", redis_url, "--queue", "mail")
    assert ran.stdout.splitlines()[0] == "No queues known to unstuck found"
    assert ran.stderr == "unstuck: note: there is no queue 'mail' now\n"


@pytest.mark.parametrize("command", ["inspect", "sweep"])
def test_an_unknown_queue_system_before_a_queue_is_refused(redis_url: str, command: str) -> None:
    ran = run_cli(command, "--redis", redis_url, "--queue", "foo/x")
    assert (ran.code, ran.stdout) == (2, "")
    assert "--queue: there is no queue system 'foo'; known: unstuck, custom, rq, " in ran.stderr
    assert "there is no queue system 'celry', did you mean `celery`?" in (
        run_cli(command, "--redis", redis_url, "--queue", "celry/x").stderr
    )
    for taken in (("--backend", "rq", "--queue", "a/b"), ("--queue", "rq/a/b"), ("--queue", "a*/b")):
        assert run_cli(command, "--redis", redis_url, *taken).code == 0


def test_the_published_interval_is_shown(own: UnstuckBench) -> None:
    own.enqueue()
    told = {"interval_ms": 850, "base_ms": 200, "score": 1, "score_raw": 2, "reason": "backlog", "seq": 1, "epoch": 1}
    own.client.hset(keys.pacing("mail"), mapping={**told, "computed_at_ms": 1})
    ours = row(inspect(own.url), "unstuck")
    assert (ours["interval_seconds"], ours["interval_reason"]) == (0.85, "backlog")
    assert "850 ms" in run_cli("inspect", "--redis", own.url).stdout


# ── what it proves ──


def test_a_running_job_is_not_accused(own: UnstuckBench, rq_bench: RQBench) -> None:
    run_one(own)
    run_one(rq_bench)
    document = inspect(own.url, "--window", "2500ms")
    assert document["findings"] == []
    assert [(one["running"], one["workers"]) for one in document["queues"]] == [(1, 1), (1, 1)]
    first = run_cli("inspect", "--redis", own.url).stdout.splitlines()[0]
    assert first == "Nothing is stuck: 2 queues, 0 waiting, 2 running"


def test_an_rq_worker_killed_with_its_horse_leaves_a_stuck_job(rq_bench: RQBench) -> None:
    job, worker, process = run_one(rq_bench)
    process.kill_tree()
    wait_until(lambda: rq_bench.listeners(worker) == 0, why="its connection is gone")
    finding = about(inspect(rq_bench.url), job)
    assert (finding["verdict"], finding["reason"], finding["action"]) == ("stuck", "worker_gone", "none")
    assert finding["worker"] == worker
    assert finding["unchanged_seconds"] >= 2
    assert finding["evidence"]["listeners"] == 0
    assert finding["evidence"]["client_name"] == "absent"
    assert "nobody listens on its channel" in finding["detail"]
    assert finding["would"] == "be put back into its queue (rescue 1 of 3)"
    assert row(inspect(rq_bench.url), "rq")["stuck"] == 1


def test_an_rq_worker_without_record_and_with_its_lease_over_is_dead(rq_bench: RQBench) -> None:
    job, worker, process = run_one(rq_bench)
    process.kill_tree()
    wait_until(lambda: rq_bench.listeners(worker) == 0, why="its connection is gone")
    rq_bench.age_lease(lease_of(rq_bench, job), 600.0)
    rq_bench.client.delete(f"rq:worker:{worker}")
    finding = about(inspect(rq_bench.url), job)
    assert (finding["verdict"], finding["reason"]) == ("stuck", "worker_dead")
    assert "is gone" in finding["detail"]


def test_a_killed_worker_of_ours_is_seen_by_its_connection(own: UnstuckBench) -> None:
    job, worker, process = run_one(own)
    process.send(signal.SIGKILL)
    finding = about(inspect(own.url), job)
    assert (finding["verdict"], finding["reason"], finding["worker"]) == ("stuck", "worker_gone", worker)
    assert "connection has been gone" in finding["detail"]
    assert finding["would"] == "be put back into its queue (rescue 1 of 3)"


def test_a_worker_of_ours_that_comes_back_between_the_looks_is_not_accused(own: UnstuckBench) -> None:
    job, worker, _ = run_one(own)
    looking = own.processes.unstuck("inspect", "--redis", own.url, "--json", "--window", "6s")
    wait_until(lambda: any(one["name"] == "unstuck:inspect" for one in own.client.client_list()), why="it looks")
    own.client.client_kill_filter(_type="pubsub")
    assert looking.wait() == 0, looking.tail()
    assert [one for one in json.loads(looking.stdout)["findings"] if one["job"] == job] == []
    assert own.client.hget(keys.worker("mail", worker), "control") == "1"


def test_a_frozen_worker_of_ours_is_stuck_once_its_heartbeat_is_too_old(own: UnstuckBench) -> None:
    job, _, process = run_one(own)
    process.freeze()

    def silent() -> dict[str, Any]:
        return about(inspect(own.url, env=BRISK), job)

    finding = wait_until(silent, 20, "it is found")
    assert finding["verdict"] == "stuck"
    assert finding["reason"] in {"lock_without_heartbeat", "lock_expired"}  # its lock lives no longer than 3 s either
    assert finding["unchanged_seconds"] >= 3
    assert finding["evidence"]["heartbeat_at_ms"] > 0
    assert finding["evidence"]["threshold_seconds"] == 3


def test_the_rescues_so_far_decide_what_would_be_done(own: UnstuckBench, rq_bench: RQBench) -> None:
    ours, _, first = run_one(own)
    theirs, worker, second = run_one(rq_bench)
    first.send(signal.SIGKILL)
    second.kill_tree()
    wait_until(lambda: rq_bench.listeners(worker) == 0, why="its connection is gone")
    own.client.hset(keys.job("mail", ours), "rescues", 3)
    own.client.hset(keys.rescues(keys.tag("rq", "mail")), theirs, 3)
    findings = inspect(own.url)["findings"]
    found = {one["backend"]: one["would"] for one in findings if one["verdict"] == "stuck"}
    told = "be dead-lettered (rescued 3 times, max_rescues is 3)"
    assert found == {"unstuck": told, "rq": told}


def test_what_only_longer_watching_could_tell_is_suspect_and_says_so(rq_bench: RQBench) -> None:
    job, worker, process = run_one(rq_bench)
    process.kill_tree()
    wait_until(lambda: rq_bench.listeners(worker) == 0, why="its connection is gone")
    rq_bench.client.hset(f"rq:worker:{worker}", "state", "started")
    finding = about(inspect(rq_bench.url), job)
    assert finding["verdict"] == "suspect"
    assert "only watching it for 90 s could tell (unstuck sweep)" in finding["detail"]
    assert finding["would"] == ""
    stdout = run_cli("inspect", "--redis", rq_bench.url).stdout
    assert stdout.splitlines()[0] == "Nothing is proven stuck: 1 queue, 1 running; 1 suspect, 1 other finding"


def test_a_full_redis_makes_silence_no_evidence(make_redis: Callable[..., RedisServer], processes: Processes) -> None:
    server = make_redis()
    own = UnstuckBench(server, processes)
    job, _, process = run_one(own)
    process.send(signal.SIGKILL)
    own.client.config_set("maxmemory", 1)
    document = inspect(server.url)
    finding = about(document, job)
    assert document["redis"]["gate"] == {"open": False, "reasons": ["oom"]}
    assert finding["verdict"] == "inconclusive"
    assert finding["detail"].endswith("; but Redis is out of memory and refuses writes")
    own.client.close()


def test_findings_are_an_error_only_where_asked_for(own: UnstuckBench) -> None:
    _, _, process = run_one(own)
    process.send(signal.SIGKILL)
    own.enqueue()
    codes = {
        level: run_cli("inspect", "--redis", own.url, *(["--fail-on", level] if level else [])).code
        for level in ("", "stuck", "suspect", "any")
    }
    assert codes == {"": 0, "stuck": 1, "suspect": 1, "any": 1}
    own.client.delete(*own.client.keys("unstuck:{mail}:*"))
    own.enqueue()
    codes = {
        level: run_cli("inspect", "--redis", own.url, "--fail-on", level).code for level in ("stuck", "suspect", "any")
    }
    assert codes == {"stuck": 0, "suspect": 0, "any": 1}


def test_a_queue_that_cannot_be_read_does_not_hide_the_others(own: UnstuckBench) -> None:
    own.enqueue()
    key = own.break_a_key("broken")
    document = inspect(own.url)
    assert row(document, "unstuck")["waiting"] == 1
    assert key in row(document, "unstuck", "broken")["error"]
    (finding,) = [one for one in document["findings"] if one["queue"] == "broken"]
    assert (finding["reason"], finding["verdict"], finding["job"]) == ("unreadable", "inconclusive", None)


def test_every_key_of_a_queue_that_has_another_type_is_a_finding(redis_client: redis.Redis, redis_url: str) -> None:
    queues = {part: OwnQueue(redis_client, part) for part in keys.STRUCTURES}
    for part, queue in queues.items():
        queue.put("first")
        queue.damage(part)
    findings = [one for one in inspect(redis_url)["findings"] if one["reason"] in ("unreadable", "wrong_type")]
    named = {one["queue"]: one["detail"] for one in findings}
    assert (set(named), len(findings)) == (set(queues), len(queues))
    for part, queue in queues.items():
        key = queue.key(part)
        assert f"{key} holds a" in named[part]
        assert f"RENAME {key} {key}:aside" in named[part]
