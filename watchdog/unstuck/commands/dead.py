"""``unstuck dead``: the dead letters and the quarantine of a queue of ours. What is there, why, and back or away with it."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from unstuck.by_hand import Place, counts, dead_ids, dead_letters, must_exist, on_each, own_queues
from unstuck.commands.options import json_option, settings_options
from unstuck.config import Settings
from unstuck.connections import Connections
from unstuck.errors import Refused, UsageError
from unstuck.protocol import Queue, keys
from unstuck.protocol.diagnosis import naming
from unstuck.spelling import counted
from unstuck.terminal import print_json, shown

_SAID: Final = {
    "retried": "is pending again; failures and rescues are counted from zero",
    "dropped": "is gone for good",
    "not_dead": "is not dead: nothing was done",
    "missing": "is not there, or has no payload left: nothing was done",
}


@click.group(short_help="List, show, retry or drop dead letters.")
def command() -> None:
    """Dead letters: jobs that failed too often, were rescued too often, or were cancelled; and the quarantine, which
    holds ids without a usable body. They stay for 30 days, at most 10,000 per queue.

    Example: unstuck dead list mail
    """


@command.command("list", short_help="List dead letters and quarantined ids, the latest first.")
@click.argument("queue")
@settings_options("redis_timeout")
@json_option
@click.option("--count", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Most of each kind.")
def list_them(settings: Settings, queue: str, as_json: bool, count: int) -> None:
    """List the dead letters of QUEUE and the ids in its quarantine, the latest first, with what they died of.

    Example: unstuck dead list mail --json
    """
    place = Place.own(queue)
    with Connections.of(settings, role="dead") as connections:
        client = connections.reading()
        must_exist(client, place, own_queues(client))
        letters, (dead, bad) = dead_letters(client, place, count), counts(client, place)
    if as_json:
        print_json({"queue": queue, "dead": dead, "quarantined": bad, "jobs": letters})
        return
    click.echo(
        f"{dead} dead, {bad} in quarantine" + (f"; the latest {count} of each:" if max(dead, bad) > count else "")
    )
    for one in letters:
        click.echo(_line(one))


def _line(one: dict[str, Any]) -> str:
    died = one.get("died_at")
    at = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(died / 1000)) if isinstance(died, int) else "–"
    error = str(one.get("error", "")).strip().splitlines()
    parts = [f"{name} {one[name]}" for name in ("failures", "rescues") if one.get(name)]
    told = [shown(one.get("cause", "")), *parts, shown(error[-1], 60) if error else ""]
    return f"{at:<20}  {shown(one['job'], 40):<32}  {one['state']:<10}  {', '.join(filter(None, told))}".rstrip()


@command.command("show", short_help="Show everything that is known of one job.")
@click.argument("queue")
@click.argument("job", metavar="ID")
@settings_options("redis_timeout")
@json_option
def show_it(settings: Settings, queue: str, job: str, as_json: bool) -> None:
    """Show every field of a job of QUEUE, its payload included: state, attempts, error, last evidence.

    Example: unstuck dead show mail 6f1c…
    """
    place = Place.own(queue)
    with Connections.of(settings, role="dead") as connections:
        client = connections.reading()
        with naming(client, keys.job(place.queue, job), "hash"):
            fields = Queue(client, place.queue).show(job)
        if not fields:
            bad = job in dead_ids(client, place)[1]
            raise Refused(
                f"queue {queue}: job {job!r} is in quarantine and has no body; drop it with `unstuck dead drop`"
                if bad
                else f"queue {queue}: there is no job {job!r}; `unstuck dead list {queue}` shows what is dead"
            )
    if as_json:
        print_json({"queue": queue, "job": job, "fields": fields})
        return
    width = max(map(len, fields))
    for name in sorted(fields):
        click.echo(f"{shown(name):<{width}}  {shown(fields[name])}")


@command.command("retry", short_help="Put dead letters back into the queue.")
@click.argument("queue")
@click.argument("jobs", metavar="[ID]...", nargs=-1)
@settings_options("redis_timeout")
@json_option
@click.option(
    "--all", "every", is_flag=True, help="Every dead letter that is there now; quarantined ids with a body too."
)
def retry(settings: Settings, queue: str, jobs: tuple[str, ...], as_json: bool, every: bool) -> int:
    """Put jobs back into QUEUE; their failures and rescues are counted from zero again.

    Exit status: 0 done, 1 some of the named jobs were not dead.

    Example: unstuck dead retry mail --all
    """
    return _each(settings, queue, jobs, as_json, every, "retry_dead")


@command.command("drop", short_help="Delete dead letters for good.")
@click.argument("queue")
@click.argument("jobs", metavar="[ID]...", nargs=-1)
@settings_options("redis_timeout")
@json_option
@click.option("--all", "every", is_flag=True, help="Every dead letter and quarantined id that is there now.")
@click.option("--yes", is_flag=True, help="Do not ask before dropping all.")
def drop(settings: Settings, queue: str, jobs: tuple[str, ...], as_json: bool, every: bool, yes: bool) -> int:
    """Delete dead letters and quarantined ids of QUEUE for good.

    Exit status: 0 done, 1 some of the named jobs were not dead.

    Example: unstuck dead drop mail 6f1c…
    """
    if every and not yes:
        click.confirm(f"Delete every dead letter of {shown(queue)} for good?", abort=True, err=True)
    return _each(settings, queue, jobs, as_json, every, "drop_dead")


def _each(settings: Settings, queue: str, jobs: tuple[str, ...], as_json: bool, every: bool, script: str) -> int:
    if bool(jobs) == every:
        raise UsageError("name jobs, or say --all (not both)")
    place = Place.own(queue)
    named = [keys.valid_id(job) for job in jobs] if script == "retry_dead" else list(jobs)
    with Connections.of(settings, role="dead") as connections:
        client = connections.scripting()
        must_exist(client, place, own_queues(client))
        if every:
            dead, bad = dead_ids(client, place)
            named = [*reversed(dead), *(job for job in bad if script == "drop_dead" or _has_id(job))]
        done = list(on_each(client, place, script, dict.fromkeys(named)))
    good = [answer for _, answer in done if answer in ("retried", "dropped")]
    if as_json:
        print_json({"queue": queue, "jobs": [{"job": job, "result": answer} for job, answer in done]})
    else:
        for job, answer in done:
            if not every:
                click.echo(f"{shown(job)} {_SAID[answer]}", err=answer not in ("retried", "dropped"))
        if every:
            left = len(done) - len(good)
            rest = f"; {counted(left, 'was left as it is', 'were left as they are')}" if left else ""
            click.echo(f"{len(good)} {'retried' if script == 'retry_dead' else 'dropped'}{rest}")
    return 0 if every or len(good) == len(done) else 1


def _has_id(job: str) -> bool:
    try:
        keys.valid_id(job)
    except Exception:  # noqa: BLE001  whatever it says: no id that a script takes
        return False
    return True
