"""Rule tests for promtool, made from the stories in `support.alert_story`."""

import functools
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from support.alert_story import CALM, SLACK, Case
from support.programs import promtool_program

ALERTS = Path(__file__).resolve().parents[2] / "alerts"


@functools.cache
def groups(name: str) -> list[dict[str, Any]]:
    """The groups of a shipped rule file."""
    read: dict[str, list[dict[str, Any]]] = yaml.safe_load((ALERTS / f"{name}.yml").read_text())
    return read["groups"]


def rules(*names: str) -> Iterator[dict[str, Any]]:
    """Every rule of these files."""
    for name in names:
        for group in groups(name):
            yield from group["rules"]


@functools.cache
def alerts(*names: str) -> dict[str, dict[str, Any]]:
    """The alerting rules of these files, by name."""
    return {rule["alert"]: rule for rule in rules(*names) if "alert" in rule}


def minutes(duration: str) -> int:
    """Whole minutes of a Prometheus duration."""
    number, unit = re.fullmatch(r"(\d+)([mh])", duration).groups()  # type: ignore[union-attr]
    return int(number) * {"m": 1, "h": 60}[unit]


class Story:
    """One alert's case with the times that follow from its rule."""

    def __init__(self, file: str, alert: str, case: Case) -> None:
        self.file, self.alert, self.case = file, alert, case
        self.rule = alerts(file)[alert]
        self.wait = minutes(self.rule.get("for", "0m"))
        self.keep = minutes(self.rule.get("keep_firing_for", "0m"))
        self.trouble = case.trouble or self.wait + SLACK
        self.begins = CALM + case.begins
        self.fires = self.begins + self.wait
        self.ends = CALM + self.trouble + case.ends

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the alert, without its name."""
        return {**self.case.labels, **self.rule["labels"]}

    def states(self) -> dict[int, str]:
        """Minute -> the state at that minute, on both sides of every edge."""
        begun = "pending" if self.wait else "firing"
        told = {self.begins - 1: "", self.begins: begun, self.fires: "firing", self.ends - 1: "firing"}
        if self.wait:
            told[self.fires - 1] = "pending"
        told[self.ends + self.keep] = ""
        if self.keep:
            told[self.ends] = told[self.ends + self.keep - 1] = "firing"
        return told

    def annotations(self) -> dict[str, str]:
        """What the alert carries when it begins to fire."""
        filled = {
            name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: self.labels[label[1]], text)
            for name, text in self.rule["annotations"].items()
        }
        return {**filled, "description": self.case.says}

    def document(self) -> dict[str, Any]:
        """The test as promtool reads it."""
        series = {**self.case.series, **self.case.quiet}
        expected = [{"exp_labels": self.labels, "exp_annotations": self.annotations()}]
        test: dict[str, Any] = {
            "interval": "1m",
            "input_series": [{"series": name, "values": told.values(self.trouble)} for name, told in series.items()],
            "promql_expr_test": [self._state(minute, state) for minute, state in self.states().items()],
        }
        if self.case.says:
            test["alert_rule_test"] = [
                {"eval_time": f"{self.fires}m", "alertname": self.alert, "exp_alerts": expected},
                {"eval_time": f"{self.begins - 1}m", "alertname": self.alert, "exp_alerts": []},
            ]
        return document(self.file, [test])

    def _state(self, minute: int, state: str) -> dict[str, Any]:
        matching = f'ALERTS{{alertname="{self.alert}"}}'
        labels = {"alertname": self.alert, "alertstate": state, **self.labels}
        text = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
        sample = [{"labels": f"ALERTS{{{text}}}", "value": 1}] if state else []
        return {"expr": matching, "eval_time": f"{minute}m", "exp_samples": sample}


def document(file: str, tests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A file of rule tests; records are evaluated before the alerts that use them."""
    return {
        "rule_files": [str(ALERTS / f"{file}.yml")],
        "evaluation_interval": "1m",
        "group_eval_order": [group["name"] for group in groups(file)],
        "tests": list(tests),
    }


def run(document: Mapping[str, Any], folder: Path) -> str:
    """What promtool finds wrong, empty if nothing."""
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump(dict(document), width=10_000))
    done = subprocess.run(
        [promtool_program(), "test", "rules", path], capture_output=True, text=True, check=False, timeout=120
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr
