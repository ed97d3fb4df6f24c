"""What `top` shows: from what was seen, and what the person chose, to the lines of a terminal of a given size.

Pure but for rich's texts. Only the rows that are visible are made, so 500 queues cost what twenty do. Everything that comes
from Redis goes through `shown`: a control sign in a name reaches the terminal as an escape, never raw.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from unstuck.report import Document, headline
from unstuck.terminal import shown, span
from unstuck.top.choices import SAMPLES, SORTS, Choices
from unstuck.top.sources import Seen

if TYPE_CHECKING:
    from rich.text import Text

LEAST_WIDTH: Final = 40
_OLD_SECONDS: Final = 15.0
_BARS: Final = "▁▂▃▄▅▆▇█"
_WIDE: Final = 118  # columns from which on the course of the backlog is shown
_HELD: Final = {
    "dry_run": "mode is observe",
    "observe_only": "observed only",
    "gate_closed": "gate closed",
    "brake": "brake engaged",
    "paused": "queue paused",
    "exempt": "exempt",
    "alert_only": "alert only",
}
_COLOURS: Final = {"stuck": "bold red", "suspect": "yellow", "inconclusive": "magenta"}
_EVENTS: Final = {
    "requeued": ("put back", "green"),
    "dead_lettered": ("dead-lettered", "red"),
    "lock_released": ("lock released", "green"),
    "stuck": ("stuck", "red"),
    "confirmed": ("confirmed stuck", "red"),
    "suspected": ("suspected", "yellow"),
    "brake_engaged": ("brake engaged", "red"),
    "gate_closed": ("gate closed", "yellow"),
    "queue_unreadable": ("unreadable", "red"),
}
_HELP: Final = (
    "q        quit",
    "s        sort by the next column: " + ", ".join(SORTS),
    "r        the other way round",
    "/        filter: words that must be in BACKEND/QUEUE; Enter keeps it, Esc clears it",
    "↑ ↓      one queue up or down; PgUp, PgDn, Home, End",
    "?        this help; any key closes it",
    "",
    "waiting  jobs that a worker could take now      oldest   age of the oldest of them",
    "run      jobs that workers hold                 work     live workers",
    "stuck    jobs proven stuck                      intv     polling interval that is published",
    "",
    "A red row has stuck jobs or cannot be read, a yellow one has suspected jobs or a brake.",
)


def rows(doc: Document, choices: Choices) -> list[Document]:
    """The queues that pass the filter, in the chosen order."""
    words = choices.filter.lower().split()
    kept = [one for one in doc["queues"] if all(word in f"{one['backend']}/{one['queue']}".lower() for word in words)]
    kept.sort(key=lambda one: (one["backend"], one["queue"]))
    orders: dict[str, Any] = {
        "trouble": lambda one: (-_trouble(one), -one["stuck"], -one["waiting"]),
        "waiting": lambda one: -one["waiting"],
        "oldest": lambda one: -(one["oldest_waiting_seconds"] or 0.0),
        "running": lambda one: -one["running"],
        "stuck": lambda one: (-one["stuck"], -one["suspect"]),
        "name": lambda one: one["queue"],
    }
    kept.sort(key=orders[choices.sort])
    return kept[::-1] if choices.reverse else kept


def _trouble(one: Document) -> int:
    if one["stuck"]:
        return 4
    if one.get("error") or one.get("brake"):
        return 3
    return 2 if one["suspect"] or one["inconclusive"] else 1 if one["paused"] else 0


def lines(seen: Seen, choices: Choices, width: int, height: int, *, trouble: str = "", now: float = 0.0) -> list[Text]:
    """The whole screen, exactly ``height`` lines that fit into ``width``. ``trouble``: why the last look failed."""
    choices.sample(seen)
    width = max(LEAST_WIDTH, width)
    body = max(3, height - 3)
    found = _findings(seen.doc, choices, width)
    told = _told(seen, width)
    room, most_found, most_told = _shares(body, len(rows(seen.doc, choices)), len(found), len(told))
    made = [*_head(seen, trouble, now, width)]
    if choices.help:
        made += [_text(line, width) for line in _HELP][:body]
    else:
        made += _table(seen.doc, choices, width, room)
        if most_found:
            left = f", the first {most_found}" if len(found) > most_found else ""
            made += [_text("", width), _text(f"Stuck and suspected: {len(found)}{left}", width, "bold")]
            made += found[:most_found]
        if most_told:
            made += [_text("", width), _text("Latest events", width, "bold"), *told[:most_told]]
    made += [_text("", width)] * (height - 1 - len(made))
    return [*made[: height - 1], _foot(choices, width)]


def _shares(body: int, queues: int, found: int, told: int) -> tuple[int, int, int]:
    """How many of the lines below the head the queues get (their heading included), the findings and the events."""
    most_found = min(found, max(2, body // 4))
    most_told = min(told, max(2, body // 5)) if body >= 13 else 0
    room = max(1, body - (most_found + 2 if most_found else 0) - (most_told + 2 if most_told else 0))
    spare = max(0, room - max(2, queues + 1))
    more = min(spare, found - most_found) if most_found else 0
    most_found, spare = most_found + more, spare - more
    more_told = min(spare, told - most_told) if most_told else 0
    return room - more - more_told, most_found, most_told + more_told


def _text(line: str, width: int, style: str = "") -> Text:
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    fit = set_cell_size(line, width - 1) + "…" if cell_len(line) > width else line
    return Text(fit, style=style, no_wrap=True, end="")


def _head(seen: Seen, trouble: str, now: float, width: int) -> list[Text]:
    doc, agent = seen.doc, seen.doc.get("agent")
    age = max(0.0, now - seen.at)
    if trouble:
        first, mood = f"! {shown(trouble)}", "bold red"
        second = f"What you see is {span(age)} old. Asking again."
    elif agent and not agent["redis"]["up"]:
        first, mood = f"! Redis is away: {shown(agent['redis']['trouble']) or 'it has not answered yet'}", "bold red"
        second = _state(seen, age)
    elif agent and agent["role"] == "follower":
        leader = shown(agent["leader"]) or "nobody that is known"
        first, mood = f"? This agent stands by: {leader} leads and shows the queues", "bold yellow"
        second = _state(seen, age)
    else:
        bad = any(one["stuck"] for one in doc["queues"])
        unsure = bool(doc["findings"])
        first = f"{'!' if bad else '?' if unsure else '✓'} {shown(headline(doc))}"
        mood = "bold red" if bad else "bold yellow" if unsure else "bold green"
        second = _state(seen, age)
    return [_text(first, width, mood), _text(second, width, "red" if trouble or age > _OLD_SECONDS else "")]


def _state(seen: Seen, age: float) -> str:
    doc, agent = seen.doc, seen.doc.get("agent")
    gate = doc["redis"]["gate"]
    closed = ", ".join(shown(cause) for cause in gate["reasons"]) or "nothing seen yet"
    parts = [
        f"Redis {shown(doc['redis']['version'] or '?')}",
        "gate open" if gate["open"] else f"gate closed: {closed}",
    ]
    if agent:
        parts.append(f"brake engaged: {len(agent['brakes'])}" if agent["brakes"] else "brake free")
        parts.append("leads" if agent["role"] == "leader" else agent["role"])
        late = [shown(duty["duty"]) for duty in agent["duties"] if duty["overdue_seconds"]]
        parts += [f"late: {', '.join(late)}"] if late else []
        parts += [f"{len(agent['queues_not_fresh'])} not fresh"] if agent["queues_not_fresh"] else []
        age += agent["ages"]["newest_look_seconds"] or 0.0
    parts.append(f"seen {span(round(age))} ago" if age >= 1 else "seen now")
    parts.append(shown(seen.address))
    return " · ".join(parts)


_HEADS: Final = ("backend", "queue", "waiting", "oldest", "run", "work", "stuck", "dead", "intv", "mode")
_RIGHT: Final = (False, False, True, True, True, True, True, True, True, False)
_SORTED: Final = {"waiting": 2, "oldest": 3, "running": 4, "stuck": 6, "name": 1}
_WIDTHS: Final = (8, 0, 7, 7, 5, 5, 5, 5, 6, 8)


def _table(doc: Document, choices: Choices, width: int, room: int) -> list[Text]:
    all_rows = rows(doc, choices)
    choices.page = max(1, room - 1)
    choices.offset = min(choices.offset, max(0, len(all_rows) - choices.page))
    visible = all_rows[choices.offset : choices.offset + choices.page]
    course = width >= _WIDE
    widths = list(_WIDTHS)
    widths[1] = max(6, width - sum(widths) - len(widths) + 1 - (SAMPLES + 1 if course else 0))
    heads = list(_HEADS)
    if choices.sort in _SORTED:
        heads[_SORTED[choices.sort]] += "↑" if choices.reverse else "↓"
    made = [_text(_line(heads, widths) + (" backlog lately" if course else ""), width, "bold reverse")]
    for one in visible:
        line = _line(_cells(one), widths)
        if course:
            line += f" {_bars(choices.course.get((one['backend'], one['queue']), ()))}"
        trouble = _trouble(one)
        style = "bold red" if one["stuck"] or one.get("error") else "yellow" if trouble >= 2 else ""
        made.append(_text(line, width, style))
    if not visible:
        what = "No queue passes the filter." if doc["queues"] else "No queue is there to show."
        made.append(_text(what, width, "dim"))
    return made


def _line(cells: list[str], widths: list[int]) -> str:
    from rich.cells import cell_len, set_cell_size

    made = []
    for cell, width, right in zip(cells, widths, _RIGHT, strict=True):
        if (wide := cell_len(cell)) > width:
            made.append(set_cell_size(cell, width - 1) + "…")
        else:
            pad = " " * (width - wide)
            made.append(pad + cell if right else cell + pad)
    return " ".join(made)


def _cells(one: Document) -> list[str]:
    mode = "paused" if one["paused"] else "brake" if one.get("brake") else one["mode"]
    name = [shown(one["backend"]), shown(one["queue"])]
    if one.get("error"):
        return [*name, *("?" * 6), "–", "error"]
    counts = (one["waiting"], one["running"], one["workers"], one["stuck"], one["dead"])
    waiting, running, workers, stuck, dead = map(_short, counts)
    running += "+" * one["truncated"]
    interval = span(one["interval_seconds"]).replace(" ms", "ms")
    return [*name, waiting, span(one["oldest_waiting_seconds"]), running, workers, stuck, dead, interval, mode]


def _short(number: int) -> str:
    if number < 100_000:
        return str(number)
    return f"{number // 1000}k" if number < 10_000_000 else f"{number // 1_000_000}M"


def _bars(course: Any) -> str:
    most = max(course, default=0)
    return "".join(_BARS[min(7, value * 8 // (most + 1))] for value in course)


def _findings(doc: Document, choices: Choices, width: int) -> list[Text]:
    outlooks = {(one["backend"], one["queue"], one["job"]): one for one in doc.get("agent", {}).get("outlook", ())}
    words = choices.filter.lower().split()
    made: list[Text] = []
    for one in doc["findings"]:
        place = f"{one['backend']}/{one['queue']}"
        if not all(word in place.lower() for word in words):
            continue
        if len(made) >= 100:  # more never fit; how many there are is in the headline
            break
        job = f" {shown(one['job'], 20)}" if one["job"] is not None else ""
        what = f"{one['reason']}: {one['detail']}"
        since = f"  {span(one['unchanged_seconds'])}" if job else ""
        will = _will(outlooks.get((one["backend"], one["queue"], one["job"])))
        line = f"{one['verdict']:<8} {shown(place, 28)}{job}{since}{will}  {shown(what)}"
        made.append(_text(line, width, _COLOURS.get(one["verdict"], "") if one["job"] is not None else "yellow"))
    return made


def _will(outlook: Document | None) -> str:
    if outlook is None:
        return ""
    if outlook["held_by"]:
        return f"  held back: {_HELD.get(outlook['held_by'], shown(outlook['held_by']))}"
    within = outlook["within_seconds"]
    return "" if within is None else f"  put back within {span(round(within))}"


def _told(seen: Seen, width: int) -> list[Text]:
    made: list[Text] = []
    for one in reversed(seen.events):
        if one["kind"] in ("pacing_changed", "inconclusive"):
            continue
        label, style = _EVENTS.get(one["kind"], (shown(one["kind"]).replace("_", " "), ""))
        at = time.strftime("%H:%M:%S", time.localtime(one["at"]))
        place = shown(f"{one['backend']}/{one['queue']}" if one["queue"] else "", 28)
        job = f" {shown(one['job'], 20)}" if one["job"] else ""
        made.append(_text(f"{at} {label:<14} {place}{job}  {shown(one['detail'] or one['reason'])}", width, style))
        if len(made) >= 20:
            break
    return made


def _foot(choices: Choices, width: int) -> Text:
    if choices.typing:
        return _text(f"filter: {shown(choices.filter)}▏  Enter keep · Esc clear", width, "reverse")
    kept = f" · filter “{shown(choices.filter, 20)}” (Esc)" if choices.filter else ""
    order = f"{choices.sort}{', reversed' if choices.reverse else ''}"
    line = f"q quit · s sort: {order}{kept} · r reverse · / filter · ↑↓ scroll · ? help"
    return _text(line.ljust(width), width, "reverse")
