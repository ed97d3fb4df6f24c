"""``unstuck inspect``: one read-only look at any Redis. Which queues are there, and what is stuck in them, and why?"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import click

from unstuck.adapters import adapters_for
from unstuck.choosing import Choice, known_queues, narrowed, none_of_them
from unstuck.commands.options import json_option, settings_options
from unstuck.config import Seconds, Settings
from unstuck.connections import Connections
from unstuck.errors import UsageError, explain
from unstuck.inspection import inspect
from unstuck.protocol import keys
from unstuck.report import failing
from unstuck.terminal import print_json, progress, render, shown

DEFAULT_WINDOW = "3s"
LONGEST_WINDOW_SECONDS = 3600.0


@click.command(short_help="Look once at any Redis: queues, backlog, workers, what is stuck.")
@settings_options("redis_timeout", "stuck_after", "gone_after")
@json_option
@click.option(
    "--window", metavar="DURATION", default=DEFAULT_WINDOW, show_default=True, help="Time between both looks."
)
@click.option("--backend", "backends", metavar="NAME", multiple=True, help="Only queues of this system; repeatable.")
@click.option(
    "--queue", "queues", metavar="[BACKEND/]NAME", multiple=True, help="Only this queue (* and ? allowed); repeatable."
)
@click.option("--fail-on", type=click.Choice(["stuck", "suspect", "any"]), help="Exit 1 when there is such a finding.")
def command(
    settings: Settings,
    as_json: bool,
    window: str,
    backends: tuple[str, ...],
    queues: tuple[str, ...],
    fail_on: str | None,
) -> int:
    """Look at a Redis twice, a few seconds apart, and say which queues there are and what is stuck. Writes nothing.

    "stuck" is what the stored facts prove: no heartbeat for the threshold by the server's own clock, a lease long over,
    a worker's record or connection gone at both looks. "suspect" is what only longer watching could tell. Exit status:
    0 fine, 1 findings (only with --fail-on), 2 wrong usage, 3 Redis not reachable or not usable.

    Example: unstuck inspect --redis redis://127.0.0.1:6379/0 --fail-on stuck
    """
    seconds = window_of(window)
    choice = Choice.of(backends, queues)
    with Connections.of(settings, role="inspect") as connections, progress() as tell:
        client = connections.reading()
        adapters = narrowed(adapters_for(settings, client, client), choice)
        if not adapters:
            raise UsageError("this version has no reader for the chosen queue system yet; leave out --backend")
        try:
            seen = inspect(client, adapters, settings, seconds, lambda wait: pause(wait, tell))
            rows = [(one.snapshot.backend, one.snapshot.queue) for one in seen.queues]
            known = cache(lambda: known_queues(adapters_for(settings, client, client)))
            missed = choice.missed(rows, known)
            others = bool(missed) and not rows and bool(known())
            notes = [] if rows or others else nothing_there(client, [adapter.backend for adapter in adapters])
        except Exception as error:
            if type(error).__module__.split(".")[0] != "redis":
                raise
            raise explain(error, settings.address) from error
        address = connections.describe()
    doc = seen.document
    for sentence in missed:
        click.echo(f"unstuck: note: {shown(sentence)}", err=True)
    if as_json:
        print_json(doc)
    else:
        render(doc, address=address, notes=notes, title=none_of_them(choice) if others else "")
    return 1 if failing(doc, fail_on) else 0


def window_of(text: str) -> float:
    """Seconds of the option. UsageError if it is no sensible duration."""
    try:
        seconds = Seconds.parse(text)
    except ValueError as error:
        raise UsageError(f"--window: {error}") from error
    if not 0 <= seconds <= LONGEST_WINDOW_SECONDS:
        raise UsageError(f"--window: {text} is out of bounds; use 0s to 1h")
    return float(seconds)


def pause(seconds: float, tell: Any) -> None:
    """Wait, and say so where somebody looks."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if seconds > 1:
            tell(f"looked once; looking again in {left:.0f} s")
        time.sleep(min(left, 0.5))


def nothing_there(client: Any, backends: list[str]) -> list[str]:
    """What to tell about a Redis without queues that we know."""
    from redis.exceptions import ResponseError

    known = {"unstuck": "the set unstuck:queues", "rq": "the set rq:queues"}
    looked = ", ".join(f"{backend} ({known[backend]})" if backend in known else backend for backend in backends)
    told = [f"Looked for: {looked}."]
    try:
        ours = sum(int(client.exists(key)) for key in (keys.QUEUES, keys.LEADER))
        here = int(client.dbsize()) - ours
        others = client.info("keyspace")
    except ResponseError:
        return told  # no right to ask: then nothing is claimed
    nothing = "This database holds nothing else." if ours else "This database is empty."
    told.append(f"This database holds {here:,} other {'key' if here == 1 else 'keys'}." if here else nothing)
    elsewhere = [f"{name[2:]} ({told_of.get('keys', 0):,})" for name, told_of in sorted(others.items())]
    number = client.get_connection_kwargs().get("db", 0)
    elsewhere = [one for one in elsewhere if not one.startswith(f"{number} ")]
    if elsewhere:
        told.append(f"Other databases of this server hold keys: {', '.join(elsewhere)}; add /NUMBER to the address.")
    return told
