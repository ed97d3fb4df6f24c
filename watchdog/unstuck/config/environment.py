"""Settings from environment variables and from flags: ``a.b`` is ``UNSTUCK_A_B`` and ``--a-b``.

An empty variable counts as not set, as compose files and init systems pass them. A variable that no setting has is
refused when it looks like a misspelt one and told of otherwise; what Kubernetes sets by itself for a service named
``unstuck`` (``UNSTUCK_SERVICE_HOST``, ``UNSTUCK_PORT…``) is left alone, and so is ``UNSTUCK_TEST_…``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from unstuck.config.building import scalar_keys
from unstuck.config.documents import Node, put
from unstuck.config.settings import Settings
from unstuck.config.units import Secret
from unstuck.errors import ConfigurationError, Problem
from unstuck.spelling import nearest

PREFIX: Final = "UNSTUCK_"
CONFIG: Final = "UNSTUCK_CONFIG"
PASSWORD: Final = "UNSTUCK_REDIS_PASSWORD"  # noqa: S105 — the variable's name
OTHERS: Final = {
    CONFIG: "the configuration file, as `--config`",
    PASSWORD: "password of Redis, over the one in the address",
}
"""Variables that are no key of the file, with their meaning."""

_SERVICE_LINKS: Final = re.compile(r"UNSTUCK_(SERVICE_(HOST|PORT.*)|PORT(_\d+_.*)?|TEST_.*)$")


def variable(name: str) -> str:
    """The environment variable of a key: ``brake.budget`` → ``UNSTUCK_BRAKE_BUDGET``."""
    return PREFIX + name.replace(".", "_").upper()


def flag(name: str) -> str:
    """The flag of a key: ``brake.budget`` → ``--brake-budget``."""
    return "--" + name.replace(".", "-").replace("_", "-")


def from_environment(
    environ: Mapping[str, str], also: Iterable[str], problems: list[Problem]
) -> tuple[Node, list[str]]:
    """The settings among the variables, and notes about those that mean nothing. ``also``: names used elsewhere."""
    root: dict[str, Node] = {}
    notes: list[str] = []
    known = {variable(name): name for name in scalar_keys()}
    lists = {variable(name) for name in ("queues", "webhooks", "http.basic_auth")}
    also = {*OTHERS, *also}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in also or _SERVICE_LINKS.match(name) or not environ[name]:
            continue
        place = f"environment variable {name}"
        if name in known:
            put(root, tuple(known[name].split(".")), Node(environ[name], place, lax=True))
        elif name in lists:
            mend = "write it in the file (--config)"
            problems.append(Problem(place, "", "a list cannot come from the environment", mend))
        elif near := nearest(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in (*known, *also)]):
            problems.append(Problem(place, "", "is not a setting", f"did you mean `{PREFIX}{near}`?"))
        else:
            notes.append(f"{place} is not a setting and is ignored")
    return Node(root, "environment"), notes


def from_flags(flags: Mapping[str, object | None], problems: list[Problem]) -> Node:
    """The settings among the flags, by key (``brake.budget``); None and the empty tuple mean "not given"."""
    root: dict[str, Node] = {}
    known = scalar_keys()
    by_flag = {flag(name): name for name in known}
    for name, value in flags.items():
        if value is None:
            continue
        found = name if name in known else by_flag.get(flag(name))
        if found is None:
            near = nearest(name, known)
            mend = f"did you mean `{flag(near)}`?" if near else ""
            problems.append(Problem(f"flag {flag(name)}", "", "is not a setting", mend))
            continue
        put(root, tuple(found.split(".")), Node(value, f"flag {flag(found)}", lax=True))
    return Node(root, "flags")


def password(environ: Mapping[str, str], settings: Settings) -> Secret | None:
    """The password of Redis from the environment, else from ``redis_password_file``; None if there is neither.

    The line break at the end of a file is not part of the password. ConfigurationError if it cannot be read.
    """
    if environ.get(PASSWORD):
        return Secret(environ[PASSWORD])
    name = settings.redis_password_file
    if not name:
        return None
    place = settings.place("redis_password_file")
    try:
        text = Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        fault, mend = f"{name} cannot be read ({why})", "mend its path or its permissions"
        raise ConfigurationError([Problem(place, "redis_password_file", fault, mend)]) from None
    if not text:
        fault, mend = f"{name} is empty", "put the password into it"
        raise ConfigurationError([Problem(place, "redis_password_file", fault, mend)])
    return Secret(text)
