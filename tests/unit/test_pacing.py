"""Pacing: whatever is measured or configured, the interval stays within its bounds, and more load never shortens it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstuck.pacing import SMOOTHING, Load, PacingRules, decide, sane, smooth

anything = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -0.0, -1.0, 1e308, -1e308, 5e-324])
loads = st.builds(Load, st.none() | anything, st.integers(-(2**63), 2**63) | anything, st.booleans())  # type: ignore[arg-type]
any_rules = st.builds(PacingRules, anything, anything, anything, anything, anything, anything)
sound_rules = st.builds(
    PacingRules,
    base_interval=st.floats(0.001, 10),
    max_interval=st.floats(0.001, 3600),
    delay_threshold=st.floats(0.001, 3600),
    backlog_threshold=st.floats(1, 1e9),
    penalty_factor=st.floats(1, 1000),
)


@given(loads, any_rules)
def test_whatever_it_is_given_the_interval_is_a_number_between_base_and_longest(load: Load, rules: PacingRules) -> None:
    decision = decide(load, rules)
    assert math.isfinite(decision.interval)
    assert 0 < decision.base <= decision.interval <= decision.max_interval
    assert 0 <= decision.score <= 1
    assert decision.penalty >= 1
    assert decision.reason in {"idle", "delay", "backlog", "memory"}


@given(loads, sound_rules)
def test_it_is_at_most_twice_the_base_times_the_penalty(load: Load, rules: PacingRules) -> None:
    decision = decide(load, rules)
    assert decision.interval <= 2 * decision.base * decision.penalty * (1 + 1e-9)
    assert decision.penalty == (rules.penalty_factor if load.over_memory_limit else 1)


@given(
    sound_rules,
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.booleans(),
    st.booleans(),
)
def test_more_load_never_makes_it_shorter(
    rules: PacingRules, delay: float, more_delay: float, pending: int, more_pending: int, over: bool, over_too: bool
) -> None:
    less = decide(Load(delay, pending, over and over_too), rules)
    more = decide(Load(delay + more_delay, pending + more_pending, over or over_too), rules)
    assert more.interval >= less.interval
    assert more.score >= less.score
    assert more.score_raw >= less.score_raw


@pytest.mark.parametrize(
    ("delay", "pending", "over", "interval", "score", "reason"),
    [
        (None, 0, False, 0.2, 0.0, "idle"),
        (0.0, 0, False, 0.2, 0.0, "idle"),
        (5.0, 0, False, 0.3, 0.5, "delay"),
        (10.0, 0, False, 0.4, 1.0, "delay"),
        (0.0, 500, False, 0.3, 0.5, "backlog"),
        (2.5, 250, False, 0.3, 0.5, "delay"),
        (2.5, 500, False, 0.35, 0.75, "backlog"),
        (100.0, 10_000, False, 0.4, 1.0, "delay"),
        (0.0, 0, True, 0.4, 0.0, "memory"),
        (10.0, 0, True, 0.8, 1.0, "memory"),
    ],
)
def test_the_formula_of_the_contract(
    delay: float | None, pending: int, over: bool, interval: float, score: float, reason: str
) -> None:
    decision = decide(Load(delay, pending, over), PacingRules())
    assert (decision.interval, decision.score, decision.reason) == (
        pytest.approx(interval),
        pytest.approx(score),
        reason,
    )


def test_the_raw_score_tells_how_far_beyond_the_clamp_a_queue_is() -> None:
    assert decide(Load(30.0, 2_000), PacingRules()).score_raw == pytest.approx(5.0)


def test_a_longest_interval_below_the_base_gives_way_to_it() -> None:
    decision = decide(Load(99.0, 99), PacingRules(base_interval=5.0, max_interval=1.0))
    assert (decision.interval, decision.max_interval) == (5.0, 5.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, -1e-300, 0.0, None])
def test_nonsense_counts_as_nothing(value: float | None) -> None:
    assert sane(value) == 0.0
    assert decide(Load(value, 0), PacingRules()).interval == 0.2


@given(st.none() | st.floats(0, 1e9), st.none() | anything)
def test_a_smoothed_average_stays_between_what_was_and_what_is(before: float | None, measured: float | None) -> None:
    after = smooth(before, measured)
    if measured is None or not math.isfinite(measured) or measured < 0:
        assert after == before
    elif before is None:
        assert after == measured
    else:
        assert after is not None
        low, high = min(before, measured), max(before, measured)
        assert low - 1e-9 * high <= after <= high * (1 + 1e-9)


def test_an_old_average_fades() -> None:
    value: float | None = 10.0
    for _ in range(20):
        value = smooth(value, 0.0)
    assert value == pytest.approx(10.0 * (1 - SMOOTHING) ** 20)
