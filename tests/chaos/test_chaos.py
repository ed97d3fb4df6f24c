"""Chaos with real processes, bounded for CI; a failing seed is printed, and replayed with CHAOS_SEED or `python -m tests.chaos`."""

import os
import random
from pathlib import Path

import pytest

from chaos.report import Report
from chaos.run import run_single


@pytest.fixture
def seed() -> int:
    """A new one in every run, unless CHAOS_SEED asks for an old one."""
    return int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1, 1_000_000))


def check(report: Report) -> None:
    print(report.text())
    assert not report.failures, f"replay with CHAOS_SEED={report.seed}\n{report.text()}"


@pytest.mark.timeout(600)
def test_every_fault_of_one_server_loses_nothing_and_touches_nothing_healthy(seed: int, tmp_path: Path) -> None:
    report = run_single(jobs=2000, seed=seed, seconds=150, folder=tmp_path / "chaos")
    check(report)
    assert report.tally.jobs == 2000
    assert report.tally.stale_refused > 0, "no job committed late: the fence was not tried"
