"""Pictures of the dashboards from a Prometheus that has data, drawn by ourselves with matplotlib: this is not Grafana.

    python grafana/preview.py --prometheus URL --from UNIX --to UNIX --out docs/pictures/dashboards [NAME ...]

`PYTHONPATH=tests python -m dashboards.scenario --stretch 5 --pictures docs/pictures/dashboards` plays the scenario of the tests
and draws all of them. Needs matplotlib, which nothing else here needs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("agg")

from drawing import BACK, COLORS, EDGE, FAINT, KINDS, PANEL, SIZE, TEXT, Series, Shown
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

FOLDER: Final = Path(__file__).with_name("dashboards")
WIDTH, COLUMN, LINE, GAP, HEAD = 1440, 60, 30, 8, 58
"""Pixels: the picture's width, one of its 24 columns, one line of the grid, between panels, and the head above them."""
POINTS: Final = 240
WINDOW: Final = "10s"


class Prometheus:
    """Asked for one range of time."""

    def __init__(self, url: str, begun: float, ended: float) -> None:
        self._url, self.begun, self.ended = url.rstrip("/"), begun, ended

    def over_time(self, query: str) -> list[Series]:
        step = max(1.0, (self.ended - self.begun) / POINTS)
        found = self._get("query_range", query, start=self.begun, end=self.ended, step=step)
        return [Series(one["metric"], _points(one["values"])) for one in found]

    def at_the_end(self, query: str) -> list[Series]:
        return [Series(one["metric"], _points([one["value"]])) for one in self._get("query", query, time=self.ended)]

    def _get(self, kind: str, query: str, **more: float) -> list[dict[str, Any]]:
        filled = re.sub(r"\$\{?(\w+)\}?", lambda name: WINDOW if name[1].startswith("__") else ".+", query)
        url = f"{self._url}/api/v1/{kind}?{urllib.parse.urlencode({'query': filled, **more})}"
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  the caller's own Prometheus
            found: list[dict[str, Any]] = json.loads(answer.read())["data"]["result"]
        return found


def _points(values: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    return [(float(at), float(value)) for at, value in values]


def answered(panel: Mapping[str, Any], prometheus: Prometheus) -> list[Series]:
    """What the panel shows, named as its legends say."""
    found = []
    for target in panel["targets"]:
        ask = prometheus.at_the_end if target.get("instant") else prometheus.over_time
        for one in sorted(ask(target["expr"]), key=lambda one: sorted(one.labels.items())):
            one.legend = _named(target.get("legendFormat", ""), one.labels)
            one.ref = target["refId"]
            found.append(one)
    return found


def _named(legend: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), legend)


def marks(dashboard: Mapping[str, Any], prometheus: Prometheus) -> list[tuple[float, str]]:
    """When each of the marked things began."""
    found = []
    for mark in dashboard["annotations"]["list"]:
        # A short window, so that two marks of the same kind are told apart.
        query = mark["expr"].replace("[2m]", "[20s]")
        for one in prometheus.over_time(query):
            before = 0.0
            for at, _ in one.points:
                if at - before > 8:
                    found.append((at, mark["iconColor"]))
                before = at
    return found


def draw(dashboard: Mapping[str, Any], prometheus: Prometheus, path: Path) -> None:
    """One picture of one dashboard, as high as it needs to be."""
    lines = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in dashboard["panels"])
    height = HEAD + lines * LINE + GAP
    figure = plt.figure(figsize=(WIDTH / 100, height / 100), dpi=100, facecolor=BACK)
    _head(figure, dashboard, height)
    marked = marks(dashboard, prometheus)
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        left, top = place["x"] * COLUMN + GAP / 2, HEAD + place["y"] * LINE
        wide, high = place["w"] * COLUMN - GAP, place["h"] * LINE - GAP
        if panel["type"] == "row":
            sign = "▸" if panel["collapsed"] else "▾"
            _text(figure, left + 4, top + 15, f"{sign}  {panel['title']}", height, size=SIZE + 1.5, color=TEXT)
            continue
        box = FancyBboxPatch(
            (left / WIDTH, 1 - (top + high) / height), wide / WIDTH, high / height,
            boxstyle="square,pad=0", transform=figure.transFigure, facecolor=PANEL, edgecolor=EDGE, linewidth=1, zorder=-1,
        )  # fmt: skip
        figure.add_artist(box)
        _text(figure, left + 9, top + 13, panel["title"], height, size=SIZE + 0.5, color=TEXT)
        found = answered(panel, prometheus)
        inside = _margins(panel["type"], found)
        axes = figure.add_axes((
            (left + inside[0]) / WIDTH,
            1 - (top + high - inside[3]) / height,
            (wide - inside[0] - inside[2]) / WIDTH,
            (high - inside[1] - inside[3]) / height,
        ))  # fmt: skip
        KINDS[panel["type"]](axes, Shown(panel, found, prometheus.begun, prometheus.ended, marked))
    figure.savefig(path, facecolor=BACK)
    plt.close(figure)
    sys.stdout.write(f"{path}\n")


def _margins(kind: str, found: Sequence[Series]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom, in pixels."""
    longest = max((len(one.legend) for one in found), default=0)
    return {
        "stat": (6, 22, 6, 2),
        "table": (10, 26, 10, 6),
        "state-timeline": (14 + 6 * longest, 30, 14, 26),
        "heatmap": (58, 30, 14, 26),
    }.get(kind, (58, 30, 14, 46))


def _head(figure: Figure, dashboard: Mapping[str, Any], height: int) -> None:
    _text(figure, 12, 18, dashboard["title"], height, size=14, color="#ffffff")
    _text(figure, 12, 43, dashboard["description"], height, size=SIZE + 1, color=FAINT)
    note = "drawn by grafana/preview.py from the tests' scenario; Grafana itself looks somewhat different"
    _text(figure, WIDTH - 12, 18, note, height, size=SIZE, color=FAINT, right=True)
    x = WIDTH - 12.0
    for mark in reversed(dashboard["annotations"]["list"]):
        _text(figure, x, 43, f"┊ {mark['name']}", height, size=SIZE + 0.5, color=COLORS[mark["iconColor"]], right=True)
        x -= 36 + 6.6 * len(mark["name"])


def _text(
    figure: Figure, x: float, y: float, text: str, height: int, *, size: float, color: str, right: bool = False
) -> None:
    figure.text(
        x / WIDTH, 1 - y / height, text, fontsize=size, color=color, ha="right" if right else "left", va="center"
    )


def main() -> None:
    """Draw what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--prometheus", required=True)
    parser.add_argument("--from", dest="begun", type=float, required=True)
    parser.add_argument("--to", dest="ended", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", default=["overview", "queue", "reclaims", "agent", "pacing"])
    given = parser.parse_args()
    mpl.rcParams["font.family"] = ["DejaVu Sans"]
    given.out.mkdir(parents=True, exist_ok=True)
    prometheus = Prometheus(given.prometheus, given.begun, given.ended)
    for name in given.names:
        dashboard = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        draw(dashboard, prometheus, given.out / f"{name}.png")


if __name__ == "__main__":
    main()
