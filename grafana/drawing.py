"""How grafana/preview.py draws each kind of panel: our own small likeness of Grafana's, for pictures in the documentation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator, MultipleLocator

BACK, PANEL, EDGE, TEXT, FAINT = "#111217", "#181b1f", "#2c3235", "#d5d8e0", "#9aa0ac"
COLORS: Final[Mapping[str, str]] = {
    "green": "#73bf69", "yellow": "#f2cc0c", "orange": "#ff9830", "red": "#f2495c", "blue": "#5794f2", "purple": "#b877d9",
    "text": "#9fa7b3",
}  # fmt: skip
PALETTE: Final = (
    "#73bf69",
    "#5794f2",
    "#ff9830",
    "#b877d9",
    "#f2cc0c",
    "#37c2c2",
    "#f2495c",
    "#c4a484",
    "#8ab8ff",
    "#9fa7b3",
)
HEAT: Final = LinearSegmentedColormap.from_list("heat", ["#2b211a", "#6b3f17", "#c96a12", "#ffb357", "#fff1dc"])
SIZE: Final = 8.5
"""Of ordinary text, in points."""


@dataclass
class Series:
    """One answer of Prometheus."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]
    legend: str = ""
    ref: str = ""


@dataclass
class Shown:
    """A panel with its answers and the time range, in Unix seconds."""

    panel: Mapping[str, Any]
    series: list[Series]
    begun: float
    ended: float
    marks: list[tuple[float, str]] = field(default_factory=list)  # time and colour

    @property
    def defaults(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.panel["fieldConfig"]["defaults"]
        return found

    def overridden(self, name: str, what: str) -> Any:
        """The value of an override, None without."""
        for override in self.panel["fieldConfig"]["overrides"]:
            if override["matcher"]["options"] == name:
                for one in override["properties"]:
                    if one["id"] == what:
                        return one.get("value")
        return None


# ── words ──


def spoken(value: float, unit: str, decimals: int | None = None) -> str:
    """A value as Grafana would write it, about."""
    if unit == "s":
        for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
            if abs(value) >= size:
                return f"{_short(value / size)} {name}"
        return "0 s" if value == 0 else f"{_short(value * 1000)} ms"
    if unit == "bytes":
        size, name = next(
            ((1024**n, s) for n, s in ((3, "GiB"), (2, "MiB"), (1, "KiB")) if abs(value) >= 1024**n), (1, "B")
        )
        return f"{_short(value / size)} {name}"
    if unit == "percentunit":
        return f"{_short(value * 100)} %"
    if decimals is not None:
        value = round(value, decimals)
    text = f"{_short(value / 1000)} k" if abs(value) >= 10_000 else _short(value)
    return f"{text}/s" if unit == "ops" else text


def _short(value: float) -> str:
    size = abs(value)
    digits = 0 if size >= 100 or value == round(value) else 1 if size >= 10 else 2
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def stepped(value: float, steps: Sequence[Mapping[str, Any]]) -> str:
    """The colour of the threshold that the value has reached."""
    color = steps[0]["color"]
    for step in steps[1:]:
        if value >= step["value"]:
            color = step["color"]
    return COLORS[color]


def mapped(value: float, mappings: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Word and colour of a value that has them."""
    for one in mappings:
        if found := one["options"].get(f"{value:g}"):
            return found["text"], COLORS[found["color"]]
    return None


# ── kinds ──


def number(axes: Axes, shown: Shown) -> None:
    """A stat."""
    axes.set_axis_off()
    options, steps = shown.panel["options"], shown.defaults["thresholds"]["steps"]
    mappings = shown.defaults.get("mappings", ())
    text, color = shown.defaults.get("noValue", "–"), COLORS["text"]
    live = [one for one in shown.series if one.points]
    if live:
        value = live[0].points[-1][1]
        text, color = spoken(value, shown.defaults["unit"], shown.defaults.get("decimals")), stepped(value, steps)
        if options["textMode"] == "name":
            text = ", ".join(one.legend for one in live)
        elif word := mapped(value, mappings):
            text, color = word
    axes.text(0.5, 0.56, text, color=color, fontsize=21, ha="center", va="center", transform=axes.transAxes)
    if options["graphMode"] == "area" and live and len(live[0].points) > 1:
        small = axes.inset_axes((0, 0, 1, 0.3))
        small.set_axis_off()
        xs, ys = zip(*live[0].points, strict=True)
        small.set_xlim(shown.begun, shown.ended)
        small.set_ylim(min(0, *ys), max(ys) * 1.1 or 1)
        small.fill_between(xs, ys, color=color, alpha=0.22, linewidth=0)
        small.plot(xs, ys, color=color, linewidth=0.9)


def lines(axes: Axes, shown: Shown) -> None:
    """A time series."""
    palette = cycle(PALETTE)
    fixed = [shown.overridden(one.legend, "color") for one in shown.series]
    colors = [COLORS[one["fixedColor"]] if one else next(palette) for one in fixed]
    top = _bodies(axes, shown, colors)
    _time_axis(axes, shown)
    lowest, top = shown.defaults.get("min"), shown.defaults.get("max") or top
    if shown.defaults["custom"].get("thresholdsStyle", {}).get("mode") == "dashed":
        for step in shown.defaults["thresholds"]["steps"][1:]:
            if step["value"] <= max(top * 2.2, 1e-9):
                axes.axhline(step["value"], color=COLORS[step["color"]], linewidth=1, linestyle=(0, (6, 4)))
                top = max(top, step["value"])
    if lowest is not None:
        axes.set_ylim(lowest, top * 1.08 if top > lowest else lowest + 1)
    axes.yaxis.set_major_locator(_steps(shown.defaults["unit"], top))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: spoken(y, shown.defaults["unit"])))
    if not shown.series:
        none = shown.defaults.get("noValue", "No data")
        axes.text(0.5, 0.5, none, color=FAINT, ha="center", transform=axes.transAxes, fontsize=SIZE)
    # What is nowhere but 0 is named last, where there may be no room for it.
    named = sorted(zip(shown.series, colors, strict=True), key=lambda one: not any(y for _, y in one[0].points))
    _legend(axes, [(one.legend, color) for one, color in named])


def _steps(unit: str, top: float) -> Locator:
    """Ticks at values that can be spoken: whole jobs, whole minutes, powers of two of bytes."""
    if unit == "s" and top > 90:
        return MultipleLocator(60 * math.ceil(top / 240))
    if unit == "bytes" and top > 0:
        return MultipleLocator(2 ** math.ceil(math.log2(top / 4)))
    return MaxNLocator(4, integer=unit == "short")


def _bodies(axes: Axes, shown: Shown, colors: Sequence[str]) -> float:
    """The series themselves; returns the highest value that is drawn."""
    custom = shown.defaults["custom"]
    bars, stacked = custom.get("drawStyle") == "bars", custom.get("stacking", {}).get("mode") == "normal"
    below: dict[float, float] = {}
    top = 0.0
    for one, color in zip(shown.series, colors, strict=True):
        xs = [x for x, _ in one.points]
        low = [below.get(x, 0.0) if stacked else 0.0 for x in xs]
        high = [base + y for base, (_, y) in zip(low, one.points, strict=True)]
        top = max([top, *high])
        if stacked:
            below.update(zip(xs, high, strict=True))
        if bars:
            width = (shown.ended - shown.begun) / 110
            axes.bar(xs, [y for _, y in one.points], width, low, color=color, alpha=0.8, linewidth=0)
            continue
        dashed = shown.overridden(one.legend, "custom.lineStyle")
        for part in _unbroken(xs, shown):
            axes.plot(xs[part], high[part], color=color, linewidth=1.2, linestyle="--" if dashed else "-")
            if len(xs[part]) == 1:
                axes.plot(xs[part], high[part], ".", color=color, markersize=3)
            if not dashed:
                axes.fill_between(
                    xs[part], low[part], high[part], color=color, alpha=0.33 if stacked else 0.08, linewidth=0
                )
    return top


def _unbroken(xs: Sequence[float], shown: Shown) -> list[slice]:
    """Where the line has no gap."""
    step = min((b - a for a, b in pairwise(xs)), default=shown.ended - shown.begun)
    cuts = [0, *(i for i, (a, b) in enumerate(pairwise(xs), 1) if b - a > 1.5 * step), len(xs)]
    return [slice(a, b) for a, b in pairwise(cuts)]


def states(axes: Axes, shown: Shown) -> None:
    """A state timeline."""
    mappings, steps = shown.defaults.get("mappings", ()), shown.defaults["thresholds"]["steps"]
    rows = shown.series
    for row, one in enumerate(rows):
        begin = 0
        for part in _unbroken([x for x, _ in one.points], shown):
            points = one.points[part]
            begin = 0
            for end in range(1, len(points) + 1):
                if end == len(points) or points[end][1] != points[begin][1]:
                    step = points[1][0] - points[0][0] if len(points) > 1 else 1.0
                    left, right = points[begin][0], points[end][0] if end < len(points) else points[-1][0] + step
                    word, color = mapped(points[begin][1], mappings) or ("", stepped(points[begin][1], steps))
                    axes.barh(row, right - left, 0.78, left, color=color, alpha=0.85, linewidth=0)
                    if (right - left) / (shown.ended - shown.begun) > 0.012 * len(word) + 0.01:
                        axes.text(
                            left + (right - left) / 2,
                            row,
                            word,
                            color="#0b0c0e",
                            ha="center",
                            va="center",
                            fontsize=SIZE - 1,
                        )
                    begin = end
    axes.set_yticks(range(len(rows)), [one.legend for one in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    _time_axis(axes, shown)
    axes.grid(visible=False)


def heat(axes: Axes, shown: Shown) -> None:
    """A heat map of the buckets of a histogram, which Prometheus gives cumulated."""
    found = sorted((one for one in shown.series if one.points), key=lambda one: float(one.labels["le"]))
    xs = sorted({x for one in found for x, _ in one.points})
    if len(xs) > 1:
        table, below = [], dict.fromkeys(xs, 0.0)
        for one in found:
            here = dict(one.points)
            table.append([max(0.0, here.get(x, math.nan) - below[x]) if x in here else math.nan for x in xs])
            below = {x: here.get(x, below[x]) for x in xs}
        masked = [[math.nan if value == 0 else math.sqrt(value) for value in line] for line in table]
        edges = [*xs, 2 * xs[-1] - xs[-2]]
        axes.pcolormesh(edges, range(len(found) + 1), masked, cmap=HEAT, shading="flat")
    names = [spoken(float(one.labels["le"]), "s") if one.labels["le"] != "+Inf" else "more" for one in found]
    axes.set_yticks(range(1, len(found) + 1), names, fontsize=SIZE - 2)
    axes.set_ylim(0, len(found) or 1)
    _time_axis(axes, shown)


def table(axes: Axes, shown: Shown) -> None:
    """A table with a row per queue."""
    axes.set_axis_off()
    organize = next(one["options"] for one in shown.panel["transformations"] if one["id"] == "organize")
    columns = {name.removeprefix("Value #"): title for name, title in organize["renameByName"].items()}
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for one in shown.series:
        rows.setdefault((one.labels["backend"], one.labels["queue"]), {})[one.ref] = one.points[-1][1]
    sorted_rows = sorted(rows.items(), key=lambda row: (-row[1].get("A", 0), row[0]))
    heads = ["backend", "queue", *columns.values()]
    xs = [0.01 + n * 0.98 / len(heads) for n in range(len(heads))]
    height = 1 / (len(sorted_rows) + 1.2)
    for x, head in zip(xs, heads, strict=True):
        axes.text(x, 1 - height / 2, head, color=COLORS["blue"], fontsize=SIZE, va="center", transform=axes.transAxes)
    for line, (names, values) in enumerate(sorted_rows):
        y = 1 - height * (line + 1.6)
        axes.axhline(y + height / 2, color=EDGE, linewidth=0.8)
        for x, name in zip(xs, names, strict=False):
            axes.text(x, y, name, color=TEXT, fontsize=SIZE, va="center", transform=axes.transAxes)
        for x, (ref, title) in zip(xs[2:], columns.items(), strict=True):
            text, color = _cell(shown, title, values.get(ref))
            axes.text(x, y, text, color=color, fontsize=SIZE, va="center", transform=axes.transAxes)
    axes.set_ylim(0, 1)


def _cell(shown: Shown, title: str, value: float | None) -> tuple[str, str]:
    if value is None:
        return "–", FAINT
    if word := mapped(value, shown.overridden(title, "mappings") or ()):
        return word
    steps = shown.overridden(title, "thresholds")
    return spoken(value, shown.overridden(title, "unit")), stepped(value, steps["steps"]) if steps else TEXT


def _time_axis(axes: Axes, shown: Shown) -> None:
    axes.set_facecolor(PANEL)
    axes.set_xlim(shown.begun, shown.ended)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    minute = next((m for m in (15, 30, 60, 120, 300, 600) if (shown.ended - shown.begun) / m <= 6), 1200)
    first = math.ceil(shown.begun / minute) * minute
    axes.set_xticks([first + n * minute for n in range(int((shown.ended - first) / minute) + 1)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: time.strftime("%H:%M:%S", time.gmtime(x))))
    axes.grid(color=EDGE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelsize=SIZE - 1, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for at, color in shown.marks:
        axes.axvline(at, color=COLORS[color], linewidth=0.9, linestyle=(0, (2, 3)), alpha=0.9)


def _legend(axes: Axes, entries: Sequence[tuple[str, str]]) -> None:
    """Names below, as many as there is room for."""
    x, room = 0.0, axes.get_window_extent().width
    for name, color in entries:
        wide = (len(name) * 6.3 + 36) / room
        if x + wide > 1.02:
            axes.annotate("…", (x, 0), (0, -28), "axes fraction", "offset points", color=FAINT, fontsize=SIZE)
            return
        axes.annotate("▬", (x, 0), (0, -28), "axes fraction", "offset points", color=color, fontsize=SIZE)
        axes.annotate(name, (x, 0), (12, -28), "axes fraction", "offset points", color=TEXT, fontsize=SIZE - 0.5)
        x += wide


KINDS: Final[Mapping[str, Callable[[Axes, Shown], None]]] = {
    "stat": number,
    "timeseries": lines,
    "state-timeline": states,
    "heatmap": heat,
    "table": table,
}
