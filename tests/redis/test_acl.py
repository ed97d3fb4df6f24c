"""The lines of `unstuck acl`: each user, with nothing but them, really does the job, and Redis logs no refusal."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.cli import run_cli
from support.own_queue import OwnQueue
from support.ports import free_port
from support.processes import Process, Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.adapters import adapters_for
from unstuck.config import Settings
from unstuck.grants import FOREIGN_KEYS, WAYS, grant
from unstuck.protocol import Queue, scripts
from unstuck.rights import BY_SCRIPTS, READING

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL = ROOT / "watchdog/unstuck/protocol/lua"
QUICK = """
mode: MODE
sweep_interval: 500ms
heartbeat_interval: 1s
lock_ttl: 4s
stuck_after: 4s
abort_after: 3s
gone_after: 1s
confirm_after: 1s
audit: {interval: 10s}
queues:
  - {backend: rq, queue: jobs, mode: MODE, sweep_interval: 500ms}
"""
SCRIPTS = {
    "inspect": ["read_queue"],
    "observe": ["elect_leader", "resign_leader", "publish_pacing", "promote_jobs", "purge_workers", "restore_job"],
    "reclaim": ["reclaim_jobs"],
    "worker": [
        *("enqueue_job", "claim_job", "heartbeat_jobs", "report_progress", "complete_job", "fail_job", "release_job"),
        *("complete_and_claim", "register_worker", "leave_worker", "write_cache", "write_batch", "bump_stamp"),
    ],
}
PEOPLE = {"cancel_job", "drop_dead", "retry_dead"}  # what a person does with rights of their own


@pytest.fixture
def server(make_redis: Callable[..., RedisServer]) -> RedisServer:
    return make_redis()


def user(server: RedisServer, *words: str) -> str:
    """Make the user of a line as a person would, with redis-cli's words; the address for it."""
    line = run_cli("acl", *words)
    assert line.code == 0, line.stderr
    (said,) = line.stdout.splitlines()
    client = server.client()
    client.execute_command(*said.split())
    name = said.split()[2]
    client.execute_command("ACL", "SETUSER", name, ">pw")
    client.execute_command("ACL", "LOG", "RESET")
    return f"redis://{name}:pw@127.0.0.1:{server.port}/0"


def refusals(server: RedisServer) -> list[str]:
    """What Redis has refused, but for the name of the library that redis-py tells to servers that do not care."""
    told: Any = server.client().execute_command("ACL", "LOG", 100)
    entries = [dict(zip(entry[::2], entry[1::2], strict=True)) if isinstance(entry, list) else entry for entry in told]
    return [
        f"{one['reason']} {one['object']} ({one['context']})" for one in entries if "setinfo" not in str(one["object"])
    ]


def waiting_for_events(server: RedisServer) -> bool:
    return any(one["cmd"] == "xread" for one in server.client().client_list())


def agent(processes: Processes, url: str, folder: Path, mode: str) -> Process:
    config = folder / "unstuck.yaml"
    config.write_text(QUICK.replace("MODE", mode))
    started = processes.unstuck("run", "--config", config, "--redis", url, "--http-listen", f"127.0.0.1:{free_port()}")
    started.wait_for_output("gate_opened", timeout=60)
    return started


def worker(processes: Processes, server: RedisServer, url: str) -> Process:
    words = (
        "mail",
        "support.handlers:patient",
        "--heartbeat-interval",
        "1s",
        "--lock-ttl",
        "4s",
        "--abort-after",
        "3s",
    )
    return processes.unstuck("worker", *words, "--redis", url, env={"HANDLER_REDIS": server.url})


def rq_job(server: RedisServer) -> str:
    import redis
    import rq

    with redis.Redis.from_url(server.url) as raw:
        return str(
            rq.Queue("jobs", connection=raw).enqueue("support.rq_jobs.gated", server.url, "one", job_timeout=600).id
        )


