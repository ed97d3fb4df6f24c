"""``unstuck dashboards``: the shipped Grafana dashboards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from unstuck.assets import asset
from unstuck.errors import UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

NAMES = ("overview", "queue", "reclaims", "agent", "pacing")
"""In the order in which a person needs them."""


@click.command(short_help="Print the shipped dashboards.")
@click.argument("name", required=False, metavar="[NAME]")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write files there instead of printing.",
)
def command(*, name: str | None, out: Path | None) -> None:
    """List the Grafana dashboards, print the JSON of one, or write them into a folder that Grafana is provisioned from.

    NAME is one of the names that are listed, or a uid. They need Grafana 10 or later and one Prometheus that scrapes the agents.

    \b
    Example:
      unstuck dashboards                                     # which there are, and what each is for
      unstuck dashboards overview > overview.json            # to be imported by hand
      unstuck dashboards --out /var/lib/grafana/dashboards   # all of them
    """
    chosen = NAMES if name is None else (_known(name),)
    if out is not None:
        _write(out, chosen)
    elif name is None:
        click.echo("".join(_line(one) for one in chosen), nl=False)
    else:
        click.echo(_file(chosen[0]).read_text(encoding="utf-8"), nl=False)


def _known(given: str) -> str:
    from unstuck.spelling import did_you_mean

    name = given.removeprefix("unstuck-").removesuffix(".json")
    if name not in NAMES:
        raise UsageError(
            f"there is no dashboard {given}{did_you_mean(given, NAMES) or '; there are ' + ', '.join(NAMES)}"
        )
    return name


def _file(name: str) -> Traversable:
    return asset(f"grafana/dashboards/{name}.json")


def _line(name: str) -> str:
    told: dict[str, Any] = msgspec.json.decode(_file(name).read_bytes())
    return f"{name:<10}{told['uid']:<20}{told['description']}\n"


def _write(folder: Path, names: tuple[str, ...]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = folder / f"unstuck-{name}.json"
            path.write_text(_file(name).read_text(encoding="utf-8"), encoding="utf-8")
            click.echo(path)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}; name another folder") from error
