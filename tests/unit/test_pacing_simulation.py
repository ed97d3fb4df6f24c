"""C100, C101: with the worker contract kept, no interval that an agent publishes turns a burst into a queue that never drains.

On the virtual clock of bench/pacing: the real policies, the real smoothing, pollers that keep the contract or break it.
"""

import functools
import importlib.util
import math
import sys
from pathlib import Path

import pytest

from unstuck.policies import POLICIES

FOLDER = Path(__file__).parents[2] / "bench" / "pacing"


def simulator():
    """bench/pacing/simulator.py; bench is no package of ours."""
    name = "bench_pacing_simulator"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / "simulator.py")
        assert spec
        assert spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


sim = simulator()
LOADS = (0.4, 0.6, 0.8, 0.95)
POLLING = {"pollers": 20, "base": 1.0, "run_time": 0.0, "burst_at": 60.0, "until": 560.0}
WORKING = {"pollers": 20, "base": 0.2, "run_time": 1.0, "burst_at": 60.0, "until": 560.0}
KEEPING = (sim.CONTRACT, sim.CONTRACT_MEMORY, sim.FLEET)


@functools.cache
def run(way, load, **scenario):
    return sim.simulate(way, sim.Scenario(rate=20 * load, **scenario))


def no_worse(ours, theirs):
    """Recovery and 95th percentile; a hundredth of a second for what a command takes."""
    assert ours.recovery() <= theirs.recovery(), f"{ours.way.name}: {ours.recovery()} s, fixed {theirs.recovery()} s"
    assert ours.p95() <= theirs.p95() + 0.01, f"{ours.way.name}: {ours.p95()} s, fixed {theirs.p95()} s"


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("scenario", [POLLING, WORKING], ids=["polling", "working"])
def test_after_a_burst_the_contract_is_no_worse_than_any_fixed_interval(scenario, load):
    every_poll = run(sim.FIXED_EVERY_POLL, load, **scenario)
    empty_only = run(sim.FIXED, load, **scenario)
    for way in KEEPING:
        ours = run(way, load, **scenario)
        no_worse(ours, every_poll)
        no_worse(ours, empty_only)
        assert math.isfinite(ours.recovery())


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("scenario", [POLLING, WORKING], ids=["polling", "working"])
def test_without_wakes_it_is_still_no_worse_than_a_fixed_interval(scenario, load):
    no_worse(run(sim.CONTRACT_SLEEPING, load, **scenario), run(sim.FIXED_EVERY_POLL, load, **scenario))


@pytest.mark.parametrize("way", [sim.NAIVE, sim.NAIVE_MEMORY], ids=lambda way: way.name)
def test_the_interval_used_on_every_poll_never_lets_the_burst_drain(way):
    """The reason for the rule: at 60 % load a fixed interval recovers, the same formula on every poll does not."""
    ours, fixed = run(way, 0.6, **POLLING), run(sim.FIXED_EVERY_POLL, 0.6, **POLLING)
    assert math.isfinite(fixed.recovery())
    assert math.isinf(ours.recovery())
    backlog = {s.at: s.backlog for s in ours.samples}
    assert 600 < backlog[200.0] < backlog[400.0] < backlog[560.0]


@pytest.mark.parametrize("way", [sim.CONTRACT, sim.CONTRACT_SLEEPING, sim.FLEET], ids=lambda way: way.name)
def test_an_idle_fleet_of_a_thousand_polls_at_least_ten_times_less_than_at_the_fixed_base(way):
    idle = sim.Scenario(pollers=1000, rate=0.0, burst=0, base=0.2, until=50.0)
    ours = sim.simulate(way, idle)
    fixed = sim.simulate(sim.FIXED, sim.Scenario(pollers=1000, rate=0.0, burst=0, base=0.2, until=10.0, command=1e-6))
    assert ours.polls_per_second(30, 50) <= fixed.polls_per_second(5, 10) / 10


@pytest.mark.parametrize("pollers", [50, 200, 800])
def test_the_fleet_policy_keeps_the_rate_of_polls_whatever_the_number_of_pollers(pollers):
    idle = sim.Scenario(pollers=pollers, rate=0.0, burst=0, base=0.2, until=40.0, fleet_rate=100.0)
    polls = sim.simulate(sim.FLEET_SLEEPING, idle).polls_per_second(20, 40)
    assert polls == pytest.approx(100.0, rel=0.12)


def test_an_idle_worker_learns_of_a_job_by_its_wake_and_not_by_its_next_poll():
    """In numbers of events: the wait of a job is that of a command, while every poller sleeps for seconds."""
    rare = sim.Scenario(pollers=20, rate=0.2, burst=0, base=0.2, burst_at=30.0, until=330.0)
    waking, sleeping = sim.simulate(sim.CONTRACT, rare), sim.simulate(sim.CONTRACT_SLEEPING, rare)
    assert max(waking.waits_since(30.0)) < 0.005
    assert max(sleeping.waits_since(30.0)) > 0.05
    assert waking.polls_per_second(60, 330) < 20 / 0.2 / 10


def test_a_run_is_the_same_whenever_it_is_made():
    small = sim.Scenario(pollers=5, until=100.0, burst_at=50.0)
    one, two = (sim.simulate(sim.CONTRACT_SLEEPING, small) for _ in range(2))
    assert one.waits == two.waits
    assert one.polls == two.polls


def test_every_policy_is_simulated():
    ways = [way for way in vars(sim).values() if isinstance(way, sim.Way)]
    assert {way.policy for way in ways} == set(POLICIES)
