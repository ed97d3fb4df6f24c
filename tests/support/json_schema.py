"""Checking a document against a JSON schema, for the few words that our schemas use; a word it does not know is refused."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {
    "$schema", "title", "description", "type", "enum", "required", "properties", "additionalProperties", "items",
    "minimum", "minLength", "minItems", "maxItems", "pattern",
}  # fmt: skip


def faults(schema: Mapping[str, Any], value: Any, place: str = "$") -> Iterator[str]:
    """One sentence for each part of `value` that is not as the schema says."""
    unknown = set(schema) - _KNOWN
    assert not unknown, f"this checker does not know {unknown}: teach it, or write the schema without"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(kind, value) for kind in kinds):
        yield f"{place}: {value!r} is not of type {kinds}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is not one of {schema['enum']}"
    if "minimum" in schema and isinstance(value, int | float) and value < schema["minimum"]:
        yield f"{place}: {value!r} is less than {schema['minimum']}"
    if "minLength" in schema and isinstance(value, str) and len(value) < schema["minLength"]:
        yield f"{place}: {value!r} is too short"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{place}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, list) and not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{place}: {len(value)} items are too few or too many"
    if isinstance(value, dict):
        yield from _object(schema, value, place)
    if isinstance(value, list) and "items" in schema:
        for index, one in enumerate(value):
            yield from faults(schema["items"], one, f"{place}[{index}]")


def _object(schema: Mapping[str, Any], value: dict[str, Any], place: str) -> Iterator[str]:
    known = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    for name in schema.get("required", []):
        if name not in value:
            yield f"{place}: {name} is missing"
    for name, one in value.items():
        if name in known:
            yield from faults(known[name], one, f"{place}.{name}")
        elif rest is False:
            yield f"{place}: {name} is not in the schema"
        elif isinstance(rest, dict):
            yield from faults(rest, one, f"{place}.{name}")


def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS[kind])
