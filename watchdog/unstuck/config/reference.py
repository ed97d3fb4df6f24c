"""The settings as a list and as a JSON schema, made from the structs so that neither can fall behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from msgspec import Struct

from unstuck.config.building import bare, bounds_of, is_section, keys_of, meta_of, scalar_keys
from unstuck.config.custom import IN_FLIGHT_KINDS, PENDING_KINDS
from unstuck.config.environment import flag, variable
from unstuck.config.passwords import PasswordHash
from unstuck.config.rules import keys_of_layout
from unstuck.config.settings import BACKENDS, QueueSettings, Settings, Webhook
from unstuck.config.units import HookUrl, ListenAddress, MemoryLimit, Seconds, Share, written
from unstuck.redis_url import RedisUrl

_PATTERNS: dict[type, dict[str, Any]] = {
    Seconds: {"pattern": r"^(\s*\d+(\.\d+)?\s*(ms|s|m|h|d))+\s*$", "examples": ["200ms", "5s", "2m", "1h", "30d"]},
    Share: {"pattern": r"^\s*\d+(\.\d+)?\s*%\s*$", "examples": ["50%"]},
    MemoryLimit: {
        "pattern": r"^\s*\d+(\.\d+)?\s*(%|[kKmMgGtT]?[iI]?[bB])\s*$",
        "examples": ["75%", "512mb"],
    },
    ListenAddress: {"pattern": r"^.*:\d+$", "examples": ["127.0.0.1:9797"]},
    RedisUrl: {"pattern": r"^(redis|rediss|unix|sentinel|cluster)://", "examples": ["redis://127.0.0.1:6379/0"]},
    HookUrl: {"pattern": r"^https?://"},
    PasswordHash: {"pattern": r"^scrypt\$"},
}
_UNITS = {
    Seconds: "duration",
    Share: "percentage",
    MemoryLimit: "percentage of maxmemory, or size",
    ListenAddress: "host:port",
    RedisUrl: "address",
    int: "number",
    float: "number",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One key that holds one value: its names, default (as it is written), unit and meaning."""

    key: str
    variable: str
    flag: str
    default: str
    unit: str
    meaning: str
    per_queue: bool


def reference() -> Iterator[Setting]:
    """Every key that holds one value, in the order of the file."""
    plain = Settings()
    for name, annotation in scalar_keys().items():
        value: Any = plain
        for part in name.split("."):
            value = getattr(value, part)
        core = bare(annotation)
        unit = _UNITS.get(core) or (" or ".join(_choices(core)) if _choices(core) else "text")
        meta = meta_of(annotation)
        meaning = (meta.description or "") if meta else ""
        per_queue = name.split(".")[0] in keys_of(QueueSettings)
        yield Setting(name, variable(name), flag(name), str(value), unit, meaning, per_queue)


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of the configuration file, with descriptions, defaults and units."""
    made = _section(Settings, Settings())
    top = made["properties"]
    top["queues"] = {"type": "array", "description": "per-queue settings; first match wins", "items": _rule()}
    hook = _section(Webhook, None)
    hook["required"] = ["url"]
    top["webhooks"] = {"type": "array", "description": "receivers of the agent's findings", "items": hook}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of unstuck",
        **made,
    }


def _rule() -> dict[str, Any]:
    made = _section(QueueSettings, None)
    layout = keys_of_layout()
    own = {
        "backend": {"enum": list(BACKENDS), "description": "the queue system"},
        "queue": {"type": "string", "default": "*", "description": "name of a queue, or a pattern with * ? [ ]"},
        "pending": _collection(layout["pending"], PENDING_KINDS),
        "in_flight": _collection(layout["in_flight"], IN_FLIGHT_KINDS),
        **{name: _leaf(layout[name], None) for name in ("lock", "heartbeat", "requeue")},
    }
    custom = {
        "if": {"properties": {"backend": {"const": "custom"}}},
        "then": {"required": ["queue", "pending", "in_flight"]},
        "else": {"properties": dict.fromkeys(layout, False)},
    }
    return {**made, "properties": {**own, **made["properties"]}, "required": ["backend"], **custom}


def _collection(annotation: Any, kinds: tuple[str, ...]) -> dict[str, Any]:
    meta = meta_of(annotation)
    return {
        "type": "object",
        "description": meta.description if meta else "",
        "properties": {kind: {"type": "string", "minLength": 1} for kind in kinds},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _section(struct: type[Struct], defaults: Struct | None) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, annotation in keys_of(struct).items():
        if is_section(annotation):
            inner = _section(annotation, getattr(defaults, name) if defaults else None)
            inner["description"] = (annotation.__doc__ or "").split("\n")[0]
            properties[name] = inner
        elif meta_of(annotation):
            properties[name] = _leaf(annotation, getattr(defaults, name) if defaults else None)
    # An empty value (`brake:` with every line below it commented out) leaves the defaults.
    for entry in properties.values():
        if isinstance(entry.get("type"), str):
            entry["type"] = [entry["type"], "null"]
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _choices(core: Any) -> list[str]:
    if isinstance(core, type) and hasattr(core, "__members__"):
        return [str(member.value) for member in core.__members__.values()]
    return [] if get_origin(core) is dict else [str(choice) for choice in get_args(core)]


def _leaf(annotation: Any, default: Any) -> dict[str, Any]:
    core, meta = bare(annotation), meta_of(annotation)
    made: dict[str, Any] = {"description": (meta.description or "") if meta else ""}
    if get_origin(core) is dict:
        made |= {"type": "object", "additionalProperties": {"type": "string", **_PATTERNS[PasswordHash]}}
    elif get_origin(core) is tuple:
        made |= {"type": "array", "items": {"enum": _choices(get_args(core)[0])}, "uniqueItems": True}
    elif choices := _choices(core):
        made |= {"enum": choices}
    elif core in _PATTERNS:
        made |= {"type": "string", **_PATTERNS[core]}
    else:
        made |= {"type": {int: "integer", float: "number", str: "string", bool: "boolean"}[core]}
    if meta:
        bounds = (("minimum", meta.ge), ("maximum", meta.le), ("pattern", meta.pattern))
        made |= {k: v for k, v in bounds if v is not None}
        least, most = bounds_of(annotation)
        if core in (Seconds, Share):
            made |= {k: str(core(v)) for k, v in (("x-least", least), ("x-most", most)) if v is not None}
    if default is not None:
        made["default"] = written(default)
    return made
