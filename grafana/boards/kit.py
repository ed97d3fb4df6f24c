"""What the dashboards share: selectors, the kinds of panels, the grid, variables, annotations, links.

What may go wrong: the library's own layout lets a row grow wider than the grid's 24 columns and leaves panels without
ids. So every position and every id is set here, and a row that does not fill the grid is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from grafana_foundation_sdk.builders import common as c
from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common as cm
from grafana_foundation_sdk.models import dashboard as dm
from grafana_foundation_sdk.models import heatmap as hm
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

COLUMNS: Final = 24
TAG: Final = "unstuck"
SOURCE: Final = cm.DataSourceRef(type_val="prometheus", uid="${datasource}")
RATE: Final = "$__rate_interval"
FROM: Final = ('job=~"$job"', 'instance=~"$instance"')

OVERVIEW, QUEUE, RECLAIMS, AGENT, PACING = (
    f"{TAG}-{name}" for name in ("overview", "queue", "reclaims", "agent", "pacing")
)
"""The uids. The alerts' `dashboard_url` name them, so they never change."""

GREEN, YELLOW, ORANGE, RED, BLUE, PURPLE, GREY = "green", "yellow", "orange", "red", "blue", "purple", "text"

Steps = Sequence[tuple[float | None, str]]
Target = tuple[str, str]
"""An expression and its legend."""


# ── selectors ──


def agent(name: str, *more: str) -> str:
    """A family of the agent, narrowed by the dashboard's variables."""
    return f"{name}{{{', '.join((*FROM, *more))}}}"


def queue(name: str, *more: str) -> str:
    """A family of a queue, narrowed by the dashboard's variables."""
    return agent(name, 'backend=~"$backend"', 'queue=~"$queue"', *more)


WAITING: Final = queue("unstuck_queue_jobs", 'state="waiting"')
RUNNING: Final = queue("unstuck_queue_jobs", 'state="running"')
LIVE: Final = queue("unstuck_queue_workers", 'state!="lost"')


def rate(selector: str) -> str:
    """Per second."""
    return f"rate({selector}[{RATE}])"


def increase(selector: str, window: str = RATE) -> str:
    """How many in the window."""
    return f"increase({selector}[{window}])"


def by_queue(expression: str, how: str = "sum") -> str:
    """One series per queue."""
    return f"{how} by (backend, queue) ({expression})"


