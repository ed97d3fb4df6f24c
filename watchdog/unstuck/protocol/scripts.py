"""Load the Lua scripts, run them by their digest, and turn their refusals into exceptions.

What may go wrong: the script cache of Redis is volatile (SCRIPT FLUSH, restart, failover), so a digest that is not known
is answered by sending the text once; a reply may be lost after the script ran, so every mutating script carries an
operation id of its caller and may be sent again (S8). A file may say `--@include NAME`: the text of lua/include/NAME.lua
is put there, so that every script is whole and self-contained when it reaches Redis.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from unstuck.protocol.diagnosis import translate

if TYPE_CHECKING:
    from redis import Redis

_INCLUDE = re.compile(r"^--@include (\w+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One script as Redis gets it: name, whole text, SHA-1 digest (Redis' name for it), and whether it only reads."""

    name: str
    text: str
    sha: str
    reads_only: bool


def compose(folder: Any, name: str) -> Script:
    """The script `<name>.lua` of a folder with its includes put in."""
    source = (folder / f"{name}.lua").read_text("utf-8")
    whole = _INCLUDE.sub(lambda found: (folder / "include" / f"{found[1]}.lua").read_text("utf-8"), source)
    first = whole.split("\n", 1)[0]
    if not first.startswith("#!lua"):
        raise ValueError(f"lua/{name}.lua: the first line must be #!lua with its flags")
    return Script(name, whole, hashlib.sha1(whole.encode()).hexdigest(), "no-writes" in first)  # noqa: S324  Redis' own naming


@cache
def script(name: str) -> Script:
    """The script of that name from protocol/lua."""
    return compose(files("unstuck") / "protocol" / "lua", name)


def names() -> list[str]:
    """Names of all scripts of the protocol, sorted."""
    folder = files("unstuck") / "protocol" / "lua"
    return sorted(entry.name.removesuffix(".lua") for entry in folder.iterdir() if entry.name.endswith(".lua"))


def operation() -> str:
    """A new operation id: 16 hex digits, unique for all practical purposes."""
    return secrets.token_hex(8)


Argument = str | bytes | int | float


def run(client: Redis, chosen: Script | str, key: str, *args: Argument) -> Any:
    """Run one script on one key. Raises redis-py's exceptions, or those of `unstuck.errors` for our own refusals."""
    from redis.exceptions import NoScriptError, ResponseError

    chosen = script(chosen) if isinstance(chosen, str) else chosen
    try:
        try:
            return client.execute_command("EVALSHA", chosen.sha, 1, key, *args)
        except NoScriptError:
            return client.execute_command("EVAL", chosen.text, 1, key, *args)
    except ResponseError as refusal:
        raise translate(client, key, refusal, args) from refusal


@dataclass(frozen=True, slots=True)
class Call:
    """One script call of a pipeline."""

    script: str
    key: str
    args: tuple[Argument, ...]


def run_call(client: Redis, call: Call) -> Any:
    """As `run`, for a call that stands ready."""
    return run(client, call.script, call.key, *call.args)


def run_many(client: Redis, calls: Sequence[Call]) -> list[Any]:
    """Run several scripts in one round trip, in order but not as one transaction.

    An answer of our own refusals is the exception itself, at its place in the list; a broken connection raises.
    """
    from redis.exceptions import NoScriptError, ResponseError

    chosen = [script(call.script) for call in calls]
    pipe = client.pipeline(transaction=False)
    for call, known in zip(calls, chosen, strict=True):
        pipe.execute_command("EVALSHA", known.sha, 1, call.key, *call.args)
    answers: list[Any] = pipe.execute(raise_on_error=False)
    for i, (call, known) in enumerate(zip(calls, chosen, strict=True)):
        if isinstance(answers[i], NoScriptError):
            try:
                answers[i] = run(client, known, call.key, *call.args)
            except Exception as refusal:  # noqa: BLE001  kept at its place, like any other answer
                answers[i] = refusal
        if isinstance(answers[i], ResponseError):
            answers[i] = translate(client, call.key, answers[i], call.args)
    return answers
