"""Options that commands share: where the settings come from, and flags for single settings.

::

    @click.command(short_help=…)
    @settings_options("mode", "sweep_interval", "brake.budget")
    @json_option
    def command(settings: Settings, as_json: bool) -> None: ...

A flag is named after its key (``brake.budget`` → ``--brake-budget``) and explained by the setting's own description.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from unstuck.config import Setting, Settings, load, reference
from unstuck.errors import explain

F = TypeVar("F", bound=Callable[..., Any])


def settings_options(*keys: str, lazy: bool = False) -> Callable[[F], F]:
    """Add ``--config``, ``--redis`` and a flag for each key; the function gets ``settings``, already loaded.

    An exception of redis-py that the function leaves becomes the sentence that names the address.
    With ``lazy`` it gets ``load_settings`` instead, a function that loads them and may raise ConfigurationError.
    Notes about ignored variables go to standard error.
    """
    known = {setting.key: setting for setting in reference()}
    for key in keys:
        if key not in known:
            raise KeyError(f"{key} is no scalar setting")
    # `--redis` and its user are always there; a command may ask for more.
    chosen = ["redis", *(key for key in keys if key != "redis")]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, config: str | None, **given: Any) -> Any:
            flags = {key: given.pop(_parameter(key)) for key in chosen}

            def load_settings() -> Settings:
                settings = load(Path(config) if config else None, os.environ, flags)
                for note in settings.notes:
                    click.echo(f"unstuck: note: {note}", err=True)
                return settings

            if lazy:
                return function(*args, load_settings=load_settings, **given)
            settings = load_settings()
            try:
                return function(*args, settings=settings, **given)
            except Exception as error:
                if type(error).__module__.split(".")[0] != "redis":
                    raise
                raise explain(error, settings.address) from error

        for key in reversed(chosen):
            called = _flag(known[key])(called)
        config_option = click.option(
            "--config", metavar="FILE", help="Configuration file (YAML). Environment: UNSTUCK_CONFIG."
        )
        return config_option(called)  # type: ignore[return-value]

    return decorate


def _parameter(key: str) -> str:
    return "setting_" + key.replace(".", "__")


def _flag(setting: Setting) -> Callable[[Any], Any]:
    meaning = setting.meaning[:1].upper() + setting.meaning[1:]
    default = f" Default: {setting.default}." if setting.default else ""
    metavar = {"address": "URL", "duration": "DURATION", "percentage": "PERCENT", "number": "NUMBER", "text": "TEXT"}
    shown = metavar.get(setting.unit) or (setting.unit.replace(" or ", "|") if " or " in setting.unit else "VALUE")
    if setting.key == "redis_password_file":
        shown = "FILE"
    return click.option(setting.flag, _parameter(setting.key), metavar=shown, help=f"{meaning}.{default}")


def json_option(function: F) -> F:
    """Add ``--json``; the function gets ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")(function)