def quantile(share: float, bucket: str, by: str = "") -> str:
    """A quantile of a classic histogram; a time without observations has none, rather than NaN."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) ({rate(bucket)})) >= 0"


# ── panels ──


@dataclass(frozen=True)
class Cell:
    """A panel and how many of the 24 columns it takes."""

    panel: Any
    width: int


def _dress(
    panel: Any, title: str, description: str, unit: str, steps: Steps, targets: Sequence[Target], *, instant: bool
) -> Any:
    for number, (expression, legend) in enumerate(targets):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))
        query = query.datasource(SOURCE)
        panel.with_target(query.instant() if instant else query.range())
    return (
        panel.title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .thresholds(
            d.ThresholdsConfig()
            .mode(dm.ThresholdsMode.ABSOLUTE)
            .steps([dm.Threshold(value=value, color=color) for value, color in steps])
        )
    )


def words(texts: Mapping[float, tuple[str, str]]) -> list[dm.ValueMapping]:
    """Values shown as words in colours."""
    shown = {
        f"{value:g}": dm.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(texts.items())
    }
    return [dm.ValueMap(options=shown)]


UP: Final = words({0: ("down", RED), 1: ("up", GREEN)})
OPEN: Final = words({0: ("closed", ORANGE), 1: ("open", GREEN)})


def number(
    title: str,
    description: str,
    expression: str,
    *,
    width: int = 3,
    unit: str = "short",
    steps: Steps,
    mappings: Sequence[dm.ValueMapping] = (),
    legend: str = "",
    decimals: int | None = None,
    none: str = "–",
    link: str = "",
    name: bool = False,
) -> Cell:
    """One big number of now with its history behind it; `name` shows the legend instead of the value."""
    panel = _dress(stat.Panel(), title, description, unit, steps, [(expression, legend)], instant=False)
    panel = (
        panel.color_mode(cm.BigValueColorMode.VALUE)
        .graph_mode(cm.BigValueGraphMode.NONE if mappings or name else cm.BigValueGraphMode.AREA)
        .reduce_options(c.ReduceDataOptions().calcs(["lastNotNull"]))
        .text_mode(cm.BigValueTextMode.NAME if name else cm.BigValueTextMode.VALUE)
        .no_value(none)
    )
    if mappings:
        panel = panel.mappings(list(mappings))
    if decimals is not None:
        panel = panel.decimals(decimals)
    if link:
        panel = panel.links([leading(title, link)])
    return Cell(panel, width)


def lines(
    title: str,
    description: str,
    targets: Sequence[Target],
    *,
    width: int = 12,
    unit: str = "short",
    steps: Steps,
    limit: bool = False,
    stacked: bool = False,
    bars: bool = False,
    most: float | None = None,
    least: float | None = 0,
    colors: Mapping[str, str] | None = None,
    dashed: Sequence[str] = (),
    none: str = "",
) -> Cell:
    """Series over time. `limit` draws the steps as dashed lines; `dashed` are series that are limits themselves."""
    panel = _dress(timeseries.Panel(), title, description, unit, steps, targets, instant=False)
    panel = (
        panel.draw_style(cm.GraphDrawStyle.BARS if bars else cm.GraphDrawStyle.LINE)
        .line_width(0 if bars else 1)
        .fill_opacity(70 if bars else 35 if stacked else 10)
        .show_points(cm.VisibilityMode.NEVER)
        .span_nulls(False)
        .color_scheme(d.FieldColor().mode(dm.FieldColorModeId.PALETTE_CLASSIC))
        .legend(
            c.VizLegendOptions()
            .display_mode(cm.LegendDisplayMode.LIST)
            .placement(cm.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(c.VizTooltipOptions().mode(cm.TooltipDisplayMode.MULTI).sort(cm.SortOrder.DESCENDING))
        .thresholds_style(
            c.GraphThresholdsStyleConfig().mode(
                cm.GraphThresholdsStyleMode.DASHED if limit else cm.GraphThresholdsStyleMode.OFF
            )
        )
    )
    if stacked:
        panel = panel.stacking(c.StackingConfig().mode(cm.StackingMode.NORMAL).group("A"))
    if least is not None:
        panel = panel.min(least)
    if most is not None:
        panel = panel.max(most)
    if none:
        panel = panel.no_value(none)
    for series, color in (colors or {}).items():
        panel = panel.override_by_name(series, [dm.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})])
    for series in dashed:
        panel = panel.override_by_name(
            series,
            [
                dm.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [10, 10]}),
                dm.DynamicConfigValue("custom.fillOpacity", 0),
                dm.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": ORANGE}),
            ],
        )
    return Cell(panel, width)


def states(
    title: str,
    description: str,
    targets: Sequence[Target],
    *,
    mappings: Sequence[dm.ValueMapping],
    steps: Steps,
    width: int = 12,
) -> Cell:
    """A bar per series that changes its colour with its value."""
    panel = _dress(statetimeline.Panel(), title, description, "none", steps, targets, instant=False)
    panel = (
        panel.mappings(list(mappings))
        .show_value(cm.VisibilityMode.AUTO)
        .row_height(0.8)
        .merge_values(True)
        .fill_opacity(80)
        .line_width(0)
        .color_scheme(d.FieldColor().mode(dm.FieldColorModeId.THRESHOLDS))
        .legend(
            c.VizLegendOptions()
            .display_mode(cm.LegendDisplayMode.LIST)
            .placement(cm.LegendPlacement.BOTTOM)
            .show_legend(False)
        )
    )
    return Cell(panel, width)


def heat(title: str, description: str, expression: str, *, steps: Steps, width: int = 8, what: str = "jobs") -> Cell:
    """The buckets of a histogram over time: the darker, the more `what`."""
    panel = heatmap.Panel()
    query = prometheus.Dataquery().expr(expression).legend_format("{{le}}").ref_id("A").datasource(SOURCE).range()
    panel.with_target(query.format(PromQueryFormat.HEATMAP))
    panel = (
        _dress(panel, title, f"{description} The darker, the more {what}.", "s", steps, (), instant=False)
        .calculate(False)
        .color(d_color().mode(hm.HeatmapColorMode.SCHEME).scheme("Oranges").steps(64))
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .show_legend()
    )
    return Cell(panel, width)


def d_color() -> heatmap.HeatmapColorOptions:
    """Heat maps colour by share of the fullest cell."""
    return heatmap.HeatmapColorOptions().exponent(0.5).scale(hm.HeatmapColorScale.EXPONENTIAL)


@dataclass(frozen=True)
class Column:
    """One column of a table of queues."""

    title: str
    expression: str
    unit: str = "short"
    steps: Steps = ()
    mappings: Sequence[dm.ValueMapping] = ()


def rows_of_queues(title: str, description: str, columns: Sequence[Column], *, steps: Steps) -> Cell:
    """A table with a row per queue that leads to the queue's own dashboard; the first column sorts it."""
    panel = _dress(table.Panel(), title, description, "short", steps, (), instant=True)
    renamed, order = {}, {"backend": 0, "queue": 1}
    for number_, column in enumerate(columns):
        ref = chr(ord("A") + number_)
        query = prometheus.Dataquery().expr(column.expression).legend_format("").ref_id(ref).datasource(SOURCE)
        panel.with_target(query.instant().format(PromQueryFormat.TABLE))
        renamed[f"Value #{ref}"] = column.title
        order[f"Value #{ref}"] = number_ + 2
        values: list[dm.DynamicConfigValue] = [dm.DynamicConfigValue("unit", column.unit)]
        if column.steps:
            colored = [{"value": value, "color": color} for value, color in column.steps]
            values += [
                dm.DynamicConfigValue("thresholds", {"mode": "absolute", "steps": colored}),
                dm.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
            ]
        if column.mappings:
            values.append(dm.DynamicConfigValue("mappings", list(column.mappings)))
        panel = panel.override_by_name(column.title, values)
    where = (
        f"/d/{QUEUE}?${{datasource:queryparam}}&${{job:queryparam}}&${{instance:queryparam}}"
        "&var-backend=${__data.fields.backend}&var-queue=${__data.fields.queue}&${__url_time_range}"
    )
    to_the_queue = [{"title": "Open this queue", "url": where, "targetBlank": False}]
    panel = (
        panel.override_by_name("queue", [dm.DynamicConfigValue("links", to_the_queue)])
        .with_transformation(dm.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            dm.DataTransformerConfig(
                id_val="organize",
                options={"excludeByName": {"Time": True}, "indexByName": order, "renameByName": renamed},
            )
        )
        .sort_by([c.TableSortByFieldState().display_name(columns[0].title).desc(True)])
        .no_value("–")
    )
    return Cell(panel, COLUMNS)


