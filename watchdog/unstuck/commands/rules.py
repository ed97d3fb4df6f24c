"""``unstuck rules``: the shipped alert rules, with thresholds of your own if you like."""

from __future__ import annotations

import click

from unstuck.assets import asset
from unstuck.errors import UsageError


@click.command(short_help="Print the shipped alert rules.")
@click.option("--slo", is_flag=True, help="Print the burn-rate rules of the objective 'jobs start in time' instead.")
@click.option("--alertmanager", is_flag=True, help="Print an Alertmanager configuration to start from instead.")
@click.option("--thresholds", "list_thresholds", is_flag=True, help="Print every threshold, its value and meaning.")
@click.option("--runbook", metavar="ALERT", help="Print the runbook of one alert instead.")
@click.option(
    "--set", "changes", metavar="NAME=VALUE", multiple=True, help="Another value for a threshold; may be repeated."
)
def command(
    *, slo: bool, alertmanager: bool, list_thresholds: bool, runbook: str | None, changes: tuple[str, ...]
) -> None:
    """Print alerting and recording rules for Prometheus, ready for `rule_files`.

    Example: unstuck rules --set latency_seconds=60 > /etc/prometheus/unstuck.yml
    """
    from unstuck_exporters.rules import rendered

    if sum((slo, alertmanager, list_thresholds, runbook is not None)) > 1:
        raise UsageError("--slo, --alertmanager, --thresholds and --runbook exclude each other")
    if changes and (alertmanager or list_thresholds or runbook):
        raise UsageError("--set changes rules only")
    if alertmanager:
        text = asset("alerts/alertmanager.yml").read_text(encoding="utf-8")
    elif list_thresholds:
        text = asset("alerts/thresholds.yml").read_text(encoding="utf-8")
    elif runbook is not None:
        text = _runbook(runbook)
    else:
        text = rendered("slo" if slo else "rules", dict(map(_pair, changes)))
    click.echo(text, nl=False)


def _pair(given: str) -> tuple[str, str]:
    name, sign, value = given.partition("=")
    if not sign:
        raise UsageError(f"--set {given} has no value; write --set NAME=VALUE")
    return name.strip(), value.strip()


def _runbook(alert: str) -> str:
    from unstuck.spelling import did_you_mean

    known = {page.name.removesuffix(".md"): page for page in asset("alerts/runbooks").iterdir()}
    if alert not in known:
        raise UsageError(f"there is no alert {alert}{did_you_mean(alert, known)}")
    return known[alert].read_text(encoding="utf-8")
