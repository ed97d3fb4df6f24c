"""``unstuck cancel``: bury a waiting job, or ask the worker of a running one to stop it."""

from __future__ import annotations

from typing import Final

import click

from unstuck.by_hand import Place
from unstuck.commands.options import json_option, settings_options
from unstuck.config import OWN, Settings
from unstuck.connections import Connections
from unstuck.protocol import Queue, RetryLimits
from unstuck.terminal import print_json, shown

_SAID: Final = {
    "dead": "was waiting and is now a dead letter (cause cancelled)",
    "told": "is running; its worker was told over its channel and hears it at the next heartbeat at the latest",
    "ended": "has ended already; nothing was done",
    "missing": "is not there; nothing was done",
}


@click.command(short_help="Cancel a job: bury a waiting one, stop a running one.")
@click.argument("queue")
@click.argument("job", metavar="ID")
@settings_options("redis_timeout")
@json_option
def command(settings: Settings, queue: str, job: str, as_json: bool) -> int:
    """Cancel the job ID of QUEUE (our own protocol). A waiting job becomes a dead letter; the worker of a running one is
    asked to stop it: the handler sees context.cancelled, and its lock is never touched.

    Exit status: 0 cancelled or asked, 1 it has ended or is not there.

    Example: unstuck cancel mail 6f1c…
    """
    place = Place.own(queue)
    rules = settings.for_queue(OWN, place.queue)
    limits = RetryLimits(dead_max=rules.dead_max, dead_ttl_ms=rules.dead_ttl.ms)
    with Connections.of(settings, role="cancel") as connections:
        answer = Queue(connections.scripting(), place.queue, limits=limits).cancel(job)
    done = answer in ("dead", "told")
    if as_json:
        print_json({"queue": queue, "job": job, "result": answer})
    else:
        click.echo(f"{shown(job)} {_SAID[answer]}", err=not done)
    return 0 if done else 1
