"""The report of a chaos run, for people and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.account import Tally


@dataclass
class Report:
    """What one run is told as."""

    name: str
    seed: int
    seconds: float
    versions: dict[str, str]
    faults: dict[str, int]
    tally: Tally
    settings: dict[str, float]
    notes: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """Every broken promise, in a sentence."""
        told = self.tally
        failures = [f"lost: {one}" for one in told.lost]
        failures += [f"stale commit accepted: {one}" for one in told.stale_accepted]
        failures += [f"healthy job reclaimed: {one}" for one in told.healthy_reclaimed]
        failures += [f"committed twice under one token: {one}" for one in told.committed_twice]
        failures += [f"L1: {one}" for one in told.late]
        return failures + told.violations

    def text(self) -> str:
        """For people."""
        told, failures = self.tally, self.failures
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [f"chaos run {self.name}, seed {self.seed}, {self.seconds:.0f} s, {versions}"]
        lines.append(f"  jobs {told.jobs}: done {told.done}, dead {told.dead}, lost {len(told.lost)}")
        lines.append("  faults " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())))
        lines.append(f"  stale commits accepted {len(told.stale_accepted)}; refused {told.stale_refused} by the store")
        lines[-1] += f", {told.refused_by_redis} writes by Redis"
        lines.append(f"  healthy jobs reclaimed {len(told.healthy_reclaimed)}")
        lines.append(f"  effects started {told.starts}, {told.started_again} of them again (allowed)")
        lines[-1] += f"; committed under a second token {told.committed_again}"
        lines[-1] += f", twice under one token {len(told.committed_twice)}"
        lines.append("  rescues " + (", ".join(f"{why} {n}" for why, n in sorted(told.rescues.items())) or "none"))
        if told.promotions:
            lines.append(f"  promotions {told.promotions}: jobs lost to replication {len(told.lost_to_replication)}")
            lines[-1] += f", events lost {told.events_lost}, attempts rerun because their end was lost {told.reruns}"
        for name, figures in told.detection.items():
            open_, wall = (
                ", ".join(f"{what} {figures[f'{kind}_{what}']} s" for what in ("median", "p99", "max"))
                for kind in ("open", "wall")
            )
            lines.append(f"  found ({name}, {figures['count']:.0f}): {open_} of at most {figures['bound']:.2f} s")
            lines[-1] += f" with an open gate; wall {wall}"
        lines += [f"  {name}: {value}" for name, value in told.more.items()]
        lines += [f"  note: {note}" for note in self.notes]
        lines.append(f"  {len(failures)} broken promises" if failures else "  every promise held")
        lines += [f"  BROKEN {failure}" for failure in failures[:40]]
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """Everything."""
        told = {**vars(self), "tally": {**vars(self.tally), "rescues": dict(self.tally.rescues)}}
        return {**told, "failures": self.failures}


def write_reports(path: Path, reports: Sequence[Report]) -> None:
    """One JSON list."""
    path.write_text(json.dumps([report.json() for report in reports], indent=1, default=str) + "\n")
