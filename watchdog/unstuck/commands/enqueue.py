"""``unstuck enqueue``: put jobs into one of our own queues."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from unstuck.commands.options import json_option, settings_options
from unstuck.config import Seconds, Settings
from unstuck.connections import Connections
from unstuck.errors import Refused, UsageError, explain


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """A duration with its unit, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Seconds:
        try:
            return value if isinstance(value, Seconds) else Seconds.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(short_help="Put a job into a queue.")
@click.argument("queue")
@click.argument("payload", metavar="JSON")
@settings_options("redis_timeout")
@click.option("--id", "job_id", help="The job's id; a job of that id that is still there is left alone.")
@click.option("--delay", type=Duration(), default="0s", help="Not before this long from now.")
@click.option(
    "--max-attempts", metavar="NUMBER", type=click.IntRange(1, 10_000), help="Failures until it is a dead letter."
)
@click.option("--retry-delay", type=Duration(), help="Wait before the first retry; doubles with each.")
@click.option("--expected", type=Duration(), help="How long it should run at most; later it is reported as late.")
@click.option("--lines", is_flag=True, help="One job for each line of JSON.")
@json_option
def command(
    settings: Settings,
    queue: str,
    payload: str,
    job_id: str | None,
    delay: Seconds,
    max_attempts: int | None,
    retry_delay: Seconds | None,
    expected: Seconds | None,
    lines: bool,
    as_json: bool,
) -> None:
    """Put a job with the payload JSON into QUEUE and print its id; `-` reads the JSON from standard input.

    Exit status: 0 the queue has the job, 2 wrong usage, configuration or JSON, 3 Redis not reachable or not usable.

    \b
    Examples:
      unstuck enqueue mail '{"to": "someone"}' --delay 5m --max-attempts 3
      unstuck enqueue mail - --lines < payloads.jsonl
    """
    from unstuck.protocol import Enqueued, Queue

    if lines and job_id is not None:
        raise UsageError("--id: names one job; leave it out with --lines")
    text = sys.stdin.read() if payload == "-" else payload
    payloads = list(_each_line(text) if lines else [_decoded(text, "JSON")])
    terms: dict[str, Any] = {
        "delay": delay,
        "max_attempts": max_attempts,
        "retry_delay": retry_delay,
        "expected": expected,
    }
    done: list[Enqueued]
    with Connections.of(settings, role="enqueue") as connections:
        try:
            target = Queue(connections.scripting(), queue)
            if lines:
                done = target.enqueue_many(payloads, **terms)
            else:
                done = [target.enqueue(payloads[0], id=job_id, **terms)]
        except Refused as error:
            raise UsageError(str(error)) from error
        except Exception as error:
            raise explain(error, settings.address) from error
    for job in done:
        if not job.created:
            click.echo(f"unstuck: note: a job {job.id} is there already ({job.state}); nothing was changed", err=True)
    if as_json:
        jobs = [{"id": job.id, "created": job.created, "state": job.state} for job in done]
        click.echo(json.dumps({"queue": queue, "jobs": jobs} if lines else {"queue": queue, **jobs[0]}, indent=2))
    else:
        for job in done:
            click.echo(job.id)


def _each_line(text: str) -> Iterator[Any]:
    """The payloads of all lines; none is enqueued unless every one can be read. Empty lines are passed over.

    Only a line feed ends a line: a text in JSON may hold U+2028, U+0085 and others at which `splitlines` would cut.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _decoded(line, f"line {number}")


def _decoded(text: str, place: str) -> Any:
    from unstuck.protocol.values import MAX_PAYLOAD_BYTES, encode

    try:
        value = json.loads(text)
        size = len(encode(value).encode())
        if size > MAX_PAYLOAD_BYTES:
            raise UsageError(
                f"{place}: {size} bytes; the limit is {MAX_PAYLOAD_BYTES}: store it elsewhere; nothing was enqueued"
            )
        return value
    except Refused as error:
        raise UsageError(f"{place}: {error}; nothing was enqueued") from None
    except UnicodeEncodeError:
        raise UsageError(
            f"{place}: holds half a character (a lone surrogate); write it as UTF-8; nothing was enqueued"
        ) from None
    except (ValueError, RecursionError) as error:
        why = str(error) or type(error).__name__
        hint = " (a text needs quotes: '\"hello\"')" if text.strip() and text.strip()[0] not in '{["' else ""
        raise UsageError(f"{place}: not JSON: {why}; nothing was enqueued{hint}") from None
