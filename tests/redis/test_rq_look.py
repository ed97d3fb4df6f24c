"""What a look at RQ reports beside its leases, what it costs, and what the scripts' headers promise."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from conformance.benches.rq import ISO, RQBench
from conformance.benches.rq_states import fly, kinds, lease_of, look, reclaim, reclaim_all
from support.processes import Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.model import Action
from unstuck.queue import Limits
from unstuck.queues import rq_facts
from unstuck.queues.rq import RQAdapter, script


@pytest.fixture
def bench(redis_server: RedisServer, processes: Processes) -> Iterator[RQBench]:
    bench = RQBench(redis_server, processes)
    yield bench
    bench.client.close()


# ── findings ──


def test_an_id_in_flight_without_a_job_is_quarantined_and_never_requeued(bench: RQBench) -> None:
    lease = fly(bench)
    other = fly(bench)
    bench.client.delete(f"rq:job:{lease.job}")
    snapshot = look(bench)
    assert snapshot.quarantined == 1
    assert [finding.job for finding in snapshot.side_findings if finding.kind == "quarantined"] == [lease.job]
    assert "nothing to requeue" in lease_of(bench, lease.job).exempt
    answers = reclaim_all(bench.adapter, bench, [lease, other])
    assert [(answer.action, answer.cause) for answer in answers] == [
        (Action.SKIPPED, "quarantined"),
        (Action.REQUEUED, ""),
    ]


def test_a_started_job_in_no_registry_is_an_orphan(bench: RQBench) -> None:
    name, _ = bench.start_worker(queues=[bench.busy])
    bench.client.sadd("rq:workers:mail", f"rq:worker:{name}")
    lease = fly(bench, worker=name)
    bench.client.zrem("rq:wip:mail", f"{lease.job}:{lease.token}")
    (orphan,) = [finding for finding in look(bench).side_findings if finding.kind == "orphan_body"]
    assert (orphan.job, orphan.worker) == (lease.job, name)


def test_workers_that_are_only_names_are_lost(bench: RQBench) -> None:
    bench.start_worker()  # first: RQ's maintenance, at its start, forgets such names
    bench.client.sadd("rq:workers:mail", "rq:worker:old-1", "rq:worker:old-2")
    snapshot = look(bench)
    assert snapshot.workers == {"busy": 0, "idle": 1, "lost": 2}
    assert [finding.count for finding in snapshot.side_findings if finding.kind == "lost_worker"] == [2]


def test_a_job_taken_but_never_started_is_told_after_a_while(bench: RQBench) -> None:
    (job,) = bench.enqueue()
    bench.client.lmove("rq:queue:mail", "rq:queue:mail:intermediate")
    assert "intermediate" not in kinds(bench)  # may be a start that we looked into
    wait_until(lambda: "intermediate" in kinds(bench), 5)
    bench.start_worker()
    assert bench.places(job) == ["intermediate"]


def test_ids_and_names_that_are_no_text_do_not_stop_the_look(bench: RQBench) -> None:
    bench.client.zadd("rq:wip:mail", {b"\xff\xfe:exec": 1.0, b"no-execution": 1.0, b":": 1.0})
    bench.client.sadd("rq:queues", b"rq:queue:\xff", b"something else", "rq:queue:mail", "rq:queue:")
    bench.client.sadd("rq:workers:mail", b"rq:worker:\xff", b"nonsense")
    bench.client.hset("rq:job:x", mapping={"status": b"\xff", "started_at": "yesterday", "timeout": "long"})
    bench.client.zadd("rq:wip:mail", {"x:y": "inf"})
    assert list(bench.adapter.discover()) == ["mail"]
    snapshot = look(bench)
    assert snapshot.running == len(snapshot.leases) == 4
    assert all(lease.exempt for lease in snapshot.leases)


def test_a_registry_of_the_wrong_type_is_no_empty_one(bench: RQBench) -> None:
    bench.client.set("rq:queues", "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        bench.adapter.discover()


# ── cost, and what the files promise ──


def test_a_look_at_many_queues_takes_three_round_trips(bench: RQBench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        bench.enqueue(queue=f"queue-{number}")
    fly(bench)
    trips = []
    run = rq_facts.Round.run

    def counted(self: rq_facts.Round) -> None:
        trips.append(1)
        run(self)

    monkeypatch.setattr(rq_facts.Round, "run", counted)
    names = bench.adapter.discover()
    assert len(names) == 21
    snapshots = bench.adapter.look(dict.fromkeys(names, Limits()))
    assert [one.queue for one in snapshots] == list(names)
    assert len(trips) <= 3


def test_another_prefix_is_another_rq(bench: RQBench) -> None:
    bench.enqueue()
    adapter = RQAdapter(bench.client, prefix="mine")
    assert list(adapter.discover()) == []
    assert adapter.look({"mail": Limits()})[0].waiting == 0


def test_a_client_that_decodes_is_refused(redis_client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="decode_responses"):
        RQAdapter(redis_client)


@pytest.mark.parametrize("name", ["reclaim_rq.lua", "release_rq.lua"])
def test_the_header_of_a_script_agrees_with_its_caller(
    bench: RQBench, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = "".join(line for line in script(name).splitlines() if line.startswith("--"))
    listed = {part: re.findall(r"(?:^|\s)(\d+) ", header.split(part)[1].split(following)[0])
              for part, following in (("-- KEYS", "-- ARGV"), ("-- ARGV", "-- returns"))}  # fmt: skip
    sent: list[tuple[int, int]] = []
    original = redis.client.Pipeline.evalsha

    def noted(self: Any, sha: str, count: int, *rest: Any) -> Any:
        if sha == bench.adapter._digests[name]:
            sent.append((count, len(rest) - count))
        return original(self, sha, count, *rest)

    monkeypatch.setattr(redis.client.Pipeline, "evalsha", noted)
    reclaim(bench, fly(bench))
    numbers = [[int(number) for number in listed[part]] for part in ("-- KEYS", "-- ARGV")]
    assert numbers == [list(range(1, count + 1)) for count in sent[0]]


def test_the_script_writes_times_as_rq_does(bench: RQBench) -> None:
    function = re.search(r"^local function iso\(.*?^end$", script("reclaim_rq.lua"), re.MULTILINE | re.DOTALL)
    assert function
    code = function.group() + "\nreturn iso(tonumber(ARGV[1]), tonumber(ARGV[2]))"
    for year in (1970, 1999, 2000, 2024, 2026, 2027, 2028, 2099, 2100, 2101):
        for month, day in ((1, 1), (2, 28), (3, 1), (12, 31)):
            moment = datetime(year, month, day, 23, 59, 58, 42, tzinfo=UTC)
            written = bench.client.eval(code, 0, int(moment.timestamp()), 42)
            assert written.decode() == moment.strftime(ISO)
