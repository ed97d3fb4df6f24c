"""From `module:function` to a handler, with a clear word about what is wrong with it."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from unstuck.errors import UsageError
from unstuck.spelling import did_you_mean
from unstuck.worker.context import Handler
from unstuck.worker.outcomes import named


def resolve(name: str) -> Handler:
    """The function that `module:function` names. Raises UsageError that names the nearest right spelling."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise UsageError(f"handler {name!r}: write MODULE:FUNCTION, as in `tasks:send_mail`")
    found: Any = _module(name, module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = did_you_mean(part, [one for one in vars(found) if callable(getattr(found, one))])
            raise UsageError(f"handler {name!r}: {module_name} has no {part!r}{near or '; check its spelling'}")
        found = getattr(found, part)
    return check(found, name)


def check(handler: Any, name: str) -> Handler:
    """The handler itself, if it can be called with a payload and a context. Raises UsageError."""
    if not callable(handler):
        raise UsageError(f"handler {name!r} is a {type(handler).__name__}, not a function")
    if inspect.iscoroutinefunction(handler):
        raise UsageError(f"handler {name!r} is async; wrap it in a function that calls asyncio.run(…)")
    try:
        inspect.signature(handler).bind(None, None)
    except TypeError:
        raise UsageError(f"handler {name!r} must take two arguments: the payload and the context") from None
    except ValueError:
        pass  # written in C and silent about what it takes: calling it will tell
    return handler  # type: ignore[no-any-return]


def name_of(handler: Handler) -> str:
    """`module:function` of a function that a child process can import. Raises UsageError where it cannot."""
    module, name = getattr(handler, "__module__", None), getattr(handler, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name:
        raise UsageError(f"handler {handler!r}: a child process needs a function of an importable module")
    return f"{module}:{name}"


def _module(name: str, module: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise UsageError(f"handler {name!r}: importing {module} failed: {error}") from error
        near = did_you_mean(module.partition(".")[0], _modules_here())
        raise UsageError(
            f"handler {name!r}: no module {error.name!r} here ({here}) or on PYTHONPATH{near or '; check its spelling'}"
        ) from None
    except KeyboardInterrupt:
        raise
    except SystemExit as error:
        raise UsageError(
            f"handler {name!r}: importing {module} ended the program ({_in_one_line(error)}); "
            'put what is to run as a program under `if __name__ == "__main__":`'
        ) from error
    except BaseException as error:
        raise UsageError(f"handler {name!r}: importing {module} failed: {_in_one_line(error)}") from error


def _in_one_line(error: BaseException) -> str:
    return " ".join(named(error).split()).removesuffix(":")


def _modules_here() -> list[str]:
    found = []
    for entry in os.scandir("."):
        if entry.name.endswith(".py"):
            found.append(entry.name.removesuffix(".py"))
        elif entry.is_dir() and entry.name.isidentifier():
            found.append(entry.name)
    return found
