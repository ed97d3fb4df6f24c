"""S3 and S8 for every script: damaged keys, damaged numbers, repetitions, a lost script cache, a full memory."""

import pytest
import redis

from support.own_queue import SCENARIOS, WORKER, OwnQueue
from unstuck.errors import ProtocolError, WrongType
from unstuck.protocol import keys, scripts

JOB_NUMBERS = (
    "attempt",
    "failures",
    "rescues",
    "version",
    "ready_at",
    "expected_ms",
    "expected_by",
    "started_at",
    "heartbeat_at",
    "max_attempts",
    "retry_delay_ms",
    "lock_ttl_ms",
)
COUNTERS = (
    "enqueued",
    "started",
    "completed",
    "failed",
    "released",
    "retried",
    "refused",
    "conflicts",
    "rescued",
    "dead",
    "dead_dropped",
    "delay_ms",
    "run_ms",
    "delay_le_50",
    "run_le_50",
    "bumped",
    "unheard",
)
# Fields that carry the time of the call itself; repeated, these scripts say the same thing later.
MOVING = {
    "heartbeat": ("active", "workers", "job:running"),
    "register": ("workers",),
    "publish": ("pacing",),
}
# Their answer counts what was moved or forgotten by this very call, and steers nothing.
# An empty claim is not remembered: repeated, "apart" asks for a new one.
COUNTING = {"promote", "purge", "publish", "restore", "complete and find nothing", "complete and claim of several"}


@pytest.fixture
def own(redis_client):
    return OwnQueue(redis_client)


def refusal(own, script, args):
    """Call a script; what it refused with, None if it did not."""
    try:
        own.call(script, *args)
    except ProtocolError as refused:
        return refused
    return None


def timeless(answer):
    """Leave server times out of an answer."""
    if isinstance(answer, list):
        return [timeless(one) for one in answer]
    return "now" if str(answer).isdigit() and int(answer) > 10**12 else answer


def test_a_scenario_stands_for_every_script_of_a_queue(own):
    called = {prepare(own)[0] for name, prepare in SCENARIOS.items() if not own.client.flushall() or name}
    assert called == set(scripts.names()) - {"elect_leader", "resign_leader"}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_script_run_twice_has_the_effect_and_the_answer_of_once(own, name):
    script, args = SCENARIOS[name](own)
    first = own.call(script, *args)
    after_once = own.everything(without=MOVING.get(name, ()))
    second = own.call(script, *args)
    assert own.everything(without=MOVING.get(name, ())) == after_once
    if name not in COUNTING:
        assert timeless(second) == timeless(first)
    own.in_one_place_each()


