"""The text of a scrape: families, their rows, and the two formats in which they are written.

The client library's own writer takes 9 µs per sample, 1.3 s for the 146,000 of a thousand queues (bench/exporters);
rows that are made as text right away take a twentieth. What is written here is checked against the library's
parsers, and by promtool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from unstuck.model import QueueSnapshot, Totals
from unstuck_exporters.ledger import Counts, Paced, QueueLedger
from unstuck_exporters.tally import Exemplar, Histogram, Tally
from unstuck_exporters.view import View

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

S = TypeVar("S")
T = TypeVar("T")
Column = tuple[list[str], list[T]]
"""Queues: their labels as `labelled` writes them, and beside each what is to be said of it."""

Row = str
"""One sample: `name{labels} value` and a line feed; or several such lines."""

QUEUE: Final = ("backend", "queue")
"""The labels of every family that tells of queues."""

_MOST_TEMPLATES: Final = 4096
_LONGEST_EXEMPLAR: Final = 128  # characters of names and values together, says OpenMetrics


def escaped(value: str) -> str:
    """A label value as both formats want it; what is not text (a lone surrogate) becomes a question mark."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@lru_cache(maxsize=8192)
def labelled(**labels: str) -> str:
    """The inside of the braces: `a="x",b="y"`."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())


def number(value: float) -> str:
    """A sample's value; integers stay exact."""
    if isinstance(value, int):
        return str(int(value))  # a bool is a number too
    if math.isfinite(value):
        return float.__repr__(value)  # a setting that carries a unit is a float with a repr of its own
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def row(name: str, labels: str, value: float) -> Row:
    """One sample with labels as `labelled` writes them (may be empty)."""
    return f"{name}{{{labels}}} {number(value)}\n" if labels else f"{name} {number(value)}\n"


@lru_cache(maxsize=8192)
def _tally_template(name: str, prefix: str, names: tuple[str, ...], keys: tuple[tuple[str, ...], ...]) -> str:
    lines = (f"{name}{{{prefix}{labelled(**dict(zip(names, key, strict=True)))}}} " for key in keys)
    return "".join(line.replace("%", "%%") + "%d\n" for line in lines)


def tallied(name: str, prefix: str, names: tuple[str, ...], tally: Tally) -> Row:
    """A sample for each series of a tally; ``prefix`` are labels in front of the tally's own, comma included."""
    return _tally_template(name, prefix, names, tuple(tally)) % tuple(tally.values()) if tally else ""


