"""`unstuck enqueue`: one job, many lines, its terms, and what is wrong with bad input."""

import json

import pytest

from support.cli import run_cli
from support.own_queue import OwnQueue
from unstuck.protocol import keys


@pytest.fixture
def own(redis_client):
    return OwnQueue(redis_client)


@pytest.fixture
def enqueue(redis_server):
    return lambda *args, **options: run_cli("enqueue", *args, env={"UNSTUCK_REDIS": redis_server.url}, **options)


def test_its_help_tells_the_exit_statuses() -> None:
    told = " ".join(run_cli("enqueue", "--help").stdout.split())
    assert (
        "Exit status: 0 the queue has the job, 2 wrong usage, configuration or JSON, 3 Redis not reachable or not usable."
        in told
    )


def test_it_puts_the_job_and_prints_its_id(own, enqueue):
    ran = enqueue("mail", '{"to": "somebody"}')
    assert ran.code == 0
    job = own.job(ran.stdout.strip())
    assert (job["state"], job["payload"]) == ("pending", '{"to":"somebody"}')
    assert own.client.smembers(keys.QUEUES) == {"mail"}


def test_its_terms_are_stored_with_the_job(own, enqueue):
    flags = ("--id", "one", "--delay", "1m", "--max-attempts", "2", "--retry-delay", "3s", "--expected", "500ms")
    assert enqueue("mail", "[]", *flags).stdout == "one\n"
    job = own.job("one")
    assert (job["state"], job["max_attempts"], job["retry_delay_ms"], job["expected_ms"]) == (
        "scheduled",
        "2",
        "3000",
        "500",
    )


def test_lines_from_standard_input_are_one_job_each(own, enqueue):
    ran = enqueue("mail", "-", "--lines", "--json", "--max-attempts", "2", stdin='1\n\n{"n": 2}\n"three"\n')
    made = ran.json()
    assert made["queue"] == "mail"
    assert [own.job(job["id"])["payload"] for job in made["jobs"]] == ["1", '{"n":2}', '"three"']
    assert {own.job(job["id"])["max_attempts"] for job in made["jobs"]} == {"2"}


def test_only_a_line_feed_ends_a_line(own, enqueue):
    ran = enqueue("mail", "-", "--lines", "--json", stdin='"a\u2028b"\r\n"c\x85d\u2029e"\n')
    assert ran.code == 0, ran.stderr
    payloads = [json.loads(own.job(job["id"])["payload"]) for job in ran.json()["jobs"]]
    assert payloads == ["a\u2028b", "c\x85d\u2029e"]


def test_one_job_from_standard_input_may_have_many_lines(own, enqueue):
    ran = enqueue("mail", "-", "--json", stdin='{\n "n": 1\n}\n')
    assert ran.json()["created"] is True
    assert own.job(ran.json()["id"])["payload"] == '{"n":1}'


def test_a_job_that_is_there_is_left_alone_with_a_note(own, enqueue):
    own.put("one", {"n": 1})
    ran = enqueue("mail", '{"n": 2}', "--id", "one", "--json")
    assert ran.code == 0
    assert json.loads(ran.stdout) == {"queue": "mail", "id": "one", "created": False, "state": "pending"}
    assert "is there already (pending)" in ran.stderr
    assert own.job("one")["payload"] == '{"n":1}'


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("mail", "{"), "JSON: not JSON: "),
        (("mail", "hello"), "a text needs quotes"),
        (("a b", "1"), "use 1 to 128 of"),
        (("mail", "1", "--id", "a b"), "use 1 to 128 of"),
        (("mail", "1", "--delay", "5"), "a duration needs a unit"),
        (("mail", "1", "--delay", "-5s"), "is negative"),
        (("mail", "1", "--max-attempts", "0"), "--max-attempts"),
        (("mail", "1", "--lines", "--id", "one"), "names one job"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2_and_nothing_is_enqueued(own, enqueue, args, sentence):
    ran = enqueue(*args)
    assert ran.code == 2
    assert sentence in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stdout == ""
    assert own.client.keys("unstuck:{*") == []


def test_one_bad_line_enqueues_none_and_is_named(own, enqueue):
    ran = enqueue("mail", "-", "--lines", stdin="1\n2\n{bad\n")
    assert ran.code == 2
    assert "line 3: not JSON" in ran.stderr
    assert own.places() == {}


def test_without_redis_it_is_status_3(redis_server, enqueue):
    redis_server.stop()
    ran = enqueue("mail", "1")
    assert ran.code == 3
    assert "refused the connection" in ran.stderr


def test_a_payload_over_the_limit_is_refused_with_the_limit(own, enqueue):
    ran = enqueue("mail", "-", stdin='"' + "x" * 1_048_576 + '"')
    assert ran.code == 2
    assert "the limit is 1048576" in ran.stderr


@pytest.mark.parametrize("payload", ["NaN", "1e999", '"\\ud800"', '"' + "x" * 1_100_000 + '"'])
def test_a_payload_that_cannot_be_stored_is_one_sentence_and_wrong_usage(redis_url: str, payload: str) -> None:
    told = run_cli("enqueue", "mail", "-", "--redis", redis_url, stdin=payload)
    assert told.code == 2
    assert "nothing was enqueued" in told.stderr
    assert told.stderr.count("\n") == 1
