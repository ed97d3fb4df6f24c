"""Chaos with real processes, bounded for CI; a failing seed is printed, and replayed with CHAOS_SEED or `python -m tests.chaos`."""

import os
import random
from pathlib import Path

import pytest

from chaos.faults import AGENT_FAULTS, CLOCK_FAULTS, FLEET_FAULTS, REDIS_FAULTS
from chaos.promotion import COUNTED, PROMOTIONS, run_promotions
from chaos.report import Report
from chaos.rq_run import run_rq
from chaos.run import run_single


@pytest.fixture
def seed() -> int:
    """The same plan of faults in every run; CHAOS_SEED=n plays another, CHAOS_SEED=new one that nobody has seen."""
    asked = os.environ.get("CHAOS_SEED") or "17"
    return random.SystemRandom().randrange(1, 1_000_000) if asked == "new" else int(asked)


def check(report: Report, jobs: int) -> None:
    print(report.text())
    assert not report.failures, f"replay with CHAOS_SEED={report.seed}\n{report.text()}"
    assert report.tally.jobs == jobs
    assert report.tally.detection, "nobody was rescued: the faults missed"


@pytest.mark.timeout(600)
def test_every_fault_of_one_server_loses_nothing_and_touches_nothing_healthy(seed: int, tmp_path: Path) -> None:
    report = run_single(jobs=2000, seed=seed, seconds=120, folder=tmp_path / "chaos")
    check(report, 2000)
    assert set(report.faults) >= {*REDIS_FAULTS, *AGENT_FAULTS, *FLEET_FAULTS}
    assert report.tally.stale_refused + report.tally.refused_by_redis > 0, (
        "no attempt wrote late: fencing was not tried"
    )


@pytest.mark.timeout(400)
def test_a_redis_whose_clock_jumps_by_an_hour_both_ways_is_no_death_and_no_silence(seed: int, tmp_path: Path) -> None:
    report = run_single(jobs=300, seed=seed, seconds=30, only=CLOCK_FAULTS, clocks=True, folder=tmp_path / "chaos")
    check(report, 300)
    assert set(report.faults) >= set(CLOCK_FAULTS)


@pytest.mark.timeout(400)
def test_promotions_lose_nothing_but_what_was_not_replicated(seed: int, tmp_path: Path) -> None:
    report = run_promotions(jobs=400, seed=seed, seconds=40, folder=tmp_path / "chaos")
    check(report, 400)
    assert report.tally.promotions >= len(PROMOTIONS)
    assert report.tally.more[COUNTED] > 0, "no gate was open where the history survived: the bound was not tried"


@pytest.mark.timeout(400)
def test_rq_beside_its_own_cleaner_queues_no_job_twice(seed: int, tmp_path: Path) -> None:
    report = run_rq(jobs=200, seed=seed, seconds=45, folder=tmp_path / "chaos")
    check(report, 200)