# ── the dashboard around them ──


def leading(title: str, uid: str) -> d.DashboardLink:
    """A link to another of our dashboards that takes the variables and the time along."""
    return (
        d.DashboardLink(title)
        .type(dm.DashboardLinkType.LINK)
        .url(f"/d/{uid}?${{__all_variables}}&${{__url_time_range}}")
        .tooltip(f"Open {uid}")
    )


@dataclass
class Board:
    """A dashboard in the making. `row` adds rows from top to bottom."""

    uid: str
    title: str
    description: str
    since: str = "now-1h"
    _rows: list[tuple[str, bool, int, Sequence[Cell]]] = field(default_factory=list)

    def row(self, title: str, height: int, *cells: Cell, collapsed: bool = False) -> None:
        """Panels side by side, `height` high; more of them than fit go to the next line of the same row."""
        self._rows.append((title, collapsed, height, cells))

    def build(self) -> dm.Dashboard:
        """The whole dashboard in the library's own shape."""
        board = (
            d.Dashboard(f"unstuck / {self.title}")
            .uid(self.uid)
            .description(self.description)
            .tags([TAG])
            .readonly()
            .timezone("browser")
            .refresh("30s")
            .time(self.since, "now")
            .tooltip(dm.DashboardCursorSync.CROSSHAIR)
            .link(_all_of_ours())
        )
        for variable in _variables():
            board = board.with_variable(variable)
        for annotation in _annotations():
            board = board.annotation(annotation)
        y, ids = 0, iter(range(1, 1000))
        for title, collapsed, height, cells in self._rows:
            row = d.Row(title).collapsed(collapsed).id(next(ids)).grid_pos(dm.GridPos(h=1, w=COLUMNS, x=0, y=y))
            placed, below = _placed(title, cells, y + 1, height)
            for cell, position in placed:
                cell.panel.id(next(ids)).grid_pos(position)
                if collapsed:
                    row = row.with_panel(cell.panel)
            board = board.with_row(row)
            if not collapsed:
                for cell, _ in placed:
                    board = board.with_panel(cell.panel)
            # A folded row takes one line; its panels find their place when it is unfolded.
            y = y + 1 if collapsed else below
        return board.build()


