"""From a tree of nodes to the structs of :mod:`unstuck.config.settings`, collecting every fault on the way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from unstuck.config.documents import Node
from unstuck.config.settings import Section, Settings
from unstuck.config.units import MemoryLimit, Seconds, Share
from unstuck.errors import Problem, UnstuckError
from unstuck.spelling import did_you_mean

S = TypeVar("S", bound=Struct)
_LEFT_TO_LOADING: Final = ("queues", "webhooks")


def meta_of(annotation: Any) -> Meta | None:
    """The description of a field, None for a field that is no key."""
    return next((part for part in getattr(annotation, "__metadata__", ()) if isinstance(part, Meta)), None)


def bounds_of(annotation: Any) -> tuple[float | None, float | None]:
    """The least and the most that a value with a unit may be, in seconds or as a share of 1."""
    meta = meta_of(annotation)
    extra = (meta.extra or {}) if meta else {}
    return extra.get("least"), extra.get("most")


def bare(annotation: Any) -> Any:
    """The type without its description."""
    return annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation


def is_section(annotation: Any) -> bool:
    """Whether a field is a section with keys of its own."""
    return isinstance(annotation, type) and issubclass(annotation, Section)


def keys_of(struct: type[Struct]) -> dict[str, Any]:
    """The keys of a section of the file, with their annotated types."""
    return {
        field.name: field.type
        for field in msgspec.structs.fields(struct)
        if meta_of(field.type) or is_section(field.type) or field.name in _LEFT_TO_LOADING
    }


def build(struct: type[S], node: Node, path: str, problems: list[Problem]) -> S | None:
    """The struct for a section; None if a needed key is missing. Faults are added to ``problems``."""
    keys = keys_of(struct)
    values: dict[str, Any] = {}
    unknown(node, keys, path, problems)
    for name, annotation in keys.items():
        child = node.section.get(name)
        if child is None or child.value is None or name in _LEFT_TO_LOADING:
            continue
        here = f"{path}.{name}" if path else name
        if is_section(annotation):
            if needs_section(child, here, problems):
                values[name] = build(annotation, child, here, problems)
        else:
            value = leaf(annotation, child, here, problems)
            if value is not None:
                values[name] = value
    missing = [f.name for f in msgspec.structs.fields(struct) if f.required and f.name not in values]
    problems += [
        Problem(node.place, f"{path}.{name}", "is missing", f"add `{name}:`")
        for name in missing
        if name not in node.section
    ]
    return None if missing else struct(**values)


def unknown(node: Node, known: Iterable[str], path: str, problems: list[Problem]) -> None:
    """Complain about keys that are not known, with the nearest right spelling."""
    known = list(known)
    for name, child in node.section.items():
        if name not in known:
            where = f"in {path}" if path else "at the top level"
            mend = did_you_mean(name, known).removeprefix(", ") or f"known {where}: {', '.join(known)}"
            problems.append(Problem(child.place, f"{path}.{name}" if path else name, "is not a setting", mend))


def needs_section(node: Node, path: str, problems: list[Problem]) -> bool:
    """Whether the node is a section; a fault is added if not."""
    if isinstance(node.value, dict):
        return True
    problems.append(
        Problem(node.place, path, "is a section", f"write its keys below it, as in `{path}: {{key: value}}`")
    )
    return False


def leaf(annotation: Any, node: Node, path: str, problems: list[Problem]) -> Any:
    """The value of one key, None after a fault."""
    plain = node.plain()
    if node.lax and isinstance(plain, str) and bare(annotation) is not str:
        plain = plain.strip()
    try:
        value = _read(annotation, plain, strict=not node.lax)
    except msgspec.ValidationError as error:
        fault, mend = _say(annotation, plain, str(error))
        problems.append(Problem(node.place, path, fault, mend))
        return None
    except (ValueError, UnstuckError) as error:
        # The value is not repeated here: it may be an address with a password.
        fault, _, mend = str(error).partition("; ")
        problems.append(Problem(node.place, path, fault, mend))
        return None
    fault, mend = _beyond(annotation, value)
    if fault:
        problems.append(Problem(node.place, path, fault, mend))
        return None
    return value


def _read(annotation: Any, plain: Any, *, strict: bool) -> Any:
    """Convert a plain value; types with a ``parse`` read it themselves. ValueError with fault and mend otherwise."""
    core = bare(annotation)
    if get_origin(core) is dict:
        if not isinstance(plain, dict):
            raise ValueError("is a section; write `name: value` lines below it")
        return {str(name): get_args(core)[1].parse(value) for name, value in plain.items()}
    if hasattr(core, "parse"):
        return core.parse(plain)
    return msgspec.convert(plain, annotation, strict=strict)


def _beyond(annotation: Any, value: Any) -> tuple[str, str]:
    """The fault and the mend for a value with a unit that is out of its bounds; two empty texts if it is not."""
    least, most = bounds_of(annotation)
    if isinstance(value, MemoryLimit):
        return ("", "") if float(value) > 0 else (f"{value} is too small", "write a share above 0%, or a size")
    if isinstance(value, (Seconds, Share)):
        kind = type(value)
        if least is not None and value < least:
            return f"{value} is too small", f"the least is {kind(least)}"
        if most is not None and value > most:
            return f"{value} is too large", f"the most is {kind(most)}"
    return "", ""


def _say(annotation: Any, plain: Any, error: str) -> tuple[str, str]:
    """The fault and the mend for a value that msgspec did not take."""
    core = bare(annotation)
    if get_origin(core) is tuple:
        if not isinstance(plain, list):
            return f"{plain!r} is not a list", "write it as [one, another]"
        core = get_args(core)[0]
        plain = next((one for one in plain if one not in get_args(core)), plain)
    choices = [str(c) for c in get_args(core)] if get_origin(core) is not dict else []
    if isinstance(core, type) and hasattr(core, "__members__"):
        choices = [str(member.value) for member in core.__members__.values()]
    if choices:
        near = did_you_mean(str(plain), choices)
        return f"{plain!r} is not one of {', '.join(choices)}", near.removeprefix(", ") or "choose one of these"
    text = error.split(" - at `", maxsplit=1)[0]
    return f"{plain!r} is not taken ({text[:1].lower()}{text[1:]})", _MENDS.get(core, "correct the value")


_MENDS: Final = {
    int: "write a whole number within that range",
    float: "write a number within that range",
    str: "write a text, in quotes if it looks like a number",
    bool: "write true or false",
}


def scalar_keys(struct: type[Struct] = Settings, prefix: str = "") -> dict[str, Any]:
    """Every key that holds one value, as ``a`` or ``a.b``, with its annotated type."""
    found: dict[str, Any] = {}
    for name, annotation in keys_of(struct).items():
        if is_section(annotation):
            found |= scalar_keys(annotation, f"{prefix}{name}.")
        elif name not in _LEFT_TO_LOADING and get_origin(bare(annotation)) is not dict:
            found[f"{prefix}{name}"] = annotation
    return found
