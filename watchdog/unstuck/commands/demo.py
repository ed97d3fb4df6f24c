"""``unstuck demo``: see a killed worker's job rescued, on this machine, with nothing configured."""

from __future__ import annotations

import signal
import time
from types import FrameType

import click

STYLES = {"info": None, "warn": "yellow", "bad": "red", "good": "green"}


@click.command(short_help="Show on one machine how a killed worker's job is rescued.")
@click.option(
    "--redis", metavar="URL", help="Use this Redis instead of one of the demo's own; its keys are removed again."
)
@click.option(
    "--seconds", type=click.FloatRange(1, 86400), default=60, show_default=True, help="Bound of the whole demo."
)
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:0", help="Where metrics and page are served; any free port."
)
def command(redis: str | None, seconds: float, listen: str) -> int:
    """Everything on one machine: a Redis, three workers, a load, the agent; one worker is killed and its job rescued.

    Exit status: 0 only if every job finished exactly once, 1 if not, 2 wrong usage, 3 the given Redis cannot be used.

    Example: unstuck demo --seconds 60
    """
    import logging

    from unstuck.demo.stage import Stage
    from unstuck.demo.story import OutOfTimeError, Story

    for name in ("unstuck", "unstuck_exporters"):  # the story tells what the log would
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    begun = time.monotonic()

    def say(style: str, line: str) -> None:
        click.secho(f"{time.monotonic() - begun:6.1f} s  {line}", fg=STYLES[style])

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    say("info", "Setting the stage …")
    with Stage(redis, listen) as stage:
        try:
            fine = Story(stage, say, seconds).play()
        except OutOfTimeError as error:
            say("bad", str(error))
            fine = False
        say("info", "Stopping everything that was started …")
    say("good" if fine else "bad", "Done." if fine else "Something is wrong, see above.")
    return 0 if fine else 1
