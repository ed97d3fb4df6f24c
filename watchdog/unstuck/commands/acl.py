"""``unstuck acl``: the least rights that a user of Redis needs, as a line for redis-cli."""

from __future__ import annotations

import json

import click

from unstuck.commands.options import json_option
from unstuck.grants import FOREIGN_KEYS, MEANINGS, WAYS, Grant, Way, grant


@click.command(short_help="Print the least-privilege ACL line for each mode.")
@click.argument("mode", required=False, type=click.Choice(WAYS))
@click.option("--user", metavar="NAME", help="Name of the user. Default: unstuck-MODE.")
@click.option(
    "--backend",
    "backends",
    type=click.Choice(sorted(FOREIGN_KEYS)),
    multiple=True,
    help="With mode reclaim: move jobs of this queue system too; repeatable.",
)
@click.option(
    "--keys", "patterns", metavar="PATTERN", multiple=True, help="Further keys, as of a custom queue; repeatable."
)
@click.option("--file", "as_file", is_flag=True, help="Print lines for an aclfile instead of commands for redis-cli.")
@json_option
def command(
    mode: Way | None,
    user: str | None,
    backends: tuple[str, ...],
    patterns: tuple[str, ...],
    as_file: bool,
    as_json: bool,
) -> None:
    """Print the ACL line with the least rights for MODE (inspect, observe, reclaim, worker), or for each of them.

    The line gives no password and takes none away: a new user cannot log in before it has one.

    \b
    Example:
      redis-cli $(unstuck acl reclaim --backend rq)
      redis-cli ACL SETUSER unstuck-reclaim '>PASSWORD'
    """
    ways: tuple[Way, ...] = (mode,) if mode else WAYS
    grants = {way: grant(way, backends if way == "reclaim" else (), patterns) for way in ways}
    for pattern in patterns:
        _check(pattern)
    names = {way: _name(user, way, alone=mode is not None) for way in ways}
    if as_json:
        users = [
            {"mode": way, "for": MEANINGS[way], "user": names[way], "rules": found.rules()}
            for way, found in grants.items()
        ]
        click.echo(json.dumps({"users": users}, indent=2))
        return
    for way, found in grants.items():
        click.echo(_line(names[way], found, as_file))


def _name(user: str | None, way: Way, *, alone: bool) -> str:
    if user is None:
        return f"unstuck-{way}"
    if not user or any(sign.isspace() or not sign.isprintable() for sign in user):
        raise click.BadParameter("a name has no spaces", param_hint="--user")
    return user if alone else f"{user}-{way}"


def _check(pattern: str) -> None:
    if not pattern:
        raise click.BadParameter("it is empty; name keys, as in --keys 'queue:orders:*'", param_hint="--keys")
    if any(sign.isspace() or not sign.isprintable() for sign in pattern):
        raise click.BadParameter(
            f"{pattern!r} holds a blank, which no pattern of an ACL can; write ? in its place", param_hint="--keys"
        )


def _line(name: str, found: Grant, as_file: bool) -> str:
    return " ".join([*(("user",) if as_file else ("ACL", "SETUSER")), name, *found.rules()])
