"""What a worker believes of a published interval, and how long it waits."""

import itertools

import pytest

from unstuck.errors import ConfigurationError
from unstuck.worker.identity import worker_id
from unstuck.worker.options import WorkerOptions
from unstuck.worker.waiting import OwnPace, Pace, believe, seconds_to_wait

NOW = 1_700_000_000_000
OWN = OwnPace(base=0.2, longest=10.0, jitter=0.2)
GOOD = {
    "interval_ms": "400",
    "min_ms": "200",
    "max_ms": "10000",
    "jitter": "0.1",
    "computed_at_ms": str(NOW - 1000),
    "ttl_ms": "15000",
}


def test_what_is_beyond_doubt_is_believed():
    assert believe(GOOD, OWN, NOW) == Pace(0.4, 0.1, longest=10.0)


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({"interval_ms": "1000000000", "max_ms": "1000000000"}, "out_of_bounds"),
        ({"interval_ms": "10001", "max_ms": "20000"}, "out_of_bounds"),
        ({"interval_ms": "-1"}, "out_of_bounds"),
        ({"interval_ms": "199"}, "out_of_bounds"),
        ({"interval_ms": "0", "min_ms": "0"}, "out_of_bounds"),
        ({"jitter": "0.95"}, "out_of_bounds"),
        ({"jitter": "nan"}, "out_of_bounds"),
        ({"interval_ms": "4e2"}, "unreadable"),
        ({"interval_ms": ""}, "unreadable"),
        ({"jitter": "much"}, "unreadable"),
        ({"computed_at_ms": str(NOW - 15_001)}, "old"),
        ({"computed_at_ms": str(NOW + 1_001)}, "old"),
        ({"ttl_ms": "0"}, "old"),
        ({"ttl_ms": "999999999999", "computed_at_ms": "1"}, "old"),
    ],
)
def test_at_any_doubt_the_own_base_holds_and_the_doubt_has_a_name(change, doubt):
    assert believe(GOOD | change, OWN, NOW) == Pace(0.2, 0.2, doubt)


@pytest.mark.parametrize("field", GOOD)
def test_a_missing_field_is_a_doubt(field):
    assert believe({name: value for name, value in GOOD.items() if name != field}, OWN, NOW).doubt == "incomplete"


def test_nothing_published_is_a_doubt():
    assert believe({}, OWN, NOW) == Pace(0.2, 0.2, "missing")


def test_the_wait_doubles_with_each_empty_poll_up_to_the_longest():
    waits = [seconds_to_wait(Pace(0.4, 0.1), OWN, k, None, 0.0) for k in (1, 2, 3, 4, 5, 6, 60)]
    assert waits == [0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_published_longest_wait_below_the_own_one_holds():
    published = believe(GOOD | {"max_ms": "1000"}, OWN, NOW)
    assert [seconds_to_wait(published, OWN, misses, None, 1.0) for misses in (1, 2, 9)] == pytest.approx(
        [0.44, 0.88, 0.9]
    )


def test_the_wait_is_spread_by_the_jitter_and_never_beyond_the_longest():
    for misses, spread in itertools.product(range(1, 12), (-1.0, -0.3, 0.5, 1.0)):
        plain = seconds_to_wait(Pace(0.4, 0.25), OWN, misses, None, 0.0)
        wait = seconds_to_wait(Pace(0.4, 0.25), OWN, misses, None, spread)
        assert 0.75 * plain <= wait <= min(10.0, 1.25 * plain)


@pytest.mark.parametrize(("due_in_ms", "wait"), [(100, 0.101), (0, 0.001), (-50, 0.001), (60_000, 0.4)])
def test_the_wait_ends_when_the_next_job_is_due(due_in_ms, wait):
    assert seconds_to_wait(Pace(0.4, 0.0), OWN, 1, due_in_ms, 0.0) == pytest.approx(wait)


def test_a_worker_has_a_new_name_each_time_within_the_allowed_characters():
    names = {worker_id("häuser/1:x" + "y" * 200, 7) for _ in range(50)}
    assert len(names) == 50
    for name in names:
        host, pid, unique = name.split(":")
        assert (host[:9], len(host), pid, len(unique)) == ("h-user-1-", 96, "7", 8)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"abort_after": 30.0}, "abort_after 30s is not below stuck_after 30s"),
        ({"heartbeat_interval": 11.0}, "stuck_after 30s is below three heartbeats of 11s"),
        ({"abort_after": 5.0}, "abort_after 5s is not above heartbeat_interval 5s"),
        ({"lock_ttl": 5.0}, "lock_ttl 5s is not above heartbeat_interval 5s"),
        ({"concurrency": 0}, "concurrency 0: use 1 to 1000"),
        ({"interrupt": True, "isolate": "process"}, "--interrupt is for --isolate thread"),
    ],
)
def test_options_that_cannot_work_are_refused_with_the_numbers(options, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        WorkerOptions(**options)