class TestEachUserDoesItsJob:
    def test_inspect_looks_at_everything_and_writes_nothing(self, server, processes):
        queue = Queue(server.client(decode_responses=False), "mail")
        queue.enqueue({"to": "ada"})
        rq_job(server)
        worker(processes, server, server.url)
        wait_until(lambda: server.client().zcard("unstuck:{mail}:active") == 1, 60, "a job to run")
        url = user(server, "inspect")
        ran = run_cli("inspect", "--json", "--window", "1s", "--redis", url)
        assert ran.code == 0, ran.stderr
        assert {(one["backend"], one["queue"]) for one in ran.json()["queues"]} == {("unstuck", "mail"), ("rq", "jobs")}
        assert refusals(server) == []
        ran = run_cli("inspect", "--redis", url, "--window", "0s")
        assert ran.code == 0, ran.stderr
        assert run_cli("enqueue", "mail", "1", "--redis", url).code == 3

    def test_observe_leads_publishes_audits_and_touches_nothing_of_other_systems(self, server, processes, tmp_path):
        Queue(server.client(decode_responses=False), "mail").enqueue({}, delay=2)
        rq_job(server)
        url = user(server, "observe")
        started = agent(processes, url, tmp_path, "observe")
        client = server.client()
        wait_until(lambda: client.exists("unstuck:{mail}:pacing"), 60, "an interval to be published")
        wait_until(lambda: client.llen("unstuck:{mail}:pending") == 1, 60, "the due job to be promoted")
        wait_until(lambda: int(client.info("commandstats").get("cmdstat_scan", {}).get("calls", 0)), 60, "an audit")
        check = run_cli("check", "--json", "--redis", url)
        rights = next(one for one in check.json()["checks"] if one["check"] == "rights")
        assert rights["status"] == "ok", rights
        started.terminate()
        assert started.wait(20) == 0
        assert [one for one in refusals(server) if "(toplevel)" in one and "config" not in one] == []
        assert "redis_trouble" not in started.output

    def test_reclaim_puts_the_job_of_a_killed_worker_back(self, server, processes, tmp_path):
        job = Queue(server.client(decode_responses=False), "mail").enqueue({}).id
        doomed = worker(processes, server, server.url)
        client = server.client()
        wait_until(lambda: client.hget(f"unstuck:{{mail}}:job:{job}", "state") == "active", 60, "the job to run")
        url = user(server, "reclaim")
        started = agent(processes, url, tmp_path, "reclaim")
        doomed.kill_tree()
        wait_until(lambda: client.hget(f"unstuck:{{mail}}:job:{job}", "rescues") == "1", 90, "its rescue")
        assert client.hget(f"unstuck:{{mail}}:job:{job}", "state") == "pending"
        started.terminate()
        assert started.wait(20) == 0
        assert refusals(server) == []

    def test_reclaim_moves_jobs_of_rq_only_where_it_was_asked_for(self, server, processes, tmp_path):
        job = rq_job(server)
        doomed = processes.python("-m", "support.rq_jobs", server.url, "jobs", "--name", "doomed", "--beat", "5")
        client = server.client()
        wait_until(lambda: client.get("ran:one") == "1", 60, "the RQ worker to begin the job")
        url = user(server, "reclaim", "--backend", "rq")
        started = agent(processes, url, tmp_path, "reclaim")
        doomed.kill_tree()
        wait_until(lambda: client.lrange("rq:queue:jobs", 0, -1) == [job], 90, "the job to be back in its queue")
        started.terminate()
        assert started.wait(20) == 0
        assert refusals(server) == []
        without = user(server, "reclaim")
        assert (
            server.client().execute_command("ACL", "DRYRUN", "unstuck-reclaim", "LPUSH", "rq:queue:jobs", "x") != "OK"
        )
        assert without.startswith("redis://unstuck-reclaim:")

    @pytest.mark.parametrize("way", ["inspect", "observe", "reclaim"])
    def test_who_may_look_reads_the_audit_and_the_dead_letters_as_well(self, server, processes, way):
        OwnQueue(server.client()).bury("first")
        url = user(server, way)
        for words in (("events", "mail"), ("dead", "list", "mail"), ("dead", "show", "mail", "first")):
            ran = run_cli(*words, "--json", "--redis", url)
            assert ran.code == 0, ran.stderr
            assert "first" in ran.stdout
        assert "no job 'second'" in run_cli("dead", "show", "mail", "second", "--redis", url).stderr
        for words in (("events", "mail", "--follow"), ("events", "mail", "--follow", "--count", "0")):
            following = processes.unstuck(*words, "--redis", url)
            wait_until(lambda: waiting_for_events(server), 60, "it to follow")
            server.client().xadd("unstuck:{mail}:events", {"event": "heard"})
            following.wait_for_output("heard", timeout=60)
            following.terminate()
            following.wait(20)
            wait_until(lambda: not waiting_for_events(server), 20, "its connection to be gone")
        assert refusals(server) == []

    @pytest.mark.parametrize("way", WAYS)
    def test_each_user_passes_the_check(self, server, way):
        ran = run_cli("check", "--json", "--redis", user(server, way))
        assert ran.code == 0, ran.stdout
        rights = next(one for one in ran.json()["checks"] if one["check"] == "rights")
        assert rights["status"] == ("warning" if way == "inspect" else "ok"), rights

    def test_a_worker_that_lacks_a_right_or_shall_reclaim_does_not_pass(self, server):
        url = user(server, "worker")
        assert run_cli("check", "--mode", "reclaim", "--redis", url).code == 3
        server.client().execute_command("ACL", "SETUSER", "unstuck-worker", "-rpop")
        assert run_cli("check", "--redis", url).code == 3

    @pytest.mark.parametrize("lacking", ["unlink", "setrange", "pexpire"])
    def test_a_worker_that_lacks_a_right_of_its_scripts_says_so_and_takes_nothing(self, server, processes, lacking):
        url = user(server, "worker")
        server.client().execute_command("ACL", "SETUSER", url.split("//")[1].split(":")[0], f"-{lacking}")
        assert run_cli("check", "--redis", url).code == 3
        started = worker(processes, server, url)
        assert started.wait(30) == 3
        assert f"may not call {lacking.upper()} unstuck:" in started.stderr
        assert "unstuck acl worker" in started.stderr

    def test_worker_takes_runs_fails_and_finishes_jobs(self, server, processes):
        url = user(server, "worker")
        job = run_cli("enqueue", "mail", "{}", "--redis", url)
        assert job.code == 0, job.stderr
        client = server.client()
        started = worker(processes, server, url)
        key = f"unstuck:{{mail}}:job:{job.stdout.strip()}"
        wait_until(lambda: client.hget(key, "state") == "active", 60, "the job to run")
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 2.5, 10, "two heartbeats to have been sent")
        client.rpush(f"go:{job.stdout.strip()}", "end")
        wait_until(lambda: client.hget(key, "state") == "done", 60, "the job to be done")
        started.terminate()
        assert started.wait(20) == 0
        assert refusals(server) == []
        assert client.execute_command("ACL", "DRYRUN", "unstuck-worker", "GET", "other") != "OK"


