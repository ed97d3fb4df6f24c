"""The committed dashboards as the tests read them: panels, queries, variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser as promql

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "grafana" / "dashboards"
UIDS = ("unstuck-overview", "unstuck-queue", "unstuck-reclaims", "unstuck-agent", "unstuck-pacing")
FILLED: Mapping[str, str] = {
    "job": ".+",
    "instance": ".+",
    "backend": ".+",
    "queue": ".+",
    "__rate_interval": "5s",
    "__interval": "5s",
    "__range": "5m",
}
"""What Grafana would put in where "All" is chosen, and the shortest window for a scrape interval of a second."""


@dataclass(frozen=True)
class Query:
    """One target of a panel."""

    dashboard: str
    panel: str
    ref: str
    text: str
    legend: str
    instant: bool

    def __str__(self) -> str:
        return f"{self.dashboard} / {self.panel} / {self.ref}: {self.text}"

    @property
    def filled(self) -> str:
        return filled(self.text)


def load() -> dict[str, dict[str, Any]]:
    """Uid -> dashboard."""
    found = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    return {one["uid"]: one for one in found}


def panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every panel that shows something, those of folded rows included."""
    for one in dashboard["panels"]:
        if one["type"] == "row":
            yield from one["panels"]
        else:
            yield one


def queries(dashboard: Mapping[str, Any]) -> Iterator[Query]:
    """Every target of every panel."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield Query(
                dashboard["uid"],
                panel["title"],
                target["refId"],
                target["expr"],
                target.get("legendFormat", ""),
                bool(target.get("instant")),
            )


def filled(text: str) -> str:
    """The text with the dashboard's variables filled in."""
    return re.sub(r"\$\{?(\w+)\}?", lambda name: FILLED[name[1]], text)


def nodes(expr: promql.Expr, *above: promql.Expr) -> Iterator[tuple[Any, tuple[promql.Expr, ...]]]:
    """Every node of an expression with the nodes above it."""
    yield expr, above
    for child in _children(expr):
        yield from nodes(child, *above, expr)


def _children(expr: promql.Expr) -> list[Any]:
    match expr:
        case promql.BinaryExpr():
            return [expr.lhs, expr.rhs]
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return [expr.expr]
        case promql.Call():
            return list(expr.args)
        case promql.MatrixSelector():
            return [expr.vector_selector]
    return []


def selectors(text: str) -> Iterator[tuple[Any, tuple[promql.Expr, ...]]]:
    """Every selector of an expression with the nodes above it."""
    for node, above in nodes(promql.parse(filled(text))):
        if isinstance(node, promql.VectorSelector):
            yield node, above