def _bucket_template(name: str, labels: str, bounds: tuple[float, ...]) -> str:
    prefix = (f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{").replace("%", "%%")
    return "".join(f'{prefix}le="{bound}"}} %d\n' for bound in (*map(repr, bounds), "+Inf"))


class Buckets:
    """The lines of a histogram family with holes for the numbers, one text for each queue. Filled in as bytes at once."""

    def __init__(self, name: str, bounds: tuple[float, ...], *, summed: bool = True) -> None:
        self._name, self._bounds, self._summed = name, bounds, summed
        self._known: dict[str, bytes] = {}

    def rows(self, labels: str, *numbers: float) -> bytes:
        """Cumulative counts, +Inf last; where it is ``summed`` also the count and the sum (finite)."""
        known = self._known.get(labels)
        if known is None:
            text = _bucket_template(self._name, labels, self._bounds)
            if self._summed:
                inside = f"{{{labels}}}".replace("%", "%%")
                text += f"{self._name}_count{inside} %d\n{self._name}_sum{inside} %r\n"
            if len(self._known) >= _MOST_TEMPLATES:
                self._known.clear()
            known = self._known[labels] = text.encode()
        return known % numbers


def histogram(name: str, labels: str, data: Histogram, *, exemplars: bool = False) -> Row:
    """Buckets, count and sum of a histogram; exemplars only where the format has them."""
    cumulative = tuple(accumulate(data.counts))
    buckets = _bucket_template(name, labels, data.bounds) % cumulative
    if exemplars and data.exemplars:
        lines = buckets.splitlines()
        for place, exemplar in data.exemplars.items():
            lines[place] += _exemplar(exemplar)
        buckets = "\n".join(lines) + "\n"
    return buckets + row(name + "_count", labels, cumulative[-1]) + row(name + "_sum", labels, data.total)


def _exemplar(exemplar: Exemplar) -> str:
    if sum(len(name) + len(value) for name, value in exemplar.labels.items()) > _LONGEST_EXEMPLAR:
        return ""
    return f" # {{{labelled(**exemplar.labels)}}} {number(exemplar.value)} {exemplar.at:.3f}"


@lru_cache(maxsize=8)
def _stored_keys(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*(f"{bound * 1000:.0f}" for bound in bounds), "inf")


def stored_counts(bounds: tuple[float, ...], buckets_ms: Mapping[str, int]) -> list[int]:
    """Counts per bucket from those that Redis stores: upper bound in ms (`inf` last) -> count, not cumulative.

    A bound that is not ours is counted in the next greater one of ours, so that no observation is lost.
    """
    known = _stored_keys(bounds)
    counts = [buckets_ms.get(key, 0) for key in known]
    if sum(counts) == sum(buckets_ms.values()):
        return counts
    counts = [0] * len(known)
    for key, count in buckets_ms.items():
        bound = math.inf if key == "inf" else float(key) / 1000
        place = next((i for i, ours in enumerate(bounds) if bound <= ours), len(bounds))
        counts[place] += count
    return counts


class Memory:
    """What the scrape before wrote, so that what has not changed since is not written anew.

    Nothing stale can come out of it: text is taken over only where it was made from equal values.
    """

    def __init__(self) -> None:
        self._rows: dict[str, tuple[list[str], list[Any], list[bytes]]] = {}
        self._columns: dict[str, tuple[list[str], list[float], bytes]] = {}

    def each(self, name: str, queues: Column[T], write: Callable[[str, T], bytes]) -> bytes:
        """The rows of every queue, from its labels and the value that they are made of."""
        labels, values = queues
        known = self._rows.get(name)
        if known and known[0] == labels:
            texts = known[2]
            if known[1] != values:
                texts = [
                    text if value is before or value == before else write(at, value)
                    for at, value, before, text in zip(labels, values, known[1], texts, strict=True)
                ]
        else:
            texts = list(map(write, labels, values))
        self._rows[name] = (labels, values, texts)
        return b"".join(texts)

    def column(self, name: str, queues: Column[float]) -> bytes:
        """One sample for every queue."""
        labels, values = queues
        known = self._columns.get(name)
        if known and known[1] == values and known[0] == labels:
            return known[2]
        if math.isfinite(sum(values)):
            text = _column_template(name, tuple(labels)) % tuple(values)
        else:
            text = "".join(map(row, repeat(name), labels, values))
        self._columns[name] = (labels, values, text.encode())
        return self._columns[name][2]


def chosen(queues: Column[S], get: Callable[[S], T | None]) -> Column[T]:
    """What `get` finds in each queue, without those where it finds nothing."""
    labels, items = queues
    values = list(map(get, items))
    if None in values:
        labels = [at for at, value in zip(labels, values, strict=True) if value is not None]
    return labels, [value for value in values if value is not None]


@lru_cache(maxsize=128)
def _column_template(name: str, labels: tuple[str, ...]) -> str:
    return "".join(f"{name}{{{at}}} ".replace("%", "%%") + "%r\n" for at in labels)


class Shown(NamedTuple):
    """A queue as a scrape shows it."""

    ledger: QueueLedger
    snapshot: QueueSnapshot
    server_now: float  # the server's Unix time at the look, seconds; the agent's own where it was not told


@dataclass(frozen=True, slots=True)
class Scene:
    """What the families of one scrape are made from."""

    view: View
    source: str  # the label
    openmetrics: bool
    family_failures: int
    memory: Memory
    counted: Column[QueueLedger]  # all queues of which this agent exports counters
    present: Column[Shown]  # queues whose last look is fresh
    snapshots: Column[QueueSnapshot]
    totals: Column[Totals]
    paced: Column[Paced]

    @classmethod
    def of(
        cls, view: View, *, openmetrics: bool = False, family_failures: int = 0, memory: Memory | None = None
    ) -> Scene:
        """The scene of a view: nothing of the queues for a follower, no old looks for anybody."""
        queues = view.queues if view.exports_queues else ()
        counted = [labelled(backend=q.backend, queue=q.queue) for q in queues], list(queues)
        present = chosen(counted, lambda ledger: _shown(ledger, view))
        snapshots = chosen(present, attrgetter("snapshot"))
        return cls(
            view,
            labelled(source=view.agent.source),
            openmetrics,
            family_failures,
            Memory() if memory is None else memory,
            counted,
            present,
            snapshots,
            chosen(snapshots, attrgetter("totals")),
            chosen(present, lambda queue: queue.ledger.paced),
        )


def _shown(ledger: QueueLedger, view: View) -> Shown | None:
    if ledger.look is None or not ledger.fresh(view.now):
        return None
    snapshot = ledger.look.snapshot
    return Shown(ledger, snapshot, snapshot.server_ms / 1000 or view.wall - (view.now - ledger.look.at))


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family of the catalogue and how its samples are made."""

    name: str  # counters with their _total
    kind: str  # gauge, counter, histogram
    help: str
    labels: tuple[str, ...]
    rows: Callable[[Scene], Iterable[Row] | bytes]

    def head(self, *, openmetrics: bool) -> str:
        """The HELP and TYPE lines. OpenMetrics names a counter without its _total."""
        name = self.name.removesuffix("_total") if openmetrics and self.kind == "counter" else self.name
        text = self.help.replace("\\", "\\\\").replace("\n", "\\n")
        return f"# HELP {name} {text}\n# TYPE {name} {self.kind}\n"


def column(name: str, text: str, queues: Callable[[Scene], Column[T]], get: Callable[[T], float | None]) -> Family:
    """One sample for each queue where there is something to say; a counter if its name says so."""

    def rows(scene: Scene) -> bytes:
        return scene.memory.column(name, chosen(queues(scene), get))

    return Family(name, "counter" if name.endswith("_total") else "gauge", text, QUEUE, rows)


def counted(name: str, text: str, own: tuple[str, ...], get: Callable[[Counts], Tally | None]) -> Family:
    """A counter of the agent's own, by labels of its own."""

    def rows(scene: Scene) -> bytes:
        tallies = chosen(scene.counted, lambda ledger: get(ledger.counts) or None)
        return scene.memory.each(name, tallies, lambda labels, tally: tallied(name, labels + ",", own, tally).encode())

    return Family(name, "counter", text, (*QUEUE, *own), rows)
