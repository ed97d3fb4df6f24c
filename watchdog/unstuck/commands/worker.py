"""``unstuck worker``: the reference worker of our own queue."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

import click
import msgspec

from unstuck import logs
from unstuck.commands.options import settings_options
from unstuck.config import OWN, QueueSettings, Settings
from unstuck.connections import Connections

OWN_FLAGS = ("heartbeat_interval", "lock_ttl", "abort_after")


@click.command(short_help="Run the reference worker on a queue.")
@click.argument("queue")
@click.argument("handler", metavar="MODULE:FUNCTION")
@settings_options(*OWN_FLAGS, "redis_timeout", "log.format", "log.level")
@click.option(
    "--concurrency", metavar="NUMBER", type=click.IntRange(1, 1000), default=1, help="Jobs at once. Default: 1."
)
@click.option(
    "--lock",
    type=click.Choice(["pessimistic", "optimistic"]),
    default="pessimistic",
    help="Optimistic: no lock key, the completion compares versions; for idempotent jobs. Default: pessimistic.",
)
@click.option(
    "--isolate",
    type=click.Choice(["thread", "process"]),
    default="thread",
    help="Process: each slot has a child that can be ended, for code that holds the interpreter. Default: thread.",
)
@click.option(
    "--wake",
    type=click.Choice(["on", "off"]),
    default="on",
    help="On: an idle worker is woken by a new job; off: it only polls. Default: on.",
)
@click.option(
    "--interrupt",
    is_flag=True,
    help="Raise LeaseLost in the handler's thread when its job is lost, again every 5 s while it runs on.",
)
def command(
    settings: Settings,
    queue: str,
    handler: str,
    concurrency: int,
    lock: str,
    isolate: str,
    wake: str,
    interrupt: bool,
) -> None:
    """Run MODULE:FUNCTION for each job of QUEUE; it is called with the decoded payload and a context.

    \b
    The context has: id, queue, token, attempt, progress(value), check(), cancelled, lost, on_lease_lost(callback).
    An exception fails the attempt: it is tried again, later each time, and is a dead letter after max_attempts.

    SIGTERM or Ctrl-C: take no more jobs, let the running ones finish; a second time: release them and end. Exit status:
    0 stopped, 2 wrong usage or configuration, 3 Redis refuses us (while it is away the worker waits).

    \b
    Example, with a file tasks.py that has `def send(payload, context): ...`:
      unstuck worker mail tasks:send --concurrency 4
      unstuck enqueue mail '{"to": "someone"}'
    """
    from unstuck.worker import Worker, WorkerOptions

    logs.configure(settings.log.format, settings.log.level)
    options = WorkerOptions.of(
        _with_flags(settings, queue),
        concurrency=concurrency,
        lock=lock,
        isolate=isolate,
        wake=wake == "on",
        interrupt=interrupt,
    )
    connections = Connections(
        settings.address, role="worker", timeout=settings.redis_timeout, max_connections=concurrency + 4
    )
    with connections:
        worker = Worker(connections, queue, handler, options)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop())
        worker.run()
    logging.shutdown()
    sys.stdout.flush()
    # Threads of handlers that ignore the end must not hold it up.
    os._exit(0)


def _with_flags(settings: Settings, queue: str) -> QueueSettings:
    """What holds for the queue; a flag of this command also beats the queue's own entry in the file."""
    found = settings.for_queue(OWN, queue)
    flags: dict[str, Any] = {
        name: getattr(settings, name) for name in OWN_FLAGS if settings.place(name).startswith("flag")
    }
    return msgspec.structs.replace(found, **flags)
