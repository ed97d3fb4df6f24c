"""``unstuck sweep``: one complete pass of the agent's work, as long as its observation windows need, then an end."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import click
import msgspec

from unstuck.adapters import adapters_for
from unstuck.choosing import Choice, known_queues, narrowed, none_of_them
from unstuck.clock import Clock, SystemClock
from unstuck.commands.options import json_option, settings_options
from unstuck.config import OWN, QueueRule, Settings
from unstuck.connections import Connections
from unstuck.duties.electing import Election
from unstuck.duties.passing import Pass, Progress
from unstuck.duties.sweeping import Sweeper
from unstuck.errors import RedisUnavailable, UnstuckError, UsageError, classify, explain
from unstuck.inspection import with_rescues
from unstuck.model import Authority, Mode
from unstuck.report import Document, document, failing
from unstuck.spelling import counted
from unstuck.terminal import print_json, progress, render, shown

_QUEUE_HELP = "Only this queue (* and ? allowed); with --mode reclaim, BACKEND/NAME counts as listing it. Repeatable."


class Led(UnstuckError):
    """Another agent holds the lease, so this one may not reclaim."""

    exit_code = 3


@click.command(short_help="Make one complete pass, then exit.")
@settings_options("redis_timeout", "mode", "stuck_after", "sweep_interval")
@json_option
@click.option("--queue", "queues", metavar="[BACKEND/]NAME", multiple=True, help=_QUEUE_HELP)
@click.option("--backend", "backends", metavar="NAME", multiple=True, help="Only queues of this system; repeatable.")
@click.option("--fail-on", type=click.Choice(["stuck", "suspect", "any"]), help="Exit 1 when there is such a finding.")
def command(
    settings: Settings,
    as_json: bool,
    queues: tuple[str, ...],
    backends: tuple[str, ...],
    fail_on: str | None,
) -> int:
    """Watch every queue until all that is in flight is proved stuck or alive, deal with it, and exit.

    With --mode observe (the default) nothing is written: it is a dry run that says what would be done. With --mode
    reclaim the jobs of our own queues and of those that the configuration (or --queue BACKEND/NAME) names are put back;
    it takes the lease of the agents first, or refuses while another agent leads. It takes about as long as the longest
    stuck_after among the queues with work (30 s; RQ 90 s).

    Exit status: 0 fine, 1 findings (only with --fail-on), 2 wrong usage or configuration, 3 Redis not reachable or not
    usable, or another agent leads.

    Example: unstuck sweep --mode reclaim --queue rq/default
    """
    choice = Choice.of(backends, queues)
    settings = chosen_settings(settings, choice)
    reclaims = settings.mode is Mode.RECLAIM or any(rule.settings.mode is Mode.RECLAIM for rule in settings.queues)
    clock = SystemClock()
    with Connections.of(settings, role="sweep") as connections, ending_cleanly():
        reading = connections.reading()
        scripting = connections.scripting() if reclaims else reading
        adapters = narrowed(adapters_for(settings, reading, scripting), choice)
        if not adapters:
            raise UsageError("this version has no reader for the chosen queue system yet; leave out --backend")
        sweeper = Sweeper(settings, adapters, reading, clock, exchanged=lambda operation, seconds: None)
        with progress() as tell, leadership(settings, connections, clock, sweeper, reclaims) as leading:
            one = Pass(settings, sweeper, adapters, clock, leading=leading)
            try:
                one.run(time.sleep, lambda how: tell(sentence(how)))
                doc = made(one, reading)
                rows = [(row["backend"], row["queue"]) for row in doc["queues"]]
                known = cache(lambda: known_queues(adapters_for(settings, reading, reading)))
                missed = choice.missed(rows, known)
                others = bool(missed) and not rows and bool(known())
            except Exception as error:
                if type(error).__module__.split(".")[0] != "redis":
                    raise
                raise explain(error, settings.address) from error
        address = connections.describe()
    for lacking in missed:
        click.echo(f"unstuck: note: {shown(lacking)}", err=True)
    if as_json:
        print_json(doc)
    else:
        notes = [] if reclaims else ["Mode observe: nothing was written."]
        render(doc, address=address, notes=notes, title=none_of_them(choice) if others else "")
    if one.trouble:
        raise Led(one.trouble)
    return 1 if failing(doc, fail_on) else 0


def made(one: Pass, reading: Any) -> Document:
    """The document of a pass that is over."""
    if one.last is None:
        raise UnstuckError("no sweep was made")
    return document(one.last.server, one.last.gate, with_rescues(reading, one.reports))


def sentence(how: Progress) -> str:
    """How far it is, for the line of progress."""
    about = f"watching: {how.elapsed:.0f} s of about {how.expected:.0f} s"
    if how.open:
        return f"{about}; {counted(how.open, 'job')} not settled"
    return about if how.gate_open else f"{about}, until verdicts can be trusted"


def chosen_settings(settings: Settings, choice: Choice) -> Settings:
    """The settings of this pass: a mode given as flag beats the file's entries for `observe`, and `--queue BACKEND/NAME`
    with `--mode reclaim` counts as an entry.
    """
    by_flag = settings.place("mode").startswith("flag")
    rules = [rule for rule in settings.queues if not rule.exact or choice.includes(rule.backend, rule.queue)]
    if by_flag and settings.mode is Mode.OBSERVE:
        rules = [_with_mode(rule, Mode.OBSERVE) for rule in rules]
    if settings.mode is Mode.RECLAIM:
        named = [(backend, name) for backend, name in choice.queues if backend and backend != OWN]
        for backend, name in named:
            known = settings.match(backend, name)
            rule = QueueRule(backend=backend, queue=name, settings=known.settings if known else settings.defaults())
            rules.insert(0, _with_mode(rule, Mode.RECLAIM))
    return msgspec.structs.replace(settings, queues=tuple(rules))


def _with_mode(rule: QueueRule, mode: Mode) -> QueueRule:
    return msgspec.structs.replace(rule, settings=msgspec.structs.replace(rule.settings, mode=mode))


@contextmanager
def leadership(
    settings: Settings, connections: Connections, clock: Clock, sweeper: Sweeper, reclaims: bool
) -> Iterator[Callable[[], Authority | None] | None]:
    """Lead while this lasts. Gives the function that renews the lease and tells under which authority to act, or None where
    nothing is to be reclaimed. Raises Led while another agent leads.
    """
    if not reclaims:
        yield None
        return
    election = Election(connections.scripting(), clock, lease=settings.leader.lease, digest=settings.digest)
    standing = election.attempt()
    renewed = clock.monotonic()
    if standing.trouble:
        refusal = explain(RuntimeError(standing.trouble), settings.address)
        told = str(refusal) if isinstance(refusal, RedisUnavailable) else standing.trouble
        raise RedisUnavailable(told, kind=classify(RuntimeError(standing.trouble)), url=str(settings.address))
    if not standing.leading:
        leader = shown(standing.leader)
        raise Led(f"another agent leads ({leader}) and reclaims by itself; stop it first, or sweep with --mode observe")

    def authority() -> Authority | None:
        nonlocal renewed
        election.doubt()
        if election.trusted() and clock.monotonic() - renewed >= election.lease / 3:
            election.attempt()
            renewed = clock.monotonic()
        server = sweeper.gate.last
        if not election.trusted() or server is None:
            return None
        return Authority(election.owner, election.standing.epoch, server.run_id, server.replication_id)

    try:
        yield authority
    finally:
        election.resign()


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Let SIGTERM end the command the way Ctrl-C does, so that the lease is given back."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
