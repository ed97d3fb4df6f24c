"""Waiting must give what was seen, and must say in a sentence what never came."""

import itertools

import pytest

from support.waiting import wait_until


def test_gives_what_the_predicate_gave():
    looks = itertools.count()

    assert wait_until(lambda: "there" if next(looks) == 3 else "", 5) == "there"


def test_says_what_was_waited_for_and_what_was_seen():
    with pytest.raises(AssertionError, match=r"waited 0.01 s in vain until the job runs; the last look gave 0"):
        wait_until(lambda: 0, 0.01, "the job runs")


def test_a_failed_assertion_means_not_yet():
    looks = itertools.count()

    def third_look() -> bool:
        assert next(looks) == 2, "too early"
        return True

    assert wait_until(third_look, 5)


def test_the_last_failed_assertion_is_shown():
    def never() -> bool:
        raise AssertionError("three jobs are missing")

    with pytest.raises(AssertionError, match="three jobs are missing"):
        wait_until(never, 0.01)
