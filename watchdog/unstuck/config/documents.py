"""Reading the YAML file so that every value remembers where it stands.

A document becomes a tree of :class:`Node`; overriding it from the environment or the command line replaces nodes, so a
later fault names the line, the variable or the flag that caused it. Only plain YAML is taken: no tags, no duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from unstuck.errors import ConfigurationError, Problem

MAX_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_VALUES = 50_000
"""Values of a document with its aliases written out: a few lines of aliases of aliases can stand for millions."""
_SCALARS = ("str", "int", "float", "bool", "null", "timestamp")


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its place. ``value`` is a dict of nodes, a list of nodes, or a scalar.

    ``lax`` marks text from the environment or the command line, where ``"5"`` may stand for the number.
    """

    value: Any
    place: str
    lax: bool = False

    @property
    def section(self) -> dict[str, Node]:
        """The children of a section; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {name: child.plain() for name, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


EMPTY = Node({}, "default")


class _TooDeep(yaml.MarkedYAMLError):
    """The document is nested deeper than anybody needs; following it would use up the stack."""


class _Loader(yaml.SafeLoader):
    """PyYAML's reader, which stops at a depth instead of at the end of the stack."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.depth == MAX_DEPTH:
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs
            raise _TooDeep(problem_mark=event.start_mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def read(path: Path) -> Node:
    """The file as a tree; ConfigurationError with line and column if it cannot be read or is no such document."""
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        mend = (
            "create it, or leave out --config to use the defaults"
            if isinstance(error, FileNotFoundError)
            else ("mend its permissions or name another file with --config")
        )
        raise ConfigurationError([Problem(name, "", f"cannot be read ({error.strerror})", mend)]) from None
    if len(data) > MAX_BYTES:
        raise ConfigurationError([Problem(name, "", "is larger than 1 MB", "name the right file with --config")])
    try:
        return parse(data.decode("utf-8"), name)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigurationError([Problem(f"{name}:{line}", "", "is not UTF-8 text", "save it as UTF-8")]) from None


def parse(text: str, name: str) -> Node:
    """The text as a tree; ``name`` stands in front of the line numbers."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except _TooDeep as error:
        mark = error.problem_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise ConfigurationError([_too_deep(place)]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        fault = f"is no valid YAML ({error.problem or error.context})"
        raise ConfigurationError([Problem(place, "", fault, "look for tabs, quotes and indentation there")]) from None
    except yaml.YAMLError as error:
        fault = f"is no valid YAML ({str(error).splitlines()[0]})"
        raise ConfigurationError([Problem(name, "", fault, "save it as plain UTF-8 text")]) from None
    if root is None:
        return Node({}, name)
    problems: list[Problem] = []
    made = _Reader(name, problems).read(root, "", ())
    if isinstance(made.value, (str, int, float, bool, list)):
        problems.append(Problem(name, "", "holds no keys", "write lines such as `mode: observe`"))
    if problems:
        raise ConfigurationError(problems)
    return made if isinstance(made.value, dict) else Node({}, name)


def _too_deep(place: str) -> Problem:
    return Problem(place, "", f"is nested more than {MAX_DEPTH} levels deep", "no setting lies that deep; remove it")


class _Reader:
    """Turns PyYAML's nodes into ours."""

    def __init__(self, name: str, problems: list[Problem]) -> None:
        self.name = name
        self.problems = problems
        self.scalars = yaml.SafeLoader("")
        self.values = 0

    def read(self, node: yaml.Node, path: str, above: tuple[int, ...], place: str = "") -> Node:
        """One node; ``place`` is that of its key, where it has one."""
        place = place or self._place(node)
        if id(node) in above:
            self.problems.append(Problem(place, path, "an alias contains itself", "write the values out"))
            return Node(None, place)
        self.values += 1
        if self.values > MAX_VALUES:
            fault = f"holds more than {MAX_VALUES:,} values, those of its aliases counted"
            raise ConfigurationError([Problem(place, "", fault, "write out what its aliases (*name) stand for")])
        if len(above) == MAX_DEPTH:  # through aliases: each may stand for something deep
            raise ConfigurationError([_too_deep(place)])
        above = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            return Node(self._mapping(node, path, above), place)
        if isinstance(node, yaml.SequenceNode):
            children = [self.read(child, f"{path}[{n}]", above) for n, child in enumerate(node.value)]
            return Node(children, place)
        return Node(self._scalar(node, path, place), place)

    def _mapping(self, node: yaml.MappingNode, path: str, above: tuple[int, ...]) -> dict[str, Node]:
        made: dict[str, Node] = {}
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "<<":
                fault, mend = "a key must be a plain word", "write `key: value`; merges (<<) are not taken"
                self.problems.append(Problem(place, path, fault, mend))
                continue
            name = key_node.value
            here = f"{path}.{name}" if path else name
            if name in made:
                fault = f"is given twice, first at {made[name].place}"
                self.problems.append(Problem(place, here, fault, "remove one of the two"))
                continue
            made[name] = self.read(value_node, here, above, place)
        return made

    def _scalar(self, node: yaml.Node, path: str, place: str) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind not in _SCALARS:
            self.problems.append(Problem(place, path, f"the tag {node.tag} is not taken", "remove it"))
            return None
        if kind == "timestamp" or (kind == "int" and ":" in str(node.value)):
            # YAML 1.1 reads 1:30 as 90 and 2020-01-01 as a date: nobody means that here.
            return str(node.value)
        try:
            return self.scalars.construct_object(node)
        except (yaml.YAMLError, ValueError):
            return str(node.value)

    def _place(self, node: yaml.Node) -> str:
        mark = node.start_mark
        return f"{self.name}:{mark.line + 1}:{mark.column + 1}"


def overlay(base: Node, over: Node) -> Node:
    """``over`` on top of ``base``: sections are merged, everything else is replaced; an empty value changes nothing."""
    if over.value is None:
        return base
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    merged = dict(base.value)
    for name, child in over.value.items():
        merged[name] = overlay(merged[name], child) if name in merged else child
    return Node(merged, over.place)


def put(root: dict[str, Node], path: tuple[str, ...], leaf: Node) -> None:
    """Set a leaf in a tree that is being built, making the sections above it."""
    for name in path[:-1]:
        root = root.setdefault(name, Node({}, leaf.place)).value
    root[path[-1]] = leaf
