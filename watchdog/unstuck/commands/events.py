"""``unstuck events``: the audit of a queue. Who lost which job, when, why, and what became of it?"""

from __future__ import annotations

import json
import time
from typing import Any, Final

import click

from unstuck.by_hand import Place, last_events, newest, next_events
from unstuck.commands.options import json_option, settings_options
from unstuck.config import Settings
from unstuck.connections import Connections
from unstuck.errors import classify, explain
from unstuck.terminal import print_json, shown

WAIT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0
_FIRST: Final = ("event", "job", "worker", "token", "cause")


@click.command(short_help="Follow the audit of a queue.")
@click.argument("queue", metavar="[BACKEND/]QUEUE")
@settings_options("redis_timeout")
@json_option
@click.option("--backend", metavar="NAME", help="The queue's system, where it is not our own protocol.")
@click.option("--follow", "-f", is_flag=True, help="Go on showing events as they happen, until Ctrl-C.")
@click.option("--count", type=click.IntRange(0, 10_000), default=50, show_default=True, help="Events of the past.")
def command(settings: Settings, queue: str, as_json: bool, backend: str | None, follow: bool, count: int) -> None:
    """Show what happened to the jobs and locks of QUEUE: acquired, lost, suspected, requeued, dead-lettered, …

    The stream keeps about the last 10,000 events. With --json it is one document {"queue", "events"}; with --follow as
    well it is one JSON object per line.

    Example: unstuck events rq/default --follow
    """
    place = Place.of(queue, backend)
    with Connections.of(settings, role="events") as connections:
        past = last_events(connections.reading(), place, count) if count else []
        if as_json and not follow:
            print_json({"backend": place.backend, "queue": place.queue, "events": past})
            return
        if not past and not follow:
            click.echo(f"unstuck: note: no events of {shown(place)} are recorded", err=True)
        _show(past, as_json)
        if follow:
            start = past[-1]["id"] if past else newest(connections.reading(), place)
            _follow(connections, settings, place, start, as_json)


def _follow(connections: Connections, settings: Settings, place: Place, last: str, as_json: bool) -> None:
    """Show events as they come. A Redis that is away is waited for; what happened meanwhile is shown then."""
    client = connections.blocking(WAIT_SECONDS)
    away = ""
    while True:
        try:
            if away:
                last = min(last, newest(client, place), key=_number)
            entries = next_events(client, place, last, round(WAIT_SECONDS * 1000))
        except Exception as error:
            kind = classify(error)
            if kind not in ("connection", "timeout", "loading"):
                raise
            if kind != away:
                away = kind
                click.echo(f"unstuck: {shown(explain(error, settings.address))}; waiting for it", err=True)
            time.sleep(RETRY_SECONDS)
            continue
        away = ""
        _show(entries, as_json)
        last = entries[-1]["id"] if entries else last


def _number(stream_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in stream_id.split("-"))


def _show(events: list[dict[str, Any]], as_json: bool) -> None:
    for one in events:
        click.echo(json.dumps(one) if as_json else line(one))


def line(one: dict[str, Any]) -> str:
    """One event for people."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one["at_ms"] / 1000)) + f".{one['at_ms'] % 1000:03}Z"
    rest = [name for name in one if name not in (*_FIRST, "id", "at_ms")]
    told = [f"{name}={shown(one[name])}" for name in (*_FIRST[1:], *rest) if one.get(name)]
    return f"{at}  {shown(one.get('event', '?')):<13}  {'  '.join(told)}".rstrip()
