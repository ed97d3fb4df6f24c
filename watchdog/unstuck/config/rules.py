"""The lists of the file: entries of ``queues``, each laid over the top level's settings, and of ``webhooks``."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from unstuck.config.building import build, keys_of, leaf, needs_section, unknown
from unstuck.config.custom import IN_FLIGHT_KINDS, LAYOUT_KEYS, PENDING_KINDS, Collection, CustomLayout
from unstuck.config.documents import EMPTY, Node, overlay
from unstuck.config.settings import BACKENDS, QueueRule, QueueSettings, Webhook
from unstuck.errors import Problem
from unstuck.spelling import did_you_mean

RULE_KEYS: Final = ("backend", "queue")


def build_rules(top: Node, problems: list[Problem]) -> tuple[QueueRule, ...]:
    """The entries of ``queues``, each with its complete settings: its own keys over those of the top level."""
    given = top.section.get("queues", EMPTY)
    if given.value is None or given is EMPTY:
        return ()
    if not isinstance(given.value, list):
        mend = "write one `- {backend: …, queue: …}` per line below it"
        problems.append(Problem(given.place, "queues", "is a list", mend))
        return ()
    base = Node({k: v for k, v in top.section.items() if k in keys_of(QueueSettings)}, top.place)
    rules = (_build_rule(n, node, base, problems) for n, node in enumerate(given.value))
    return tuple(rule for rule in rules if rule is not None)


def _build_rule(number: int, node: Node, base: Node, problems: list[Problem]) -> QueueRule | None:
    path = f"queues[{number}]"
    if not needs_section(node, path, problems):
        return None
    own = {k: v for k, v in node.section.items() if k in RULE_KEYS}
    backend = str(own["backend"].plain()) if "backend" in own else ""
    if backend not in BACKENDS:
        place = own["backend"].place if "backend" in own else node.place
        fault = f"{backend!r} is not a queue system" if backend else "is missing"
        mend = did_you_mean(backend, BACKENDS).removeprefix(", ") or f"one of {', '.join(BACKENDS)}"
        problems.append(Problem(place, f"{path}.backend", fault, mend))
        return None
    custom = backend == "custom"
    layout_keys = LAYOUT_KEYS if custom else ()
    unknown(node, [*RULE_KEYS, *keys_of(QueueSettings), *layout_keys], path, problems)
    queue = own["queue"].plain() if "queue" in own else "*"
    if not isinstance(queue, str) or not queue:
        fault, mend = f"{queue!r} is no name", 'write a queue name or a pattern such as "mail-*", in quotes'
        problems.append(Problem(own["queue"].place, f"{path}.queue", fault, mend))
        return None
    over = Node({k: v for k, v in node.section.items() if k in keys_of(QueueSettings)}, node.place)
    settings = build(QueueSettings, overlay(base, over), path, problems)
    layout = _build_layout(node, queue, path, problems) if custom else None
    if settings is None or (custom and layout is None):
        return None
    return QueueRule(backend=backend, queue=queue, settings=settings, layout=layout, place=node.place)


def _build_layout(node: Node, queue: str, path: str, problems: list[Problem]) -> CustomLayout | None:
    """The layout of a custom queue, with ``{queue}`` filled in."""
    before = len(problems)
    if any(sign in queue for sign in "*?["):
        place = node.section["queue"].place if "queue" in node.section else node.place
        mend = "give each custom queue an entry with its own name"
        problems.append(Problem(place, f"{path}.queue", "a custom queue needs one name, not a pattern", mend))
    pending = _collection(node, "pending", queue, path, problems)
    in_flight = _collection(node, "in_flight", queue, path, problems)
    lock = _pattern(node, "lock", queue, path, problems)
    heartbeat = _pattern(node, "heartbeat", queue, path, problems)
    requeue = "left"
    if "requeue" in node.section:
        annotation = keys_of_layout()["requeue"]
        requeue = leaf(annotation, node.section["requeue"], f"{path}.requeue", problems) or "left"
    if pending and in_flight and pending.key == in_flight.key:
        place = node.section["in_flight"].place
        problems.append(Problem(place, f"{path}.in_flight", "is the same key as pending", "name two different keys"))
    if not lock and not heartbeat and len(problems) == before:
        fault = "without lock and heartbeat nothing shows whether a job lives"
        problems.append(Problem(node.place, path, fault, 'add `heartbeat: "heartbeat:{id}"` or `lock:`'))
    if len(problems) > before or pending is None or in_flight is None:
        return None
    return msgspec.convert(
        {
            "pending": msgspec.to_builtins(pending),
            "in_flight": msgspec.to_builtins(in_flight),
            "lock": lock,
            "heartbeat": heartbeat,
            "requeue": requeue,
        },
        CustomLayout,
    )


def keys_of_layout() -> dict[str, Any]:
    """The keys that an entry with ``backend: custom`` has beside the settings."""
    return {field.name: field.type for field in msgspec.structs.fields(CustomLayout)}


def _collection(node: Node, name: str, queue: str, path: str, problems: list[Problem]) -> Collection | None:
    kinds = PENDING_KINDS if name == "pending" else IN_FLIGHT_KINDS
    here = f"{path}.{name}"
    example = f'`{name}: {{list: "{name}:{queue}"}}`'
    child = node.section.get(name)
    if child is None:
        problems.append(Problem(node.place, here, "is missing", f"add {example}"))
        return None
    if len(child.section) != 1:
        problems.append(Problem(child.place, here, "names one Redis type and its key", f"write {example}"))
        return None
    ((kind, held),) = child.section.items()
    if kind not in kinds:
        mend = did_you_mean(kind, kinds).removeprefix(", ") or f"one of {', '.join(kinds)}"
        problems.append(Problem(held.place, f"{here}.{kind}", "is no type that can hold ids here", mend))
        return None
    if not isinstance(held.value, str) or not held.value:
        problems.append(Problem(held.place, f"{here}.{kind}", "is no key", "write the key's name in quotes"))
        return None
    return Collection(kind, held.value.replace("{queue}", queue))


def _pattern(node: Node, name: str, queue: str, path: str, problems: list[Problem]) -> str:
    child = node.section.get(name)
    if child is None or child.value is None:
        return ""
    if not isinstance(child.value, str) or child.value.count("{id}") != 1:
        mend = f'write the job\'s id as {{id}}, as in `{name}: "{name}:{{id}}"`'
        problems.append(Problem(child.place, f"{path}.{name}", "holds no {id}", mend))
        return ""
    return child.value.replace("{queue}", queue)


def build_webhooks(top: Node, problems: list[Problem]) -> tuple[Webhook, ...]:
    """The entries of ``webhooks``."""
    given = top.section.get("webhooks", EMPTY)
    if given.value is None or given is EMPTY:
        return ()
    if not isinstance(given.value, list):
        problems.append(Problem(given.place, "webhooks", "is a list", "write one `- {url: …}` per line below it"))
        return ()
    made: list[Webhook] = []
    for number, node in enumerate(given.value):
        path = f"webhooks[{number}]"
        if needs_section(node, path, problems):
            hook = build(Webhook, node, path, problems)
            if hook is not None:
                made.append(hook)
    return tuple(made)