@pytest.mark.parametrize("part", keys.STRUCTURES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_key_of_the_wrong_type_leaves_every_job_where_it_was(own, name, part):
    script, args = SCENARIOS[name](own)
    own.damage(part)
    before = own.everything()
    refused = refusal(own, script, args)
    if refused is None:
        own.in_one_place_each(aside=part)
        return
    assert own.everything() == before
    assert isinstance(refused, WrongType)
    assert own.key(part) in str(refused)
    assert "RENAME" in str(refused)


@pytest.mark.parametrize("what", ["held", "worker", "lock", "cache", "job"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_damaged_key_of_one_job_or_worker_leaves_every_job_where_it_was(own, name, what):
    script, args = SCENARIOS[name](own)
    jobs = list(own.places())
    for one in [WORKER] if what in {"held", "worker"} else jobs:
        own.damage(f"{what}:{one}")
    before = own.everything()
    refused = refusal(own, script, args)
    if refused:
        assert own.everything() == before
        assert str(refused).startswith(own.key(f"{what}:"))
        assert "RENAME" in str(refused)
    elif what != "job":
        own.in_one_place_each()
    # Of a job whose body is no hash only the id is left; it may stay, or stand in quarantine.
    assert all(len(places) <= 1 for places in own.places().values())


@pytest.mark.parametrize("field", JOB_NUMBERS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_number_that_is_none_leaves_every_job_where_it_was_or_puts_it_into_quarantine(own, name, field):
    script, args = SCENARIOS[name](own)
    for job in own.places():
        own.client.hset(keys.job(own.name, job), field, "12x")
    before = own.everything()
    refused = refusal(own, script, args)
    if refused:
        assert own.everything() == before
        assert "not a whole number" in str(refused)
    own.in_one_place_each()


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_counter_that_is_no_number_leaves_every_job_where_it_was(own, name, counter):
    script, args = SCENARIOS[name](own)
    own.client.hset(keys.stats(own.name), counter, "1.5e3")
    before = own.everything()
    refused = refusal(own, script, args)
    if refused:
        assert counter in str(refused)
        # A claim promotes first: that is whole in itself.
        assert own.everything() == before or name == "claim of a due one"
    own.in_one_place_each()


@pytest.mark.parametrize("part", ["fence", "stamp"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fence_or_stamp_that_is_no_number_leaves_every_job_where_it_was(own, name, part):
    script, args = SCENARIOS[name](own)
    own.client.set(own.key(part), "soon")
    before = own.everything()
    refused = refusal(own, script, args)
    if refused:
        assert own.everything() == before
        assert own.key(part) in str(refused)
    else:
        own.in_one_place_each()


@pytest.mark.parametrize("name", SCENARIOS)
def test_another_version_of_the_protocol_is_refused_and_explained(own, name):
    script, args = SCENARIOS[name](own)
    own.client.hset(keys.meta(own.name), "v", "2")
    before = own.everything()
    with pytest.raises(ProtocolError, match="field v is '2', this is protocol version 1"):
        own.call(script, *args)
    assert own.everything() == before


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_lost_script_cache_is_no_loss(own, name):
    script, args = SCENARIOS[name](own)
    own.client.script_flush()
    assert own.call(script, *args) is not None
    own.client.script_flush()
    (answer,) = scripts.run_many(own.client, [scripts.Call(script, keys.meta(own.name), args)])
    assert not isinstance(answer, Exception)


ALLOWED_WHEN_FULL = {
    "claim_job",
    "heartbeat_jobs",
    "report_progress",
    "complete_job",
    "complete_and_claim",
    "fail_job",
    "release_job",
    "register_worker",
    "leave_worker",
    "purge_workers",
    "drop_dead",
    "elect_leader",
    "resign_leader",
    "read_queue",
    "bump_stamp",
}


@pytest.fixture
def lame(redis_server, redis_client):
    """Make a user who may do everything but one command; the queue as that user has it."""

    def make(without):
        rules = ("reset", "on", ">pw", "~*", "&*", "+@all", f"-{without}")
        redis_client.execute_command("ACL", "SETUSER", "lame", *rules)
        return OwnQueue(redis_server.client(username="lame", password="pw"))

    yield make
    redis_client.execute_command("ACL", "DELUSER", "lame")


def unlisted(own):
    """Jobs that have a body, and of which no index knows."""
    return {job for job, places in own.places().items() if not places}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_script_that_stops_half_way_leaves_every_job_in_some_index(own, lame, name):
    script, args = SCENARIOS[name](own)
    own.client.config_resetstat()
    own.call(script, *args)
    called = {one.removeprefix("cmdstat_") for one in own.client.info("commandstats")}
    stopped = 0
    for command in sorted(called - {"config|resetstat", "evalsha", "script|load", "info", "client|setinfo"}):
        own.client.flushall()
        script, args = SCENARIOS[name](own)
        before = unlisted(own)
        poor = lame(without=command)
        for _ in range(2):  # what the first call left must not mislead the next one
            try:
                poor.call(script, *args)
            except (redis.ResponseError, ProtocolError):
                stopped += 1
        assert unlisted(own) <= before, f"{script} without {command}"
    assert stopped > 0


def test_an_entry_among_the_dead_of_a_job_that_lives_costs_it_nothing_and_goes_when_somebody_drops_it(own, lame):
    job = own.bury("first")
    with pytest.raises(redis.ResponseError):
        lame(without="zrem").call("retry_dead", job, "op1")
    assert own.places() == {job: ["pending", "dead"]}
    lease = own.claim()
    own.bury("second")
    most, keep = 0, 1_000
    assert own.call("fail_job", WORKER, "9", "op9", *_failing(own, "third"), most, keep) == "dead"
    assert own.job(job)["state"] == "active"
    own.client.zadd(own.key("dead"), {job: 1})
    assert own.call("drop_dead", job, "op2") == ["not_dead", "active"]
    assert own.client.zscore(own.key("dead"), job) is None
    assert own.queue.complete(lease) == "completed"


def _failing(own, job):
    lease = own.held(job)
    return lease.id, lease.token, "no", "exception", 1, 0, 1_000, 1_000


@pytest.fixture(scope="module")
def full_server():
    from support.redis_server import RedisServer

    server = RedisServer()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_full_redis_can_drain_and_takes_nothing_new(full_server, name):
    client = full_server.client()
    client.config_set("maxmemory", 0)
    client.flushall()
    own = OwnQueue(client)
    script, args = SCENARIOS[name](own)
    client.config_set("maxmemory", 1)
    before = own.everything()
    if script in ALLOWED_WHEN_FULL:
        own.call(script, *args)
        own.in_one_place_each()
    else:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            own.call(script, *args)
        assert own.everything() == before


def test_the_flags_say_which_scripts_run_when_memory_is_full():
    for name in scripts.names():
        first = scripts.script(name).text.split("\n", 1)[0]
        assert ("allow-oom" in first or "no-writes" in first) == (name in ALLOWED_WHEN_FULL), name
        assert scripts.script(name).reads_only == (name == "read_queue")
