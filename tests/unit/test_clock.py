"""The clocks."""

import pytest

from unstuck.clock import Clock, ManualClock, SystemClock


def test_the_system_clock_goes_on():
    clock: Clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.wall() > 1_700_000_000


def test_a_manual_clock_moves_only_when_told():
    clock = ManualClock(wall_seconds=100.0, monotonic_seconds=5.0)
    assert (clock.wall(), clock.monotonic()) == (100.0, 5.0)
    clock.advance(2.5)
    assert (clock.wall(), clock.monotonic()) == (102.5, 7.5)


def test_a_jump_of_the_wall_clock_leaves_the_monotonic_one_alone():
    clock = ManualClock(wall_seconds=7200.0)
    before = clock.monotonic()
    clock.jump(-3600)
    assert (clock.wall(), clock.monotonic()) == (3600.0, before)
    with pytest.raises(ValueError, match="jump"):
        clock.advance(-1)
