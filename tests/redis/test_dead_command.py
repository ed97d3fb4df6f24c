"""`unstuck dead`, `unstuck cancel` and `unstuck brake`: what people do by hand, on a real server."""

from pathlib import Path
from typing import Any

import pytest
import redis

from support.cli import run_cli
from support.own_queue import OwnQueue
from support.redis_server import RedisServer
from unstuck.clock import ManualClock
from unstuck.config import load
from unstuck.duties.sweeping import Sweeper
from unstuck.model import Capability, Lease, Lock, QueueSnapshot
from unstuck.protocol import keys

HOSTILE = "bad id\x1b[31m[red]\n"


@pytest.fixture
def mail(redis_client: redis.Redis) -> OwnQueue:
    return OwnQueue(redis_client)


def spoil(queue: OwnQueue, job: str) -> None:
    """Put an id into quarantine, as a claim does that finds no body."""
    queue.client.rpush(queue.key("pending"), job)
    queue.queue.claim("host:1:0123abcd", "0")
    assert job in queue.client.lrange(queue.key("quarantine"), 0, -1)


def test_dead_letters_are_listed_with_what_they_died_of(mail: OwnQueue, redis_url: str) -> None:
    mail.bury("first")
    mail.bury("second")
    spoil(mail, HOSTILE)
    document = run_cli("dead", "list", "mail", "--redis", redis_url, "--json").json()
    assert (document["queue"], document["dead"], document["quarantined"]) == ("mail", 2, 1)
    jobs = {one["job"]: one for one in document["jobs"]}
    assert set(jobs) == {"first", "second", HOSTILE}
    assert (jobs["first"]["state"], jobs["first"]["error"], jobs["first"]["failures"]) == ("dead", "no", 1)
    assert isinstance(jobs["first"]["died_at"], int)
    assert jobs[HOSTILE]["state"] == "quarantine"
    assert "payload" not in jobs["first"]
    ran = run_cli("dead", "list", "mail", "--redis", redis_url, "--count", "1")
    assert ran.stdout.splitlines()[0] == "2 dead, 1 in quarantine; the latest 1 of each:"
    assert r"bad id\x1b[31m[red]\n" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_a_quarantined_id_says_what_its_body_lacks(mail: OwnQueue, redis_url: str) -> None:
    spoil(mail, "bodiless")
    mail.put("stateless")
    mail.client.hdel(keys.job("mail", "stateless"), "state")
    mail.client.lrem(mail.key("pending"), 0, "stateless")
    spoil(mail, "stateless")
    mail.client.lpush(mail.key("quarantine"), "written")
    mail.client.hset(keys.job("mail", "written"), "payload", "1")
    causes = {
        one["job"]: one["cause"]
        for one in run_cli("dead", "list", "mail", "--redis", redis_url, "--json").json()["jobs"]
    }
    assert causes == {
        "bodiless": "it has no body",
        "stateless": "its body lacked the field state or payload",
        "written": "its body lacks the field state",
    }


def test_one_job_is_shown_whole(mail: OwnQueue, redis_url: str) -> None:
    mail.bury("first")
    mail.client.hset(keys.job("mail", "first"), "payload", '{"to": "\x1b[31m"}')
    fields = run_cli("dead", "show", "mail", "first", "--redis", redis_url, "--json").json()["fields"]
    assert (fields["state"], fields["payload"]) == ("dead", '{"to": "\x1b[31m"}')
    shown = run_cli("dead", "show", "mail", "first", "--redis", redis_url).stdout
    assert "state" in shown
    assert "\x1b" not in shown
    ran = run_cli("dead", "show", "mail", "second", "--redis", redis_url)
    assert (ran.code, ran.stdout) == (1, "")
    assert "there is no job 'second'; `unstuck dead list mail`" in ran.stderr


def test_a_body_of_the_wrong_type_is_named_with_the_mend(mail: OwnQueue, redis_url: str) -> None:
    mail.put("x")
    key = keys.job("mail", "first")
    mail.client.set(key, "x")
    ran = run_cli("dead", "show", "mail", "first", "--redis", redis_url)
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (3, "", 1)
    assert f"{key} holds a string where a hash belongs" in ran.stderr
    assert f"RENAME {key} {key}:aside" in ran.stderr


def test_a_retried_job_is_pending_again_and_its_rescues_begin_anew(mail: OwnQueue, redis_url: str) -> None:
    mail.bury("first")
    mail.client.hset(keys.job("mail", "first"), "rescues", 4)
    ran = run_cli("dead", "retry", "mail", "first", "--redis", redis_url)
    assert (ran.code, ran.stderr) == (0, "")
    assert "first is pending again" in ran.stdout
    assert mail.client.lrange(mail.key("pending"), 0, -1) == ["first"]
    assert (mail.job("first")["state"], mail.job("first")["rescues"], mail.job("first")["failures"]) == (
        "pending",
        "0",
        "0",
    )
    again = run_cli("dead", "retry", "mail", "first", "absent", "--redis", redis_url, "--json")
    assert again.code == 1
    assert again.json()["jobs"] == [{"job": "first", "result": "not_dead"}, {"job": "absent", "result": "missing"}]
    assert mail.client.lrange(mail.key("pending"), 0, -1) == ["first"]


def test_all_are_retried_the_quarantine_included_where_a_body_is_there_again(mail: OwnQueue, redis_url: str) -> None:
    for number in range(230):
        mail.bury(f"job-{number}")
    spoil(mail, HOSTILE)
    spoil(mail, "bodiless")
    ran = run_cli("dead", "retry", "mail", "--all", "--redis", redis_url)
    assert ran.code == 0, ran.stderr
    assert ran.stdout == "230 retried; 1 was left as it is\n"
    assert mail.client.llen(mail.key("pending")) == 230
    assert mail.client.rpop(mail.key("pending")) == "job-0"  # the oldest is next
    assert set(mail.client.lrange(mail.key("quarantine"), 0, -1)) == {HOSTILE, "bodiless"}


