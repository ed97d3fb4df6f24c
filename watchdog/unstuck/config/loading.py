"""From file, environment and flags to :class:`Settings`: flag beats environment beats file beats default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from unstuck.config.building import build
from unstuck.config.checks import contradictions
from unstuck.config.documents import Node, overlay, read
from unstuck.config.environment import CONFIG, from_environment, from_flags, password
from unstuck.config.rules import build_rules, build_webhooks
from unstuck.config.settings import Settings
from unstuck.errors import ConfigurationError, Problem


def load(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object | None] | None = None,
    *,
    also: Iterable[str] = (),
) -> Settings:
    """Read and check all settings.

    ``path``: the file; None takes the one that ``UNSTUCK_CONFIG`` names, else none. ``environ``: usually
    ``os.environ``. ``flags``: by key (``{"brake.budget": "10"}``), None for one that was not given. ``also``: further
    ``UNSTUCK_…`` variables that the caller understands. Raises ConfigurationError that holds every fault found.
    """
    environ = environ or {}
    problems: list[Problem] = []
    if path is None and environ.get(CONFIG):
        path = Path(environ[CONFIG])
    file = read(path) if path is not None else Node({}, "default")
    variables, notes = from_environment(environ, also, problems)
    top = overlay(overlay(file, variables), from_flags(flags or {}, problems))
    settings = build(Settings, top, "", problems)
    rules = build_rules(top, problems)
    hooks = build_webhooks(top, problems)
    if problems or settings is None:
        raise ConfigurationError(_once(problems))
    places = dict(_places(top))
    settings = msgspec.structs.replace(settings, queues=rules, webhooks=hooks, notes=tuple(notes), places=places)
    problems = list(contradictions(settings, top))
    if problems:
        raise ConfigurationError(_once(problems))
    return msgspec.structs.replace(settings, redis_password=password(environ, settings))


def _once(problems: Iterable[Problem]) -> list[Problem]:
    """Each place once: a fault at the top level shows again in every entry that inherits it."""
    return list({problem.place: problem for problem in reversed(list(problems))}.values())[::-1]


def _places(node: Node, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, child in node.section.items():
        if isinstance(child.value, dict):
            yield from _places(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", child.place