def _placed(title: str, cells: Sequence[Cell], y: int, height: int) -> tuple[list[tuple[Cell, dm.GridPos]], int]:
    found, x = [], 0
    for cell in cells:
        if x + cell.width > COLUMNS:
            raise ValueError(f"row {title!r}: {x} + {cell.width} columns; a line has to end at {COLUMNS}")
        found.append((cell, dm.GridPos(h=height, w=cell.width, x=x, y=y)))
        x += cell.width
        if x == COLUMNS:
            x, y = 0, y + height
    if x:
        raise ValueError(f"row {title!r}: its last line has {x} columns of {COLUMNS}")
    return found, y


def _all_of_ours() -> d.DashboardLink:
    return (
        d.DashboardLink("unstuck")
        .type(dm.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
        .icon("external link")
        .tooltip("The other dashboards of unstuck")
    )


def _variables() -> list[Any]:
    source = d.DatasourceVariable("datasource").label("Data source").type("prometheus")

    def labels(name: str, title: str, description: str, family: str) -> d.QueryVariable:
        asked = f"label_values({family}, {name})"
        return (
            d.QueryVariable(name)
            .label(title)
            .description(description)
            .datasource(SOURCE)
            .query(asked)
            .definition(asked)
            .multi(True)
            .include_all(True)
            .all_value(".+")
            .refresh(dm.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(dm.VariableSort.ALPHABETICAL_ASC)
        )

    return [
        source,
        labels("job", "Job", "Prometheus' job of the agents", "unstuck_build_info"),
        labels("instance", "Instance", "Which agents", 'unstuck_build_info{job=~"$job"}'),
        labels("backend", "Backend", "Queue system", 'unstuck_queue_readable{job=~"$job"}'),
        labels("queue", "Queue", "Which queues", 'unstuck_queue_readable{job=~"$job", backend=~"$backend"}'),
    ]


def _annotations() -> list[d.AnnotationQuery]:
    def marked(name: str, color: str, expression: str, title: str, text: str) -> d.AnnotationQuery:
        return (
            d.AnnotationQuery()
            .name(name)
            .datasource(SOURCE)
            .enable(True)
            .icon_color(color)
            .expr(expression)
            .step("60s")
            .title_format(title)
            .text_format(text)
        )

    reached = agent("unstuck_gate_closed_total", 'cause=~"restarted|failover|role|unreachable|young|loading"')
    return [
        marked(
            "Rescues",
            GREEN,
            f"sum by (backend, queue, action) ({increase(queue('unstuck_reclaims_total'), '2m')}) > 0",
            "{{backend}}/{{queue}}",
            "{{action}}",
        ),
        marked(
            "Leader changes",
            PURPLE,
            f"sum by (instance, event) ({increase(agent('unstuck_leader_transitions_total'), '2m')}) > 0",
            "Leader {{event}}",
            "{{instance}}",
        ),
        marked(
            "Agent restarts",
            BLUE,
            # An agent reads its configuration when it starts, and when it is told to.
            f"changes({agent('unstuck_config_last_reload_success_timestamp_seconds')}[2m]) > 0",
            "Agent started, or read its configuration again",
            "{{instance}}",
        ),
        marked(
            "Redis restarts",
            RED,
            f"sum by (source, cause) ({increase(reached, '2m')}) > 0",
            "Redis: {{cause}}",
            "{{source}}",
        ),
    ]
