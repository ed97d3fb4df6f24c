"""``unstuck run``: the agent, until it is told to stop."""

from __future__ import annotations

import logging
import signal
import threading

import click

from unstuck.adapters import unwatched
from unstuck.agent import Agent
from unstuck.commands.options import settings_options
from unstuck.config import Settings
from unstuck.logs import configure, say
from unstuck.model import Mode
from unstuck.serving import http_server

log = logging.getLogger("unstuck.run")


@click.command(short_help="Run the agent.")
@settings_options(
    "mode",
    "sweep_interval",
    "heartbeat_interval",
    "lock_ttl",
    "stuck_after",
    "gone_after",
    "abort_after",
    "confirm_after",
    "max_rescues",
    "leader.lease",
    "http.listen",
    "log.format",
    "log.level",
)
def command(settings: Settings) -> int:
    """Run the agent: look, judge, reclaim where asked to, publish intervals, serve metrics.

    Without a configuration it finds the queues by itself and only observes. It goes on while Redis is away, at the start
    too. SIGTERM or Ctrl-C stop it within two seconds. Exit status: 0 stopped, 2 bad configuration or an address that
    cannot be listened on.

    Example: unstuck run --redis redis://127.0.0.1:6379/0 --http-listen 127.0.0.1:9797
    """
    configure(settings.log.format, settings.log.level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    agent = Agent(settings)
    server = http_server(settings.http, agent.board)
    server.start()
    redis = agent.connections.describe()
    reclaimed = ",".join(
        f"{rule.backend}/{rule.queue}" for rule in settings.queues if rule.settings.mode is Mode.RECLAIM
    )
    also = {"reclaims": reclaimed} if reclaimed else {}
    where = f"{server.url}/metrics"
    say(log, logging.INFO, "agent_started", redis=redis, mode=settings.mode.value, metrics=where, **also)
    for entry in unwatched(settings):
        say(log, logging.WARNING, "no_adapter", entry=entry, detail="it has no effect: no adapter for its system yet")
    agent.start()
    # Not for ever: a signal that the kernel gives to another thread, as it does while the main one is just being thawed,
    # is handled when the main thread next comes by.
    while not stop.wait(0.5):
        pass
    say(log, logging.INFO, "agent_stopping")
    agent.stop()
    server.stop()
    return 0
