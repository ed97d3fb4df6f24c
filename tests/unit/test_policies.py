"""Policies and hysteresis: within their bounds whatever they are told, steady under a steady load, each change with a reason."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unstuck.config import reference
from unstuck.pacing import REASONS, SETTLE, Held, Load, PacingRules, decide, steady
from unstuck.policies import POLICIES

anything = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -1.0, 1e308, 5e-324])
whole = st.integers(-(2**63), 2**63)
loads = st.builds(Load, st.none() | anything, whole, st.booleans(), whole)
any_rules = st.builds(PacingRules, *[anything] * 8)
plain_loads = st.builds(Load, st.floats(0, 100), st.integers(0, 10_000), st.booleans(), st.integers(0, 10_000))
RULES = PacingRules()
# The machine may be busy with other tests: how long an example takes says nothing.
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
names = pytest.mark.parametrize("name", POLICIES)


def test_the_configuration_can_choose_each_policy_and_no_other():
    (setting,) = [one for one in reference() if one.key == "pacing.policy"]
    assert setting.unit == " or ".join(POLICIES)
    assert setting.default == "formula"


@names
@calmly
@given(loads, any_rules)
def test_whatever_it_is_told_a_policy_keeps_the_bounds_and_gives_a_reason(name, load, rules):
    decision = POLICIES[name].decide(load, rules)
    assert math.isfinite(decision.interval)
    assert 0 < decision.base <= decision.interval <= decision.max_interval
    assert 0 <= decision.score <= 1
    assert decision.penalty >= 1
    assert decision.reason in REASONS


@calmly
@given(loads, any_rules)
def test_the_default_policy_is_the_formula_itself(load, rules):
    mine, formula = POLICIES["formula"].decide(load, rules), decide(load, rules)
    assert mine == formula or math.isnan(load.average_delay or 0)


@calmly
@given(plain_loads, st.integers(1, 100_000))
def test_the_fleet_policy_looks_at_the_pollers_and_not_at_the_backlog(load, pollers):
    fleet = POLICIES["fleet"]
    one = fleet.decide(Load(load.average_delay, load.pending, pollers=pollers), RULES)
    two = fleet.decide(Load(None, 0, pollers=pollers), RULES)
    assert one.interval == two.interval
    if RULES.base_interval < one.interval < RULES.max_interval:
        assert pollers / one.interval == pytest.approx(RULES.fleet_rate)


@pytest.mark.parametrize(
    ("pollers", "over", "interval", "reason"),
    [
        (0, False, 0.2, "idle"),
        (20, False, 0.2, "idle"),
        (100, False, 1.0, "pollers"),
        (1000, False, 10.0, "pollers"),
        (5000, False, 10.0, "pollers"),
        (100, True, 2.0, "memory"),
    ],
)
def test_the_fleet_policy_at_a_hundred_polls_per_second(pollers, over, interval, reason):
    decision = POLICIES["fleet"].decide(Load(None, 0, over, pollers), RULES)
    assert (decision.interval, decision.reason) == (pytest.approx(interval), reason)


@calmly
@given(plain_loads)
def test_the_fixed_policy_is_the_base_whatever_happens(load):
    decision = POLICIES["fixed"].decide(load, RULES)
    assert (decision.interval, decision.penalty, decision.reason) == (RULES.base_interval, 1.0, "fixed")


# -- hysteresis ------------------------------------------------------------------------------------------------------------


def published(pending: list[int], over: list[bool] | None = None) -> list[Held]:
    """What stands after each of a row of loads."""
    held, row = None, []
    for number, one in enumerate(pending):
        held = steady(held, decide(Load(0.0, one, bool(over and over[number])), RULES), RULES)
        row.append(held)
    return row


def intervals(row: list[Held]) -> list[float]:
    return [round(one.decision.interval, 6) for one in row]


def test_the_first_decision_is_published_as_it_is():
    assert published([500])[0].decision == decide(Load(0.0, 500), RULES)
    assert published([500])[0].before is None


def test_a_change_within_the_hysteresis_is_not_followed_and_a_larger_one_is():
    row = published([500, 549, 451, 640, 648, 652])
    assert intervals(row) == [0.3, 0.3, 0.3, 0.3, 0.3, 0.3304]
    assert [one.before for one in row] == [None, None, None, None, None, pytest.approx(0.3)]


def test_what_is_kept_is_one_whole_decision_while_the_parts_are_fresh():
    kept = published([500, 540])[1].decision
    assert (kept.interval, kept.score) == (pytest.approx(0.3), 0.5)
    assert (kept.backlog_part, kept.score_raw) == (0.54, 0.54)


def test_a_load_that_swings_is_followed_at_most_every_third_time():
    row = published([0, 900] * 20)
    changes = [number for number, one in enumerate(row) if one.before is not None]
    assert changes
    assert all(later - sooner >= SETTLE for sooner, later in itertools.pairwise(changes))


def test_a_load_that_goes_on_growing_is_followed_each_time():
    assert intervals(published([0, 300, 600, 900])) == [0.2, 0.26, 0.32, 0.38]


def test_a_queue_without_load_goes_back_to_the_base_exactly():
    row = published([100, *[0] * SETTLE])
    assert intervals(row)[0] == pytest.approx(0.22)
    assert intervals(row)[-1] == 0.2
    assert row[-1].decision.reason == "idle"


def test_memory_over_its_limit_is_followed_at_once():
    row = published([0, 900, 0, 0], [False, False, True, False])
    assert intervals(row)[1] == pytest.approx(0.38)
    assert row[2].decision.reason in {"memory", "backlog"}
    assert published([900, 100, 900], [False, False, True])[2].decision.penalty == 2.0


def test_other_bounds_from_a_new_configuration_hold_at_once():
    held = steady(None, decide(Load(0.0, 900), RULES), RULES)
    other = PacingRules(base_interval=1.0, max_interval=5.0)
    assert steady(held, decide(Load(0.0, 900), other), other).decision.base == 1.0


@calmly
@given(st.lists(plain_loads, min_size=1, max_size=12), any_rules)
def test_what_is_published_is_always_a_value_that_the_formula_gave_within_its_bounds(row, rules):
    held, given_so_far = None, set()
    for load in row:
        fresh = decide(load, rules)
        given_so_far.add(fresh.interval)
        held = steady(held, fresh, rules)
        assert held.decision.interval in given_so_far
        assert held.decision.base <= held.decision.interval <= held.decision.max_interval


@calmly
@given(plain_loads, plain_loads)
def test_under_a_steady_load_the_value_settles_and_stays(before, load):
    held = steady(None, decide(before, RULES), RULES)
    for _ in range(SETTLE + 1):
        held = steady(held, decide(load, RULES), RULES)
    settled = held.decision.interval
    # The share is one of what stands: what was given may lie a little more than that share of itself away.
    assert abs(decide(load, RULES).interval - settled) <= RULES.hysteresis * settled + 1e-9
    for _ in range(5):
        held = steady(held, decide(load, RULES), RULES)
        assert held.before is None
        assert held.decision.interval == settled


@calmly
@given(plain_loads)
def test_score_penalty_and_interval_that_are_published_belong_together(load):
    decision = steady(steady(None, decide(Load(), RULES), RULES), decide(load, RULES), RULES).decision
    assert decision.interval == pytest.approx(
        min(decision.max_interval, decision.base * (1 + decision.score) * decision.penalty)
    )