class TestTheLines:
    def test_without_a_mode_there_is_a_line_for_each(self, server):
        lines = run_cli("acl").stdout.splitlines()
        assert [line.split()[2] for line in lines] == [f"unstuck-{way}" for way in WAYS]
        for line in lines:
            assert server.client().execute_command(*line.split()) == "OK"

    def test_a_line_gives_no_password_so_that_nobody_can_log_in_before_one_was_set(self):
        for line in run_cli("acl").stdout.splitlines():
            assert not re.search(r"nopass|allkeys|allcommands|\+@|~\*| >", line)

    def test_name_keys_and_file_form_can_be_chosen(self):
        ran = run_cli("acl", "reclaim", "--user", "ada", "--keys", "queue:orders", "--file")
        assert ran.stdout.startswith("user ada on resetkeys resetchannels -@all ")
        assert " ~queue:orders " in ran.stdout
        assert " %R~queue:orders " in run_cli("acl", "observe", "--keys", "queue:orders").stdout

    def test_json_holds_the_same(self):
        (one,) = run_cli("acl", "worker", "--json").json()["users"]
        assert ["ACL", "SETUSER", one["user"], *one["rules"]] == run_cli("acl", "worker").stdout.split()

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("wrker",), "is not one of"),
            (("worker", "--user", "a b"), "a name has no spaces"),
            (("inspect", "--keys", "x y"), "'x y' holds a blank, which no pattern of an ACL can; write ? in its place"),
            (("inspect", "--keys", ""), "is empty; name keys, as in --keys 'queue:orders:*'"),
            (("reclaim", "--backend", "r"), "'r' is not 'rq'"),
        ],
    )
    def test_wrong_usage_is_one_line_and_status_2(self, words, says):
        ran = run_cli("acl", *words)
        assert (ran.code, ran.stdout) == (2, "")
        assert ran.stderr.count("\n") == 1
        assert says in ran.stderr

    def test_every_foreign_system_with_an_adapter_has_its_keys(self):
        known = {adapter.backend for adapter in adapters_for(Settings(), *([_NoClient()] * 2))}
        assert known - {"unstuck"} == set(FOREIGN_KEYS)


