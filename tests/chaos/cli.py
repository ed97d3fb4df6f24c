"""The command line of the chaos runs."""

import argparse
import sys
from pathlib import Path

from chaos.promotion import run_promotions
from chaos.report import Report, write_reports
from chaos.rq_run import run_rq
from chaos.run import run_single


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Chaos runs against real processes.")
    parser.add_argument("--scenario", default="single", help="single, clocks, promotions, rq; several with commas")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=180.0, help="over which the jobs are enqueued")
    parser.add_argument("--faults", help="words, separated by commas: only faults whose names contain one of them")
    parser.add_argument("--folder", type=Path, help="where logs and the ledger are kept; default: a temporary folder")
    parser.add_argument("--report", type=Path, default=Path("chaos-report.json"))
    given = parser.parse_args()
    only = given.faults.split(",") if given.faults else None
    common = {"jobs": given.jobs, "seed": given.seed, "agents": given.agents, "seconds": given.seconds}

    def say(line: str) -> None:
        print(line, flush=True)

    reports: list[Report] = []
    for scenario in given.scenario.split(","):
        folder = given.folder / scenario if given.folder else None
        if scenario == "promotions":
            reports.append(run_promotions(**common, folder=folder, log=say))
        elif scenario == "rq":
            reports.append(run_rq(**common, folder=folder, log=say))
        else:
            clocks = scenario == "clocks"
            reports.append(run_single(**common, only=only, clocks=clocks, folder=folder, log=say))
    for report in reports:
        print(report.text(), flush=True)
    write_reports(given.report, reports)
    sys.exit(1 if any(report.failures for report in reports) else 0)
