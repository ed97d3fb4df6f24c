"""``unstuck brake``: a person has looked, and the jobs that look dead are dead. Let the agent move them."""

from __future__ import annotations

import click

from unstuck.adapters import adapters_for
from unstuck.by_hand import Place, must_exist, release_brake
from unstuck.commands.options import json_option, settings_options
from unstuck.config import Settings
from unstuck.connections import Connections
from unstuck.terminal import print_json, shown


@click.group(short_help="Release the brake of a queue.")
def command() -> None:
    """The brake holds when more than half of a queue's jobs look dead at once: that may be a fleet that died, or one that
    only looks dead. It lets go slowly by itself after its patience (2 min), or at once when a person says so.

    Example: unstuck brake release mail
    """


@command.command("release", short_help="Let the agent move what the brake of a queue holds back.")
@click.argument("queue", metavar="[BACKEND/]QUEUE")
@settings_options("redis_timeout")
@json_option
@click.option("--backend", metavar="NAME", help="The queue's system, where it is not our own protocol.")
def release(settings: Settings, queue: str, as_json: bool, backend: str | None) -> None:
    """Release the brake of QUEUE: the leading agent moves the held jobs from its next sweep on, at most brake.budget of
    them per sweep. It holds for the present trouble only; a later one engages the brake anew.

    Example: unstuck brake release rq/default
    """
    place = Place.of(queue, backend)
    with Connections.of(settings, role="brake") as connections:
        client = connections.scripting()
        adapters = [one for one in adapters_for(settings, client, client) if one.backend == place.backend]
        must_exist(client, place, [name for one in adapters for name in one.discover()])
        at = release_brake(client, place)
    if as_json:
        print_json({"backend": place.backend, "queue": place.queue, "brake_release_ms": at})
    else:
        click.echo(f"The brake of {shown(place)} is released; the leading agent goes on with its next sweep.")
