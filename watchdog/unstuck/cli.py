"""The command line: one group, one file per command in :mod:`unstuck.commands`, loaded when it is called.

Every error of unstuck ends as one line on standard error, ``unstuck: …``, and the exit status of the contract: 0 fine,
1 findings (only where asked for), 2 wrong usage or configuration, 3 Redis not reachable or not usable, 130 after Ctrl-C.
What may go wrong: standard output may be closed, full, or speak an encoding that lacks our signs.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from unstuck import __version__
from unstuck.errors import UnstuckError, UsageError, explain
from unstuck.spelling import did_you_mean

COMMANDS: Final = {
    "demo": "Show on one machine how a killed worker's job is rescued.",
    "inspect": "Look once at any Redis: queues, backlog, workers, what is stuck.",
    "run": "Run the agent.",
    "sweep": "Make one complete pass, then exit.",
    "worker": "Run the reference worker on a queue.",
    "enqueue": "Put a job into a queue.",
    "top": "Watch queues, workers and rescues live.",
    "dead": "List, show, retry or drop dead letters.",
    "cancel": "Cancel a job: bury a waiting one, stop a running one.",
    "events": "Follow the audit of a queue.",
    "brake": "Release the brake of a queue.",
    "webhook": "Send a test message to the webhooks.",
    "check": "Check configuration, connection, rights and server settings.",
    "rules": "Print the shipped alert rules.",
    "dashboards": "Print the shipped dashboards.",
    "acl": "Print the least-privilege ACL line for each mode.",
    "schema": "Print the JSON schema of the configuration.",
}
"""Every command, in the order in which a person meets them, with its line in ``unstuck --help``."""


class Commands(click.Group):
    """A group whose commands are imported at the moment they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 — click's interface
        return [name for name in COMMANDS if importlib.util.find_spec(_module(name))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(_module(cmd_name)).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            near = did_you_mean(name, self.list_commands(ctx))
            ctx.fail(f"there is no command {name!r}{near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command. With ``standalone_mode`` (the default) this ends the process, as click's own does."""
        run: Callable[..., Any] = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        answer = None
        _prepare_output()
        try:
            try:
                answer = run(*args, standalone_mode=False, **extra)
            finally:
                sys.stdout.flush()
        except click.exceptions.Abort:
            sys.exit(130)
        except click.exceptions.NoArgsIsHelpError as error:  # a group without its command: its help, as it is
            click.echo(error.format_message(), err=True)
            sys.exit(2)
        except click.UsageError as error:
            asked = f"{error.ctx.command_path} --help" if error.ctx else "unstuck --help"
            _end(f"{_one_line(error.format_message())} (see `{asked}`)", 2)
        except click.ClickException as error:
            _end(error.format_message(), 2)
        except UnstuckError as error:
            _end(str(error), error.exit_code)
        except OSError as error:
            if error.errno not in _UNWRITABLE or error.filename is not None:
                raise
            # What could not be written is still in the buffer; the end of the process must not try again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if error.errno == errno.EPIPE:  # whoever read it has seen enough, as with click's own
                sys.exit(1)
            _end(f"the output could not be written ({error.strerror}); make room or send it elsewhere", 2)
        except Exception as error:
            if type(error).__module__.split(".")[0] != "redis":
                raise
            known = explain(error)
            _end(str(known), known.exit_code)
        sys.exit(answer if isinstance(answer, int) else 0)


_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


class _Closed(io.TextIOBase):
    """Stands for a standard output that was closed before we began: only who writes is told."""

    def write(self, _: str) -> int:
        raise UsageError("standard output is closed; send it to a file or to /dev/null")


def _prepare_output() -> None:
    """Have both outputs, and make the standard one fit for every text: a sign that its encoding lacks becomes a `?`."""
    if sys.stdout is None:
        os.open(os.devnull, os.O_RDONLY)  # takes the free number 1, so that no socket gets it
        sys.stdout = _Closed()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if sys.stderr is None:  # nobody wants to hear what is wrong; the exit status says it
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 — until the process ends


def _module(name: str) -> str:
    return f"unstuck.commands.{name.replace('-', '_')}"


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _end(message: str, code: int) -> NoReturn:
    click.echo(f"unstuck: {_one_line(message)}", err=True)
    sys.exit(code)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", prog_name="unstuck", message="%(prog)s %(version)s")
def main() -> None:
    """See which jobs of a Redis queue are stuck, prove it, and get them moving again.

    Example: unstuck inspect --redis redis://127.0.0.1:6379/0
    """
