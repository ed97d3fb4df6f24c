"""``unstuck webhook test``: does a message arrive?"""

from __future__ import annotations

import json

import click

from unstuck import __version__
from unstuck.clock import SystemClock
from unstuck.commands.options import json_option, settings_options
from unstuck.config import Settings
from unstuck.errors import UsageError


@click.group(short_help="Send a test message to the webhooks.")
def command() -> None:
    """Try the receivers of the configuration.

    Example: unstuck webhook test --config unstuck.yaml
    """


@command.command(short_help="Send one test message to every receiver, or to one.")
@settings_options()
@click.option("--receiver", metavar="NAME", help="Only this one, by the name it has in metrics and logs.")
@json_option
def test(settings: Settings, receiver: str | None, *, as_json: bool) -> int:
    """Send one message, marked as a test, to each receiver, once, and print what it answered.

    Exit status: 0 all took it, 1 at least one did not, 2 bad configuration or no receiver.

    Example: unstuck webhook test --config unstuck.yaml
    """
    from unstuck_exporters.delivery import post
    from unstuck_exporters.webhook import targets, trial

    found = targets(settings.webhooks)
    if not found:
        raise UsageError("there is no webhook to test; add one below `webhooks:` in the configuration file")
    chosen = [target for target in found if receiver in (None, target.name)]
    if not chosen:
        raise UsageError(f"there is no receiver {receiver!r}; known: {', '.join(target.name for target in found)}")
    wall = SystemClock().wall()
    outcomes = [(target.name, post(target, trial(wall, agent=__version__), wall)) for target in chosen]
    if as_json:
        told = [{"receiver": name, "delivered": outcome.ok, "detail": outcome.detail} for name, outcome in outcomes]
        click.echo(json.dumps({"receivers": told}))
    else:
        for name, outcome in outcomes:
            click.echo(f"{name}: {'delivered' if outcome.ok else 'not delivered'} ({outcome.detail})")
    return 0 if all(outcome.ok for _, outcome in outcomes) else 1
