"""`unstuck sweep` on real servers with workers that are really killed: a dry run that writes nothing, and a pass that moves."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.benches.rq import RQBench
from conformance.benches.unstuck import UnstuckBench
from support.cli import run_cli
from support.json_schema import faults
from support.looking import SCHEMA, about, run_one
from support.ports import free_port
from support.processes import Process, Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.protocol import keys

BRISK = {
    "UNSTUCK_STUCK_AFTER": "3s",
    "UNSTUCK_HEARTBEAT_INTERVAL": "1s",
    "UNSTUCK_ABORT_AFTER": "1500ms",
    "UNSTUCK_LOCK_TTL": "3s",
    "UNSTUCK_CONFIRM_AFTER": "1s",
    "UNSTUCK_SWEEP_INTERVAL": "500ms",
}


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


def sweep(url: str, *options: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The document, checked against its schema."""
    ran = run_cli("sweep", "--redis", url, "--json", *options, env={**BRISK, **(env or {})}, timeout=150)
    assert ran.code == 0, ran.stderr
    document: dict[str, Any] = ran.json()
    assert list(faults(SCHEMA, document)) == []
    return document


def kill(bench: Any) -> tuple[str, str]:
    """A job whose worker was killed with all that it had started: (job, worker)."""
    job, worker, process = run_one(bench)
    process.kill_tree()
    return job, worker


def test_a_redis_with_nothing_in_flight_is_done_at_once(own: UnstuckBench) -> None:
    own.enqueue()
    ran = run_cli("sweep", "--redis", own.url, timeout=25)  # a window would be 30 s
    assert ran.code == 0
    assert ran.stdout.splitlines()[0] == "Nothing is stuck: 1 queue, 1 waiting, 0 running; 1 other finding"
    assert "Mode observe: nothing was written." in ran.stdout
    assert ran.stderr == ""


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(redis_server: RedisServer, own: UnstuckBench) -> None:
    job, worker = kill(own)
    client = redis_server.client(decode_responses=False)
    before = {key: client.dump(key) for key in client.keys("*")}
    volatile = {key for key in before if client.ttl(key) != -1}
    client.config_resetstat()
    document = sweep(own.url)
    used = {name.removeprefix("cmdstat_") for name in redis_server.client().info("commandstats")}
    after = {key: client.dump(key) for key in client.keys("*")}
    assert {key: dump for key, dump in before.items() if key in after or key not in volatile} == after
    assert not used & {"set", "hset", "hdel", "sadd", "srem", "zadd", "zrem", "lpush", "rpush", "xadd", "unlink", "del"}
    finding = about(document, job)
    assert document["redis"]["gate"] == {"open": True, "reasons": []}
    assert (finding["verdict"], finding["worker"], finding["action"]) == ("stuck", worker, "none")
    assert finding["reason"] in {"worker_gone", "lock_expired", "lock_without_heartbeat"}
    assert finding["would"] == "be put back into its queue (rescue 1 of 3)"
    assert own.places(job) == ["active"]


def test_the_job_of_a_dead_worker_is_put_back_once_and_runs_again(own: UnstuckBench) -> None:
    job, worker = kill(own)
    document = sweep(own.url, "--mode", "reclaim")
    finding = about(document, job)
    assert (finding["verdict"], finding["worker"], finding["action"]) == ("stuck", worker, "requeued")
    assert finding["detail"].endswith("; put back (rescue 1)")
    assert finding["would"] == ""
    assert (document["queues"][0]["waiting"], document["queues"][0]["running"]) == (1, 0)
    assert own.places(job) == ["pending"]
    assert own.client.hget(keys.job("mail", job), "rescues") == "1"
    assert not own.client.hget(keys.LEADER, "owner") or not sweep(own.url, "--mode", "reclaim")["queues"][0]["stuck"]
    own.start_worker()
    own.wait_until_running(job)
    own.let_end(job)
    own.wait_until_done(job)
    assert own.counts(job) == (2, 1)


def test_people_read_what_was_done_first(own: UnstuckBench) -> None:
    kill(own)
    ran = run_cli("sweep", "--redis", own.url, "--mode", "reclaim", "--fail-on", "stuck", env=BRISK)
    assert ran.code == 1
    assert ran.stdout.splitlines()[0] == "Moved 1 stuck job (1 requeued), nothing else is stuck; 1 other finding"
    assert "  done   requeued" in ran.stdout


def test_past_max_rescues_the_job_is_dead_lettered(own: UnstuckBench) -> None:
    job, _ = kill(own)
    document = sweep(own.url, "--mode", "reclaim", env={"UNSTUCK_MAX_RESCUES": "0"})
    assert about(document, job)["action"] == "dead_lettered"
    assert own.places(job) == ["dead"]


def test_a_healthy_job_is_left_alone(own: UnstuckBench, rq_bench: RQBench) -> None:
    ours, theirs = run_one(own)[0], run_one(rq_bench)[0]
    document = sweep(own.url, "--mode", "reclaim", "--queue", "unstuck/*", "--queue", "rq/*")
    assert document["findings"] == []
    for bench, job in ((own, ours), (rq_bench, theirs)):
        assert bench.places(job) == ["active"]
        bench.let_end(job)
        bench.wait_until_done(job)
        assert bench.counts(job) == (1, 1)


