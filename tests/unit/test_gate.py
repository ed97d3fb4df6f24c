"""The gate: every cause closes it at once, and keeps it closed for a window after it was last seen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstuck.clock import ManualClock
from unstuck.gate import CAUSES, WRITE_ERRORS, Gate
from unstuck.model import ServerSnapshot

WINDOW, INTERVAL = 30.0, 2.0
HEALTHY = ServerSnapshot("run", "repl", "master", "7.0.15", 1_700_000_000_000, 100_000.0, maxmemory=100, used_memory=10)


@dataclass
class Guard:
    """A gate that has been watching a healthy server for a full window, and a clock to go on with."""

    clock: ManualClock = field(default_factory=ManualClock)
    gate: Gate = field(default_factory=lambda: Gate(WINDOW, INTERVAL))
    server: ServerSnapshot = HEALTHY

    def look(self, after: float = INTERVAL, **changes: Any) -> Gate:
        """One look `after` seconds after the last; changes of the server last, others (`drift`) do not."""
        drift = changes.pop("drift", 0.0)
        self.clock.advance(after)
        self.server = replace(self.server, server_ms=self.server.server_ms + round((after + drift) * 1000), **changes)
        self.gate = self.gate.assess(self.server, self.clock.monotonic())
        return self.gate

    def opened(self) -> Guard:
        for _ in range(round(WINDOW / INTERVAL) + 1):
            self.look()
        assert self.gate.state.open, self.gate.state
        return self


@pytest.fixture
def guard() -> Guard:
    return Guard().opened()


def open_after(guard: Guard) -> float:
    """Seconds of healthy looks until the gate opens."""
    begun = guard.clock.monotonic()
    while not guard.gate.state.open:
        guard.look(0.5)
        assert guard.clock.monotonic() - begun < 3 * WINDOW, guard.gate.state
    return guard.clock.monotonic() - begun


PERSISTING = {
    "loading": {"loading": True},
    "readonly": {"role": "slave"},
    "oom": {"used_memory": 100},
    "noreplicas": {"min_replicas": 1, "good_replicas": 0},
    "young": {"uptime": 29.0},
}
AT_ONCE: dict[str, dict[str, Any]] = {
    **PERSISTING,
    "restarted": {"run_id": "another"},
    "failover": {"replication_id": "another"},
    "role": {"role": "slave"},
    "evicting": {"evicted_keys": 1},
    "clock": {"drift": 1.5},
    "late": {"after": 2 * INTERVAL + 0.1},
}

# A Redis that is merely young has done no harm yet: the gate waits for its age, and what was watched counts.
TROUBLE = {cause: look for cause, look in AT_ONCE.items() if cause != "young"}


@pytest.mark.parametrize("cause", AT_ONCE)
def test_each_cause_closes_the_gate_in_the_look_that_shows_it(guard: Guard, cause: str) -> None:
    """C22, C23, C82: an outage is believed at once."""
    state = guard.look(**AT_ONCE[cause]).state
    assert not state.open
    assert cause in state.reasons


@pytest.mark.parametrize(("error", "cause"), WRITE_ERRORS.items())
def test_a_refused_write_counted_by_redis_closes_it_whoever_was_refused(guard: Guard, error: str, cause: str) -> None:
    assert cause in guard.look(write_errors={error: 1}).state.reasons
    assert open_after(guard) == pytest.approx(WINDOW, abs=0.5)


@pytest.mark.parametrize("error", WRITE_ERRORS)
def test_refusals_from_before_our_time_prove_nothing(error: str) -> None:
    guard = Guard(server=replace(HEALTHY, write_errors={error: 7}))
    guard.opened()
    assert guard.look(write_errors={error: 7}).state.open


def test_counters_that_a_restart_set_back_are_no_new_refusals(guard: Guard) -> None:
    guard.look(write_errors={"OOM": 7})
    reasons = guard.look(run_id="another", write_errors={"OOM": 9}).state.reasons
    assert "restarted" in reasons


@pytest.mark.parametrize("cause", ["unreachable", "unwritable", "oom", "readonly", "busy", "noreplicas", "misconf"])
def test_a_failed_exchange_of_our_own_closes_it(guard: Guard, cause: str) -> None:
    guard.gate = guard.gate.failed(cause, guard.clock.monotonic())
    assert guard.gate.state.reasons == (cause,)
    assert open_after(guard) == pytest.approx(WINDOW, abs=0.5)


def test_every_cause_is_explained() -> None:
    shown = {*AT_ONCE, *WRITE_ERRORS.values(), "unreachable", "unwritable", "watching"}
    assert shown == set(CAUSES)


@pytest.mark.parametrize("cause", [cause for cause in AT_ONCE if cause not in {"young", "role"}])
def test_it_stays_closed_for_a_whole_window_after_a_cause_was_last_seen(guard: Guard, cause: str) -> None:
    guard.look(**AT_ONCE[cause])
    if cause in PERSISTING:  # still there for a while: the window begins when it is over
        for _ in range(10):
            guard.look()
    guard.server = replace(
        guard.server, loading=False, role="master", used_memory=10, min_replicas=0, good_replicas=None
    )
    assert open_after(guard) == pytest.approx(WINDOW, abs=INTERVAL)


def test_a_young_redis_is_distrusted_until_it_is_a_window_old_and_no_longer() -> None:
    guard = Guard(server=replace(HEALTHY, uptime=0.0))
    seconds = 0.0
    while not guard.gate.state.open:
        seconds += INTERVAL
        guard.look(uptime=seconds)
        assert guard.gate.trustworthy_memory, "waiting for its age spoils nothing that was watched"
        assert guard.gate.steady(guard.clock.monotonic()) <= seconds
        assert seconds < 4 * WINDOW
    assert WINDOW <= seconds <= WINDOW + 2 * INTERVAL


def test_a_demoted_redis_that_becomes_primary_again_is_distrusted_for_a_window(guard: Guard) -> None:
    guard.look(role="slave")
    assert {"role", "readonly"} <= set(guard.look(role="master").state.reasons)
    assert open_after(guard) == pytest.approx(WINDOW, abs=0.5)


@pytest.mark.parametrize("drift", [-0.9, 0.9, 1.0, -1.0])
def test_clocks_that_advance_by_nearly_the_same_are_fine(guard: Guard, drift: float) -> None:
    assert guard.look(drift=drift).state.open


@pytest.mark.parametrize("drift", [-3600.0, -1.1, 1.1, 3600.0])
def test_a_jump_of_redis_clock_closes_it_in_both_directions(guard: Guard, drift: float) -> None:
    assert guard.look(drift=drift).state.reasons == ("clock",)


def test_a_sweep_that_came_late_by_an_interval_exactly_is_still_in_time(guard: Guard) -> None:
    assert guard.look(after=2 * INTERVAL).state.open
    assert guard.look(after=2 * INTERVAL + 0.01).state.reasons == ("late",)


def test_evictions_that_stopped_count_for_one_window_only(guard: Guard) -> None:
    guard.look(evicted_keys=50)
    assert open_after(guard) == pytest.approx(WINDOW, abs=0.5)


def test_memory_at_its_limit_with_an_evicting_policy_is_not_out_of_memory(guard: Guard) -> None:
    assert guard.look(used_memory=100, policy="allkeys-lru").state.open


class TestWatching:
    def test_an_agent_watches_for_a_full_window_before_it_opens(self) -> None:
        """C52: nothing is touched by a fresh agent."""
        guard = Guard()
        assert guard.gate.state.reasons == ("watching",)
        guard.look(0.0)
        assert guard.gate.state.opens_in == WINDOW
        assert open_after(guard) == pytest.approx(WINDOW)

    def test_waiting_alone_spoils_no_memory_every_other_cause_does(self, guard: Guard) -> None:
        fresh = Guard()
        fresh.look(0.0)
        assert fresh.gate.trustworthy_memory
        assert guard.gate.trustworthy_memory
        fresh.look(evicted_keys=1)
        assert set(fresh.gate.state.reasons) == {"watching", "evicting"}
        assert not fresh.gate.trustworthy_memory
        guard.look(drift=2.0)
        assert not guard.gate.trustworthy_memory

    def test_who_begins_to_watch_anew_waits_a_window_and_forgets_the_last_look(self, guard: Guard) -> None:
        guard.clock.advance(500.0)  # it was a standby all the while
        guard.gate = guard.gate.restarted_watch(guard.clock.monotonic())
        assert guard.gate.state.reasons == ("watching",)
        assert guard.look(0.0).state.reasons == ("watching",), "neither late nor a jump of the clock"
        assert open_after(guard) == pytest.approx(WINDOW, abs=0.5)

    def test_a_new_watch_does_not_open_a_gate_that_an_outage_has_closed(self, guard: Guard) -> None:
        guard.gate = guard.gate.failed("unreachable", guard.clock.monotonic())
        guard.gate = guard.gate.restarted_watch(guard.clock.monotonic())
        assert "unreachable" in guard.gate.state.reasons


class TestSteadiness:
    def test_it_counts_from_the_begin_of_the_watch(self) -> None:
        guard = Guard()
        assert guard.gate.steady(guard.clock.monotonic()) == 0.0
        guard.look(0.0)
        guard.look(3.0)
        assert guard.gate.steady(guard.clock.monotonic()) == 3.0

    @pytest.mark.parametrize("cause", TROUBLE)
    def test_any_trouble_sets_it_back(self, guard: Guard, cause: str) -> None:
        guard.look(**TROUBLE[cause])
        assert guard.gate.steady(guard.clock.monotonic()) == 0.0

    def test_a_failed_exchange_or_a_new_watch_sets_it_back(self, guard: Guard) -> None:
        now = guard.clock.monotonic()
        assert guard.gate.steady(now) >= WINDOW
        assert guard.gate.failed("unreachable", now).steady(now) == 0.0
        assert guard.gate.restarted_watch(now).steady(now) == 0.0


def test_it_says_when_it_would_open(guard: Guard) -> None:
    guard.look(evicted_keys=1)
    guard.look(10.0 if INTERVAL > 10 else INTERVAL)
    assert guard.gate.state.opens_in == pytest.approx(WINDOW - INTERVAL)


@given(st.lists(st.tuples(st.sampled_from([None, None, *TROUBLE]), st.floats(0.1, 2 * INTERVAL - 0.1)), max_size=60))
def test_it_is_open_exactly_when_no_cause_was_seen_for_a_window(looks: list[tuple[str | None, float]]) -> None:
    guard = Guard().opened()
    last_cause = float("-inf")
    for number, (cause, after) in enumerate(looks):
        well: dict[str, Any] = {name: getattr(HEALTHY, name) for name in ("role", "loading", "used_memory", "uptime")}
        well |= {"min_replicas": 0, "good_replicas": None, "after": after}
        changes = dict(AT_ONCE[cause]) if cause else {}
        changes |= {name: f"{number}" for name in ("run_id", "replication_id") if name in changes}
        changes |= {name: number + 1 for name in ("evicted_keys",) if name in changes}
        demoted = guard.server.role != "master"
        guard.look(**well | changes)
        now = guard.clock.monotonic()
        if cause or demoted:
            last_cause = now
        assert guard.gate.state.open is (now - last_cause >= WINDOW)
