"""The document of `unstuck.report` for people at a terminal: first whether anything is wrong, then what to do about it.

rich is imported only when something is shown. What may go wrong: names come from Redis and are hostile. Every text goes
through :func:`shown`, which makes control characters visible, and reaches rich as text, never as markup.
"""

from __future__ import annotations

import glob
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

from unstuck.model import Action, Mode, Reason
from unstuck.report import Document, headline
from unstuck.spelling import counted

if TYPE_CHECKING:
    from rich.console import Console

MOST_SHOWN: Final = 40
"""Findings shown to people; `--json` has all."""
PIPED_WIDTH: Final = 160
"""Columns where the output goes into a file or a pipe and nothing says how wide it is."""
_NAME: Final = 60
_COLOURS: Final = {"stuck": "bold red", "suspect": "yellow", "inconclusive": "magenta"}
_NOTES: Final = {
    "unstuck": "a late attempt is refused by its token",
    "rq": "RQ cannot refuse a late attempt: a job moves only while its worker's connection is gone; see docs/capabilities.md",
}


def shown(text: object, width: int = 0) -> str:
    """Text fit for a terminal: what is not printable is written as an escape, what is too wide is cut in its middle."""
    made = "".join(sign if sign.isprintable() else _escaped(sign) for sign in str(text))
    if width and len(made) > width:
        head = (width - 1) // 2 + (width - 1) % 2
        made = f"{made[:head]}…{made[len(made) - (width - 1 - head) :]}"
    return made


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode() if sign != " " else sign