class _NoClient:
    def get_connection_kwargs(self) -> dict[str, Any]:
        return {}


def commands_of(text: str) -> set[str]:
    """The commands that a script calls, as an ACL names them."""
    found = set()
    for name, first in re.findall(r"redis\.p?call\('([A-Za-z]+)'(?:,\s*'([A-Z]+)')?", text):
        found.add(f"{name}|{first}".lower() if name in ("PUBSUB", "CLIENT") else name.lower())
    return found | ({"lpush", "rpush"} if "redis.call(side," in text else set())


def script(name: str) -> str:
    text = (PROTOCOL / f"{name}.lua").read_text()
    return text + "".join(
        (PROTOCOL / f"include/{part}.lua").read_text() for part in re.findall(r"--@include (\w+)", text)
    )


class TestTheLinesFitTheScripts:
    """What a job seldom needs is not seen in the tests above; it is in the scripts' text."""

    def test_every_script_belongs_to_somebody(self):
        assert {path.stem for path in PROTOCOL.glob("*.lua")} == {
            one for some in SCRIPTS.values() for one in some
        } | PEOPLE

    @pytest.mark.parametrize("way", ["observe", "reclaim", "worker"])
    def test_every_command_of_the_scripts_is_granted(self, way):
        mine = {"reclaim": ("inspect", "observe", "reclaim"), "observe": ("inspect", "observe"), "worker": ("worker",)}[
            way
        ]
        wanted = set().union(*(commands_of(script(name)) for part in mine for name in SCRIPTS[part]))
        assert wanted - set(grant(way).commands) == set()

    def test_every_command_of_the_scripts_for_rq_is_granted(self):
        scripts = (ROOT / "watchdog/unstuck/queues/lua").glob("*_rq.lua")
        wanted = set().union(*(commands_of(path.read_text()) for path in scripts))
        assert wanted - set(grant("reclaim", ["rq"]).commands) == set()


def test_what_the_scripts_write_for_a_worker_is_asked_for_before_it_begins():
    read = {command[0] for command in READING}
    asked = {command[0] for command in (*READING, *BY_SCRIPTS)}
    for name in (
        "claim_job",
        "complete_job",
        "complete_and_claim",
        "fail_job",
        "release_job",
        "heartbeat_jobs",
        "register_worker",
    ):
        called = set(re.findall(r"call\('([A-Z]+)'", scripts.script(name).text))
        assert called - read <= asked, f"{name} also calls {sorted(called - asked)}"