def kill_while_a_sweep_watches(bench: RQBench, *options: str) -> tuple[str, Process]:
    """RQ tells nobody that a worker was connected once: a pass has to see the connection go."""
    job, _, process = run_one(bench)
    env = {**BRISK, "UNSTUCK_STUCK_AFTER": "8s"}
    bench.client.config_resetstat()
    pass_ = bench.processes.unstuck("sweep", "--redis", bench.url, "--json", "--mode", "reclaim", *options, env=env)
    wait_until(lambda: "cmdstat_pubsub|numsub" in bench.client.info("commandstats"), 20, "the first look was made")
    process.kill_tree()
    assert pass_.wait(120) == 0, pass_.tail()
    return job, pass_


def test_a_named_queue_of_another_system_is_reclaimed(rq_bench: RQBench) -> None:
    job, pass_ = kill_while_a_sweep_watches(rq_bench, "--queue", "rq/mail")
    document = json.loads(pass_.stdout)
    assert (about(document, job)["reason"], about(document, job)["action"]) == ("worker_gone", "requeued")
    assert document["queues"][0]["mode"] == "reclaim"
    assert rq_bench.places(job) == ["pending"]
    rq_bench.start_worker()
    rq_bench.wait_until_running(job)
    rq_bench.let_end(job)
    rq_bench.wait_until_done(job)


def test_a_queue_of_another_system_that_nobody_names_is_only_observed(rq_bench: RQBench) -> None:
    job, pass_ = kill_while_a_sweep_watches(rq_bench)
    document = json.loads(pass_.stdout)
    finding = about(document, job)
    assert (finding["verdict"], finding["action"]) == ("stuck", "none")
    assert finding["would"] == "be put back into its queue (rescue 1 of 3)"
    assert document["queues"][0]["mode"] == "observe"
    assert rq_bench.places(job) == ["active"]


def test_observe_on_the_command_line_beats_an_entry_of_the_file(own: UnstuckBench, tmp_path: Path) -> None:
    job, _ = kill(own)
    file = tmp_path / "unstuck.yaml"
    file.write_text("queues:\n  - {backend: unstuck, queue: mail, mode: reclaim}\n")
    assert about(sweep(own.url, "--config", str(file), "--mode", "observe"), job)["action"] == "none"
    assert own.places(job) == ["active"]
    assert not own.client.exists(keys.LEADER)
    assert about(sweep(own.url, "--config", str(file)), job)["action"] == "requeued"


def test_while_another_agent_leads_it_refuses_and_names_it(own: UnstuckBench) -> None:
    job, _ = kill(own)
    seconds, _ = own.client.time()
    until = (seconds + 60) * 1000
    own.client.hset(keys.LEADER, mapping={"owner": "other:1:cafe", "epoch": 5, "until_ms": until, "digest": "x"})
    ran = run_cli("sweep", "--redis", own.url, "--mode", "reclaim", env=BRISK)
    assert (ran.code, ran.stdout) == (3, "")
    assert ran.stderr.startswith("unstuck: another agent leads (other:1:cafe)")
    assert own.places(job) == ["active"]
    assert own.client.hget(keys.LEADER, "owner") == "other:1:cafe"
    assert about(sweep(own.url), job)["verdict"] == "stuck"  # to observe nobody's leave is needed


def test_the_lease_is_given_back_when_the_pass_is_ended_from_outside(own: UnstuckBench) -> None:
    run_one(own)
    env = {**BRISK, "UNSTUCK_STUCK_AFTER": "60s"}
    pass_ = own.processes.unstuck("sweep", "--redis", own.url, "--mode", "reclaim", env=env)
    leader = wait_until(lambda: own.client.hget(keys.LEADER, "owner"), 20, "it leads")
    pass_.terminate()
    assert pass_.wait() == 143
    seconds, _ = own.client.time()
    record = own.client.hgetall(keys.LEADER)
    assert record.get("owner") != leader or int(record["until_ms"]) <= (seconds + 1) * 1000


def test_a_user_without_the_right_to_lead_may_observe_and_is_told_what_is_missing(
    make_redis: Callable[..., RedisServer], processes: Processes
) -> None:
    server = make_redis()
    own = UnstuckBench(server, processes)
    job, _ = kill(own)
    own.client.execute_command("ACL", "SETUSER", "bob", "reset", "on", ">pw", "~*", "&*", "+@all", "-@write")
    url = f"redis://bob:pw@127.0.0.1:{server.port}"
    ran = run_cli("sweep", "--redis", url, "--mode", "reclaim", env=BRISK)
    assert ran.code == 3
    assert "does not give this user the right" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert about(sweep(url), job)["verdict"] == "stuck"
    own.client.close()


def test_a_redis_that_goes_away_in_between_is_one_sentence(
    make_redis: Callable[..., RedisServer], processes: Processes
) -> None:
    ran = run_cli("sweep", "--redis", f"redis://127.0.0.1:{free_port()}", env=BRISK)
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (3, "", 1)
    server = make_redis()
    own = UnstuckBench(server, processes)
    run_one(own)
    pass_ = processes.unstuck("sweep", "--redis", server.url, env={**BRISK, "UNSTUCK_STUCK_AFTER": "6s"})
    wait_until(lambda: any(one["name"] == "unstuck:sweep" for one in own.client.client_list()), 20, "it watches")
    server.kill()
    assert pass_.wait(60) == 3
    assert "the connection" in pass_.stderr  # refused or closed
    own.client.close()
