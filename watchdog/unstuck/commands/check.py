"""``unstuck check``: is everything right for the agent, and if not, what is to be mended?"""

from __future__ import annotations

import json
from collections.abc import Callable

import click

from unstuck.adapters import WATCHED, unwatched
from unstuck.checkup import FAILURES, Result, examine
from unstuck.commands.options import json_option, settings_options
from unstuck.config import Settings
from unstuck.connections import Connections
from unstuck.errors import ConfigurationError, explain
from unstuck.spelling import counted

_SIGNS = {"ok": "✓", "warning": "!", "error": "✗"}


@click.command(short_help="Check configuration, connection, rights and server settings.")
@settings_options("redis_timeout", "mode", lazy=True)
@json_option
@click.option("--fail-on", type=click.Choice(["warning"]), help="Exit 1 when there is a warning.")
def command(load_settings: Callable[[], Settings], as_json: bool, fail_on: str | None) -> int:
    """Check the configuration, the connection, the user's rights and the server's settings; write nothing.

    Each line says what is right (✓), what should be mended (!) and what must be (✗). Exit status: 0 fine, 2 bad
    configuration, 3 Redis not reachable or not usable, 1 warnings (only with --fail-on).

    Example: unstuck check --config unstuck.yaml --fail-on warning
    """
    report = _Report(as_json)
    try:
        settings = load_settings()
    except ConfigurationError as error:
        faults = error.problems or (error,)
        for fault in faults:
            sentence, _, mend = str(fault).partition("; ")
            report.add(Result("configuration", "error", sentence, mend))
        report.close()
        return error.exit_code
    report.add(_configuration(settings))
    with Connections.of(settings, role="check") as connections:
        try:
            client = connections.reading()
        except FAILURES as error:
            sentence, _, mend = str(explain(error, settings.address)).partition("; ")
            report.add(Result("connection", "error", sentence, mend))
            report.close()
            return 3
        for result in examine(client, settings):
            report.add(result)
    report.close()
    if "error" in report.statuses:
        return 3
    return 1 if fail_on and "warning" in report.statuses else 0


def _configuration(settings: Settings) -> Result:
    given = [name for name in settings.places if name not in ("queues", "webhooks")]
    parts = [f"{len(given)} set, the rest at their defaults" if given else "all defaults"]
    if settings.queues:
        parts.append(f"{counted(len(settings.queues), 'entry', 'entries')} in queues")
    said = f"{', '.join(parts)}; mode {settings.mode.value}; digest {settings.digest}"
    if deaf := unwatched(settings):
        said = f"{said}; no effect yet: {', '.join(deaf)}"
        return Result("configuration", "warning", said, f"there are adapters for {' and '.join(WATCHED)} only")
    return Result("configuration", "ok", said)


class _Report:
    """Prints results as they come, faults to standard error; or all at the end as one JSON document."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.results: list[Result] = []

    @property
    def statuses(self) -> set[str]:
        return {result.status for result in self.results}

    def add(self, result: Result) -> None:
        self.results.append(result)
        if self.as_json:
            return
        mend = f"; {result.mend}" if result.mend else ""
        line = f"{_SIGNS[result.status]} {result.check:<14}{result.detail}{mend}"
        click.echo(line, err=result.status == "error")

    def close(self) -> None:
        if self.as_json:
            document = {"ok": "error" not in self.statuses, "checks": [result.as_dict() for result in self.results]}
            click.echo(json.dumps(document, indent=2, ensure_ascii=False))
