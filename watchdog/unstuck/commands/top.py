"""``unstuck top``: queues, stuck jobs and rescues at a terminal, live."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from unstuck.choosing import Choice
from unstuck.commands.inspect import window_of
from unstuck.commands.options import settings_options
from unstuck.config import Settings
from unstuck.errors import UsageError
from unstuck.healthcheck import reached
from unstuck.terminal import progress, shown
from unstuck.top.choices import SORTS, Choices
from unstuck.top.sources import AgentSource, AgentUnavailable, RedisSource, Source, narrowed_to


@click.command(short_help="Watch queues, workers and rescues live.")
@settings_options("redis_timeout", "stuck_after", "gone_after", lazy=True)
@click.option(
    "--url",
    metavar="URL",
    help="Address of a running agent. Default: where http.listen says (http://127.0.0.1:9797), unless --redis is given.",
)
@click.option("--user", metavar="NAME", default="", help="User name, where the agent asks for one (http.basic_auth).")
@click.option("--password-file", metavar="FILE", help="File with the password; without it, it is asked for.")
@click.option("--ca", metavar="FILE", default="", help="Authority of the agent's certificate (PEM).")
@click.option("--cert", metavar="FILE", default="", help="Our own certificate, where the agent asks for one (PEM).")
@click.option("--key", metavar="FILE", default="", help="The key of that certificate.")
@click.option("--backend", "backends", metavar="NAME", multiple=True, help="Only queues of this system; repeatable.")
@click.option(
    "--queue", "queues", metavar="[BACKEND/]NAME", multiple=True, help="Only this queue (* and ? allowed); repeatable."
)
@click.option("--sort", type=click.Choice(SORTS), default=SORTS[0], show_default=True, help="Order of the queues.")
@click.option("--interval", metavar="DURATION", default="2s", show_default=True, help="Time between two looks.")
@click.option("--once", is_flag=True, help="Print one screen and exit; so does a standard output that is no terminal.")
def command(
    load_settings: Callable[[], Settings],
    url: str | None,
    user: str,
    password_file: str | None,
    ca: str,
    cert: str,
    key: str,
    backends: tuple[str, ...],
    queues: tuple[str, ...],
    sort: str,
    interval: str,
    once: bool,
) -> int:
    """Watch queues, stuck jobs and rescues live: through a running agent, or with --redis straight from Redis.

    Through an agent it costs Redis nothing and tells of rescues, gate, brake and leader. Straight from Redis it only
    reads, as inspect does. Keys: q quit, s sort, r reverse, / filter, arrows scroll, ? help.

    Exit status: 0 fine, 2 wrong usage, 3 the agent or Redis does not answer at the start.

    Example: unstuck top --url http://127.0.0.1:9797
    """
    settings = load_settings()
    direct = settings.place("redis").startswith("flag")
    if url and direct:
        raise UsageError("--url and --redis are two places to look at; give one of them")
    choice = Choice.of(backends, queues)
    seconds = max(0.2, window_of(interval))
    source: Source
    if direct:
        source = RedisSource(settings, choice, window_of("3s"))
    else:
        password = secret(user, password_file)
        source = AgentSource(url or reached(settings.http), user=user, password=password, ca=ca, cert=cert, key=key)
    try:
        return show(source, choice, Choices(sort=sort), seconds, once=once, hint=not direct and not url)
    finally:
        source.close()


def show(source: Source, choice: Choice, choices: Choices, interval: float, *, once: bool, hint: bool) -> int:
    """Look once, then print that or go on looking."""
    from unstuck.top.live import console, one_frame, watch

    try:
        with progress() as tell:
            tell("looking")
            first = narrowed_to(source.read(), choice)
    except AgentUnavailable as error:
        mend = "; start it with unstuck run, or look straight at Redis with --redis URL" if hint else ""
        raise AgentUnavailable(f"{error}{mend}") from error
    for missed in choice.missed([(one["backend"], one["queue"]) for one in first.doc["queues"]]):
        click.echo(f"unstuck: note: {shown(missed)}", err=True)
    terminal = sys.stdout.isatty() and sys.stdin.isatty()
    if once or not terminal:
        one_frame(first, choices, console(piped=not sys.stdout.isatty()))
        return 0
    try:
        watch(source, first, choices, interval, lambda seen: narrowed_to(seen, choice))
    except KeyboardInterrupt:
        return 0
    return 0


def secret(user: str, path: str | None) -> str:
    """The password: from the file, or asked for where there is a user and a terminal."""
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--password-file: cannot read {path}: {error}") from error
    if user and sys.stdin.isatty():
        return str(click.prompt(f"Password of {shown(user)}", hide_input=True, err=True))
    return ""
