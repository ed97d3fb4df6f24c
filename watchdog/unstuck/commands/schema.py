"""``unstuck schema``: the configuration's JSON schema, for editors and for checks before a roll-out."""

from __future__ import annotations

import json

import click

from unstuck.config import schema


@click.command(short_help="Print the JSON schema of the configuration.")
def command() -> None:
    """Print the JSON schema (draft 2020-12) of the configuration file, with meanings, defaults and units.

    Example: unstuck schema > unstuck.schema.json
    """
    click.echo(json.dumps(schema(), indent=2, ensure_ascii=False))