def span(seconds: float | None) -> str:
    """A duration for people: `850 ms`, `12 s`, `3 min`, `2.5 h`, `4 d`; `–` for none."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return "unknown"
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GB"


def console_for(stream: IO[str]) -> Console:
    """A console that interprets nothing in what it is given; colours only on a terminal."""
    from rich.console import Console

    piped = not stream.isatty() and not os.environ.get("COLUMNS", "").isdigit()
    return Console(
        file=stream, markup=False, highlight=False, emoji=False, soft_wrap=True, width=PIPED_WIDTH if piped else None
    )


def render(
    doc: Document, *, address: str, notes: Sequence[str] = (), title: str = "", stream: IO[str] | None = None
) -> None:
    """Show the whole document on standard output (or `stream`); `title` replaces the line that sums it up."""
    from rich.text import Text

    console = console_for(stream or sys.stdout)

    def say(line: str = "", style: str = "") -> None:
        console.print(Text(line, style=style), overflow="ignore", crop=False, no_wrap=True)

    say(shown(title or headline(doc)), _mood(doc))
    say(_server_line(doc["redis"], address), "dim")
    for note in notes:
        say(shown(note), "dim")
    if doc["queues"]:
        say()
        _table(console, doc["queues"])
    for index, finding in enumerate(doc["findings"]):
        if index == MOST_SHOWN:
            say(f"\n… and {counted(len(doc['findings']) - MOST_SHOWN, 'more finding')}; --json has all")
            break
        say()
        for line, style in _finding(finding):
            say(line, style)
    for line in _next_step(doc):
        say(line)


def _mood(doc: Document) -> str:
    if any(one["verdict"] == "stuck" and one["action"] in ("none", "skipped") for one in doc["findings"]):
        return "bold red"
    return "bold yellow" if doc["findings"] else "bold green"


def _server_line(server: Document, address: str) -> str:
    limit = server["maxmemory_bytes"]
    memory = f"{size(server['used_memory_bytes'])} used" + (f" of {size(limit)}" if limit else "")
    gate = server["gate"]
    state = "gate open" if gate["open"] else f"gate closed: {', '.join(gate['reasons']) or 'nothing seen yet'}"
    role = {"slave": "replica (connections of workers are seen at its primary only)"}.get(
        server["role"], server["role"]
    )
    return shown(f"Redis {server['version'] or '?'} {role} at {address}, {memory}, {state}")


_HEADS: Final = (
    ("backend", "queue", "waiting", "oldest", "running", "workers", "stuck", "dead", "mode", "interval"),
    ("<", "<", ">", ">", ">", ">", ">", ">", "<", ">"),
)


def _table(console: Console, queues: Sequence[Document]) -> None:
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    heads, sides = _HEADS
    rows = [_cells(one) for one in queues]
    widths = [max(cell_len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    widths[1] = max(12, min(widths[1], console.width - sum(widths) + widths[1] - 2 * (len(heads) - 1)))
    console.print(
        Text(_line(heads, widths, sides, cell_len, set_cell_size), style="bold"), overflow="ignore", crop=False
    )
    for row, one in zip(rows, queues, strict=True):
        style = _COLOURS["stuck"] if one["stuck"] else "yellow" if one["suspect"] or one.get("error") else ""
        console.print(
            Text(_line(row, widths, sides, cell_len, set_cell_size), style=style), overflow="ignore", crop=False
        )


def _cells(one: Document) -> tuple[str, ...]:
    mode = one["mode"] + (" (paused)" if one["paused"] else "")
    if one.get("error"):
        return one["backend"], shown(one["queue"], _NAME), *("?" * 6), mode, "–"
    prefetched = f" ({one['prefetched']})" if one.get("prefetched") else ""
    return (
        one["backend"],
        shown(one["queue"], _NAME),
        str(one["waiting"]),
        span(one["oldest_waiting_seconds"]),
        f"{one['running']}{'+' * one['truncated']}{prefetched}",
        str(one["workers"]),
        str(one["stuck"]),
        str(one["dead"]),
        mode,
        f"{span(one['interval_seconds'])} {one['interval_reason'] or ''}".rstrip(),
    )


def _line(
    cells: Sequence[str],
    widths: Sequence[int],
    sides: Sequence[str],
    wide: Callable[[str], int],
    fit: Callable[[str, int], str],
) -> str:
    made = []
    for cell, width, side in zip(cells, widths, sides, strict=True):
        text = fit(shown(cell, width), width) if wide(cell) > width else cell
        pad = " " * (width - wide(text))
        made.append(pad + text if side == ">" else text + pad)
    return "  ".join(made).rstrip()


def _finding(one: Document) -> Iterator[tuple[str, str]]:
    place = shown(f"{one['backend']}/{one['queue']}" if one["queue"] else one["backend"], _NAME)
    if one["reason"] in set(Reason):
        worker = f", worker {shown(one['worker'], _NAME)}" if one["worker"] else ""
        yield f"{one['verdict']}  {place}  job {shown(one['job'], _NAME)}{worker}", _COLOURS[one["verdict"]]
        yield f"  why    {one['reason']}: {shown(one['detail'])}", ""
        yield f"  since  {_since(one)}", ""
        if one["action"] != Action.NONE:
            yield f"  done   {one['action']}", "bold"
        elif one["would"]:
            yield f"  would  {shown(one['would'])}", ""
        return
    about = f"  job {shown(one['job'], _NAME)}" if one["job"] else ""
    yield f"{shown(one['reason'])}  {place}{about}: {shown(one['detail'])}", "yellow"


def _since(one: Document) -> str:
    evidence = one["evidence"]
    parts = [f"nothing of it has changed for {span(one['unchanged_seconds'])}"]
    for name in ("heartbeat_at_ms", "last_heartbeat"):
        if name in evidence:
            value = evidence[name]
            if name == "heartbeat_at_ms" and isinstance(value, int):
                value = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(value / 1000))
            parts.append(f"last heartbeat {shown(value, _NAME)}")
    if isinstance(over := evidence.get("lease_over_seconds"), int | float) and over > 0:
        parts.append(f"lease over for {span(float(over))}")
    return ", ".join(parts)


def _next_step(doc: Document) -> Iterator[str]:
    """The lines of configuration that would have the agent move the stuck jobs, for queues that it only observes."""
    modes = {(one["backend"], one["queue"]): one for one in doc["queues"]}
    stuck = {(one["backend"], one["queue"]) for one in doc["findings"] if one["verdict"] == "stuck"}
    off = [
        place
        for place in sorted(stuck)
        if place in modes and modes[place]["mode"] == Mode.OBSERVE and modes[place]["capability"] == "reclaim"
    ]
    if not off:
        return
    yield ""
    yield "To have such jobs put back, give the agent (unstuck run --config FILE) these lines:"
    yield "  queues:"
    for backend, queue in off:
        note = f"  # {_NOTES[backend]}" if backend in _NOTES else ""
        yield f"    - {{backend: {backend}, queue: {json.dumps(glob.escape(queue))}, mode: reclaim}}{note}"
    backend, queue = off[0]
    named = f"{backend}/{queue}"
    word = named if named.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum() else None
    yield f"or once, now: unstuck sweep --mode reclaim --queue {word or json.dumps(shown(named))}"


def print_json(doc: Any) -> None:
    """One JSON document on standard output; in ASCII alone, so that no hostile name reaches a terminal raw."""
    sys.stdout.write(json.dumps(doc, indent=2, ensure_ascii=True, allow_nan=False) + "\n")


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on standard error that is written over; silent unless that is a terminal."""
    stream: Any = sys.stderr
    if not stream.isatty():
        yield lambda _: None
        return
    last = 0

    def tell(line: str) -> None:
        nonlocal last
        line = shown(line, 78)
        stream.write("\r" + line.ljust(last))
        stream.flush()
        last = len(line)

    try:
        yield tell
    finally:
        stream.write("\r" + " " * last + "\r")
        stream.flush()
