"""The trend of a queue: what its counters tell between two looks, whatever happens to the counters."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstuck.duties.publishing import Trend, follow
from unstuck.model import Totals


def after(*totals: Totals | None, every: float = 2.0) -> Trend:
    """The trend after looks at these counters, `every` seconds apart."""
    trend = Trend()
    for number, one in enumerate(totals):
        trend = follow(trend, one, 100.0 + number * every)
    return trend


def test_one_look_tells_no_rate() -> None:
    trend = after(Totals(enqueued=100, started=90, completed=80, delay_ms=9_000))
    assert (trend.average_delay, trend.throughput, trend.growth) == (None, None, None)


def test_the_second_look_tells_delay_throughput_and_growth() -> None:
    trend = after(
        Totals(enqueued=100, started=90, completed=80, delay_ms=9_000),
        Totals(enqueued=120, started=100, completed=90, delay_ms=29_000),
    )
    assert trend.average_delay == pytest.approx(2.0)
    assert trend.throughput == pytest.approx(5.0)
    assert trend.growth == pytest.approx(2.0)


def test_a_later_look_is_smoothed_into_what_is_known() -> None:
    steady = [Totals(started=10 * i, completed=10 * i, delay_ms=10_000 * i) for i in range(6)]
    assert after(*steady).average_delay == pytest.approx(1.0)
    slower = Totals(started=60, completed=60, delay_ms=50_000 + 110_000)
    assert 1.0 < (after(*steady, slower).average_delay or 0) < 11.0


def test_an_old_delay_fades_while_nothing_is_there_to_be_started() -> None:
    first, second = Totals(), Totals(started=10, completed=10, delay_ms=100_000)
    delays = [after(first, second, *[second] * idle).average_delay or 0.0 for idle in range(12)]
    assert delays == sorted(delays, reverse=True)
    assert delays[-1] < 1.0


def test_a_counter_that_fell_begins_anew_instead_of_telling_nonsense() -> None:
    trend = after(Totals(started=90, completed=80, delay_ms=9_000), Totals(started=3, completed=2, delay_ms=10))
    assert (trend.throughput, trend.average_delay) == (None, None)
    assert trend.totals == Totals(started=3, completed=2, delay_ms=10)


def test_a_look_that_took_no_time_divides_by_nothing() -> None:
    trend = after(Totals(), Totals(started=5, completed=5), every=0.0)
    assert trend.throughput is None


def test_a_system_that_does_not_tell_leaves_nothing_to_follow() -> None:
    assert after(Totals(completed=5), Totals(completed=9), None) == Trend()


counts = st.builds(
    Totals,
    enqueued=st.integers(0, 10**9),
    started=st.integers(0, 10**9),
    completed=st.integers(0, 10**9),
    delay_ms=st.integers(0, 10**12),
)


@given(st.lists(st.tuples(st.none() | counts, st.floats(-5, 1e6)), max_size=8))
def test_whatever_the_counters_do_every_figure_is_a_number_and_none_is_negative(
    looks: list[tuple[Totals | None, float]],
) -> None:
    trend, now = Trend(), 1_000.0
    for totals, pause in looks:
        now += pause
        trend = follow(trend, totals, now)
        for figure in (trend.average_delay, trend.throughput, trend.growth):
            assert figure is None or (math.isfinite(figure) and figure >= 0)