def test_dropped_letters_are_gone_and_all_of_them_only_when_said_twice(mail: OwnQueue, redis_url: str) -> None:
    for job in ("first", "second"):
        mail.bury(job)
    spoil(mail, HOSTILE)
    assert run_cli("dead", "drop", "mail", "first", "--redis", redis_url).code == 0
    assert not mail.client.exists(keys.job("mail", "first"))
    ran = run_cli("dead", "drop", "mail", "--all", "--redis", redis_url, stdin="n\n")
    assert (ran.code, mail.client.zcard(mail.key("dead"))) == (130, 1)
    ran = run_cli("dead", "drop", "mail", "--all", "--yes", "--redis", redis_url)
    assert (ran.code, ran.stdout) == (0, "2 dropped\n")
    assert not mail.client.exists(mail.key("dead"), mail.key("quarantine"), keys.job("mail", "second"))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["retry", "mail"], "name jobs, or say --all"),
        (["retry", "mail", "x", "--all"], "name jobs, or say --all"),
        (["list", "mial"], "there is no queue 'mial' on this Redis, did you mean `mail`?"),
        (["list", "rq/default"], "rq keeps its jobs itself: list them with `rq info`"),
        (["list", "a b"], "queue name 'a b'"),
        (["retry", "mail", "a b"], "job id 'a b'"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(args: list[str], words: str, mail: OwnQueue, redis_url: str) -> None:
    mail.put("x")
    ran = run_cli("dead", *args, "--redis", redis_url)
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert words in ran.stderr
    assert mail.client.smembers(keys.QUEUES) == {"mail"}


def test_a_job_that_waits_is_cancelled_and_a_running_one_is_asked(mail: OwnQueue, redis_url: str) -> None:
    mail.held("running")
    mail.put("waiting")
    assert "its worker was told" in run_cli("cancel", "mail", "running", "--redis", redis_url).stdout
    assert mail.job("running")["state"] == "active"
    assert int(mail.job("running")["cancelled_at"]) > 0
    answer = run_cli("cancel", "mail", "waiting", "--redis", redis_url, "--json").json()
    assert answer == {"queue": "mail", "job": "waiting", "result": "dead"}
    assert (mail.job("waiting")["state"], mail.job("waiting")["cause"]) == ("dead", "cancelled")
    ran = run_cli("cancel", "mail", "absent", "--redis", redis_url)
    assert (ran.code, ran.stdout) == (1, "")
    assert "absent is not there" in ran.stderr


def test_the_brake_of_a_queue_that_nobody_has_is_not_released(mail: OwnQueue, redis_url: str) -> None:
    mail.put("x")
    ran = run_cli("brake", "release", "mial", "--redis", redis_url)
    assert ran.code == 2
    assert "did you mean `mail`?" in ran.stderr
    assert not mail.client.exists(keys.meta("mial"))


@pytest.mark.parametrize(("name", "tag"), [("mail", "mail"), ("rq/default", "rq/default")])
def test_a_release_is_noted_with_the_servers_time(name: str, tag: str, mail: OwnQueue, redis_url: str) -> None:
    mail.put("x")
    mail.client.sadd("rq:queues", "rq:queue:default")
    seconds, _ = mail.client.time()
    answer = run_cli("brake", "release", name, "--redis", redis_url, "--json").json()
    noted = int(mail.client.hget(keys.meta(tag), "brake_release_ms"))
    assert answer["brake_release_ms"] == noted
    assert seconds * 1000 <= noted < (seconds + 60) * 1000


class Fleet:
    """An adapter whose queue is full of silent jobs of many workers."""

    capability = Capability.RECLAIM
    least_stuck_after = 0.0
    least_gone_after = 0.0

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def discover(self) -> list[str]:
        return ["mail"]

    def look(self, queues: Any) -> list[QueueSnapshot]:
        leases = tuple(
            Lease(f"job-{n}", f"worker-{n}", "t", "1", heartbeat_age=100.0, lock=Lock.HELD, threshold=3.0)
            for n in range(20)
        )
        return [QueueSnapshot(self.backend, "mail", self.capability, running=20, leases=leases)]

    def reclaim(self, *_: Any) -> list[Any]:
        return []


def test_a_brake_of_another_systems_queue_is_released_by_hand_but_not_by_a_release_of_old(
    redis_server: RedisServer, redis_client: Any, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(
        "{stuck_after: 3s, heartbeat_interval: 1s, abort_after: 1500ms, confirm_after: 1s}"
    )
    clock = ManualClock()
    meta = keys.meta(keys.tag("rq", "mail"))
    redis_client.hset(meta, "brake_release_ms", 5)  # last week
    fleet: Any = Fleet("rq")
    sweeper = Sweeper(
        load(tmp_path / "c.yaml"),
        [fleet],
        redis_server.client(decode_responses=False),
        clock,
        exchanged=lambda *_: None,
    )
    sweeper.begin_watch()
    settled: Any = sweeper.gate.restarted_watch(clock.monotonic() - 100)

    def sweep() -> Any:
        object.__setattr__(settled, "last_at", None)
        sweeper.gate = type(settled)(window=0.0, interval=1e9, watching_since=clock.monotonic() - 100)
        clock.advance(2.0)
        return sweeper.sweep().queues[0]

    assert [sweep().brake.engaged for _ in range(4)] == [True] * 4
    assert not sweep().going
    redis_client.hset(meta, "brake_release_ms", 6)
    assert len(sweep().going) == 20
