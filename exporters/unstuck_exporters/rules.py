"""The shipped alert rules: templates with names in angle brackets, filled in from one file of thresholds.

`make alerts` writes `rules.yml`, `slo.yml` and the table in docs/alerts.md with the thresholds as they are shipped; a test fails
when they differ. `unstuck rules --set stuck_jobs=5` prints them with others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from unstuck.assets import asset
from unstuck.errors import UsageError
from unstuck.spelling import did_you_mean

TEMPLATES: Final = ("rules", "slo")
"""What `rendered` can make."""

_NAME: Final = re.compile(r"<([a-z][a-z0-9_]*)>")
_ALERT: Final = re.compile(r"\s+- alert: (\w+)")
_PLACES: Final = ("selector", "instance_labels", "runbook_base", "grafana", "gap")
_NUMBER: Final = re.compile(r"\d+(\.\d+)?\Z")
_DURATION: Final = re.compile(r"(\d+(ms|[smhdwy]))+\Z")
_MADE: Final = """\
# Made from templates/{name}.yml and thresholds.yml by `make alerts`: change those, not this.
"""


def thresholds() -> dict[str, str]:
    """Name -> value of everything that the rules leave open, as shipped."""
    read: dict[str, Any] = yaml.safe_load(asset("alerts/thresholds.yml").read_text(encoding="utf-8"))
    return {name: str(value) for name, value in read.items()}


def rendered(name: str, changes: Mapping[str, str] | None = None) -> str:
    """A rule file as YAML, with some thresholds changed.

    Raises UsageError for a name that is no threshold, and for a value of another kind than the shipped one.
    """
    values = thresholds()
    for key, value in (changes or {}).items():
        values[key] = _checked(key, value, values)
    alert, lines = "", [_MADE.format(name=name)]
    for line in asset(f"alerts/templates/{name}.yml").read_text(encoding="utf-8").splitlines(keepends=True):
        if found := _ALERT.match(line):
            alert = found[1]
        lines.append(_NAME.sub(lambda match: values[match[1]], line))
        if line.strip() == "annotations:":
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            lines.append(f"{indent}runbook_url: {values['runbook_base']}/{alert}.md\n")
    return "".join(lines)


def _checked(key: str, value: str, known: Mapping[str, str]) -> str:
    if key not in known:
        raise UsageError(f"{key} is no threshold{did_you_mean(key, known) or '; --thresholds shows all'}")
    for kind, example in ((_NUMBER, "a number of 0 or more"), (_DURATION, "a duration such as 5m")):
        if kind.match(known[key]) and not kind.match(value):
            raise UsageError(f"{key}={value} is not taken; write {example}")
    if not value.strip() or "\n" in value:
        raise UsageError(f"{key} is empty or has a line feed; write it like {key}={known[key]}")
    return value


def table() -> str:
    """The alerts as a Markdown table: severity, how long, thresholds, meaning, runbook."""
    values, lines = thresholds(), []
    for name in TEMPLATES:
        made = {
            rule["alert"]: rule
            for group in yaml.safe_load(rendered(name))["groups"]
            for rule in group["rules"]
            if "alert" in rule
        }
        source = asset(f"alerts/templates/{name}.yml").read_text(encoding="utf-8").split("- alert: ")[1:]
        for text in source:
            alert = text.split("\n", 1)[0]
            used = _NAME.findall(text.split("expr:")[1].split("labels:")[0])
            numbers = [f"`{one}` {values[one]}" for one in dict.fromkeys(used) if one not in _PLACES]
            rule = made[alert]
            lines.append(
                f"| [`{alert}`](../alerts/runbooks/{alert}.md) | {rule['labels']['severity']} "
                f"| {rule.get('for', 'at once')} | {rule['annotations']['summary']} | {', '.join(numbers)} |\n"
            )
    return "| alert | severity | for | meaning | thresholds |\n|---|---|---|---|---|\n" + "".join(lines)


def main(folder: str, page: str) -> None:
    """Write the rule files as they are shipped, and the table into the page about them."""
    for name in TEMPLATES:
        Path(folder, f"{name}.yml").write_text(rendered(name), encoding="utf-8")
    text = Path(page).read_text(encoding="utf-8")
    head, _, rest = text.partition("| alert |")
    tail = rest.partition("\n\n")[2]
    Path(page).write_text(f"{head}{table()}\n{tail}", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
