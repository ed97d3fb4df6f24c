"""docs/findings.md explains everything that can be found, and nothing that cannot."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from unstuck.gate import CAUSES
from unstuck.model import Action, Reason, Standing

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "findings.md").read_text()
CONSTANTS = {"UNREADABLE": "unreadable"}


def kinds_in(tree: ast.AST) -> Iterator[str]:
    """The kinds of the side findings that a module makes: said at the call, or in a table beside it."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for call in ast.walk(function):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "SideFinding"):
                continue
            kind = call.args[0] if call.args else next(word.value for word in call.keywords if word.arg == "kind")
            if isinstance(kind, ast.Constant):
                yield str(kind.value)
            elif isinstance(kind, ast.Name) and kind.id in CONSTANTS:
                yield CONSTANTS[kind.id]
            else:
                table = [
                    row.elts[0].value
                    for row in ast.walk(function)
                    if isinstance(row, ast.Tuple) and row.elts and isinstance(row.elts[0], ast.Constant)
                ]
                assert table, f"line {call.lineno}: the kind is neither a text nor in a table beside the call"
                yield from map(str, table)


def emitted() -> set[str]:
    sources = [*(ROOT / "watchdog").rglob("*.py"), *(ROOT / "exporters").rglob("*.py")]
    return {kind for source in sources for kind in kinds_in(ast.parse(source.read_text()))}


def section(title: str) -> str:
    """The part of the page under a heading of the second level."""
    (found,) = re.findall(rf"^## {title}.*?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def headings(title: str) -> set[str]:
    return set(re.findall(r"^### (\w+)$", section(title), re.MULTILINE))


def test_every_kind_that_the_code_can_emit_is_explained_and_no_other() -> None:
    assert {"no_worker", "quarantined", "debris", "unreadable"} <= emitted()
    assert headings("Kinds") == emitted()


def test_every_reason_is_explained_and_no_other() -> None:
    assert headings("Reasons") == {reason.value for reason in Reason}


def test_every_cause_of_the_gate_is_explained_and_no_other() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", section("The gate"), re.MULTILINE)) == set(CAUSES)


def test_every_action_and_verdict_is_named() -> None:
    for word in (*Action, *set(Standing) - {Standing.HEALTHY}):
        assert f"`{word}`" in PAGE


def test_each_says_what_to_do_and_what_it_stands_on() -> None:
    for title in ("Reasons", "Kinds"):
        for part in re.split(r"^### ", section(title), flags=re.MULTILINE)[1:]:
            assert "*Do*:" in part, part
            assert "*Evidence*:" in part or part.startswith("unreadable"), part
