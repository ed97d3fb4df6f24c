"""Simulates every scenario and writes the figures: `python -m pacing.run FOLDER [scenario …]` from bench/, some minutes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pacing import simulator as sim
from pacing.simulator import Run, Scenario, Way, simulate

POLLING = Scenario(pollers=20, base=1.0, run_time=0.0)  # capacity 20/s where each poller polls once a second
WORKING = Scenario(pollers=20, base=0.2, run_time=1.0, until=900.0)  # capacity 20/s of the workers themselves
LOADS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
WAYS = (
    sim.FIXED_EVERY_POLL,
    sim.FIXED,
    sim.CONTRACT,
    sim.CONTRACT_SLEEPING,
    sim.CONTRACT_MEMORY,
    sim.FLEET,
    sim.NAIVE,
    sim.NAIVE_MEMORY,
)
FLEETS = (20, 50, 100, 200, 500, 1000, 2000, 5000)


def over_time(run: Run) -> dict[str, Any]:
    """A run as lines of a plot."""
    polls = [
        (later.at, (later.polls - sooner.polls) / (later.at - sooner.at))
        for sooner, later in zip(run.samples, run.samples[1:], strict=False)
    ]
    return {
        "backlog": [(s.at, s.backlog) for s in run.samples],
        "p95": run.p95_over_time(),
        "polls": polls,
        "interval": [(s.at, s.interval) for s in run.samples],
    }


def bursts() -> dict[str, Any]:
    """One burst at 60 % load, over time."""
    scenario = replace(POLLING, rate=12.0, until=1800.0)
    return {way.name: over_time(simulate(way, scenario, every=5.0)) for way in WAYS}


def by_load(scenario: Scenario) -> dict[str, Any]:
    """95th percentile of the wait after the burst, and recovery, for each load."""
    found: dict[str, Any] = {}
    for way in WAYS:
        runs = [simulate(way, replace(scenario, rate=20 * load, until=1200.0)) for load in LOADS]
        found[way.name] = {"p95": [run.p95() for run in runs], "recovery": [run.recovery() for run in runs]}
    return {"loads": LOADS, "ways": found}


def idle() -> dict[str, Any]:
    """A fleet that has nothing to do: commands per second over time (1,000 workers), and by its size."""
    quiet = Scenario(base=0.2, rate=0.0, burst=0, until=45.0)
    ways = (sim.FIXED, sim.CONTRACT, sim.CONTRACT_SLEEPING, sim.FLEET, sim.FLEET_SLEEPING)
    in_time = {way.name: over_time(simulate(way, replace(quiet, pollers=1000, command=1e-6)))["polls"] for way in ways}
    size = {
        way.name: [idle_rate(way, replace(quiet, pollers=pollers, command=1e-6)) for pollers in FLEETS] for way in ways
    }
    return {"over_time": in_time, "fleets": FLEETS, "by_size": size}


def idle_rate(way: Way, quiet: Scenario) -> float:
    """Commands per second once the waits have grown; a fixed interval is the same from the start."""
    if way.policy == "fixed":
        return simulate(way, replace(quiet, until=8.0)).polls_per_second(4, 8)
    return simulate(way, quiet).polls_per_second(25, 45)


def slow_redis() -> dict[str, Any]:
    """Commands of one millisecond: how long a reply takes while the fleet has little to do."""
    ways: tuple[Way, ...] = (sim.FIXED_EVERY_POLL, sim.FIXED, sim.CONTRACT, sim.CONTRACT_SLEEPING, sim.FLEET)
    scenario = Scenario(base=0.2, rate=20.0, run_time=0.1, burst=0, until=45.0, command=0.001, burst_at=25.0)
    found: dict[str, Any] = {}
    for way in ways:
        runs = [simulate(way, replace(scenario, pollers=pollers)) for pollers in FLEETS]
        found[way.name] = {
            "reply": [run.reply_time_between(25, 45) for run in runs],
            "busy": [run.polls_per_second(25, 45) * scenario.command for run in runs],
        }
    return {"fleets": FLEETS, "ways": found}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[2:]
    for name, made in (
        ("bursts", bursts),
        ("polling", lambda: by_load(POLLING)),
        ("working", lambda: by_load(WORKING)),
        ("idle", idle),
        ("slow", slow_redis),
    ):
        if wanted and name not in wanted:
            continue
        (folder / f"{name}.json").write_text(json.dumps(made()))
        print(name, flush=True)
