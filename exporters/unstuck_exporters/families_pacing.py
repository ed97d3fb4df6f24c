"""The families that tell of polling intervals and caches: what was published, what workers apply, who read what.

`unstuck_poll_published_timestamp_seconds` grows old when publishing fails; the interval itself lapses in Redis after 15 s
and workers go back to their own base, so an old one here slows nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from operator import attrgetter
from typing import Final

from unstuck.model import Pollers, Totals
from unstuck_exporters.exposition import QUEUE, Family, Scene, chosen, column, counted, labelled, tallied
from unstuck_exporters.ledger import Paced, QueueLedger
from unstuck_exporters.tally import Tally


def _paced(name: str, text: str, get: Callable[[Paced], float | None]) -> Family:
    """A gauge of the last published interval."""
    return column(name, text, lambda scene: scene.paced, get)


def _applied(name: str, text: str, get: Callable[[Pollers], float | None]) -> Family:
    """A gauge of what the workers' own records say."""
    return column(name, text, lambda scene: chosen(scene.snapshots, attrgetter("pollers")), get)


def _total(name: str, text: str, get: Callable[[Totals], int]) -> Family:
    """A counter that Redis keeps."""
    return column(name, text, lambda scene: scene.totals, get)


_BY_SCRIPTS: Final = ("complete", "fail", "release", "requeue", "write")
_INVALIDATIONS: Final = "".join(
    f"unstuck_cache_invalidations_total{{%s,{labelled(cause=cause)}}} %d\n" for cause in _BY_SCRIPTS
)


def _invalidations(scene: Scene) -> bytes:
    """Those of the scripts, which Redis counts, and those that the agent itself has counted."""
    name = "unstuck_cache_invalidations_total"
    stored = dict(zip(*scene.totals, strict=True))

    def counts(labels: str, ledger: QueueLedger) -> tuple[Tally | None, int, int, int, int, int] | None:
        totals, own = stored.get(labels), ledger.counts.invalidations
        if totals is None:
            return (own, 0, 0, 0, 0, 0) if own else None
        return own, totals.completed, totals.failed, totals.released, totals.rescued, totals.bumped

    def write(labels: str, counted: tuple[Tally | None, int, int, int, int, int]) -> bytes:
        own, *numbers = counted
        if not own:
            return (_INVALIDATIONS % tuple(chain.from_iterable(zip(repeat(labels), numbers)))).encode()
        causes = Tally(own or {})
        if labels in stored:
            for cause, number in zip(_BY_SCRIPTS, numbers, strict=True):
                causes.add(cause, count=number)
        return tallied(name, labels + ",", ("cause",), causes).encode()

    labels, ledgers = scene.counted
    told = [(at, one) for at, one in zip(labels, map(counts, labels, ledgers), strict=True) if one is not None]
    return scene.memory.each(name, ([at for at, _ in told], [one for _, one in told]), write)


PACING: Final = (
    _paced("unstuck_poll_interval_seconds", "Interval published to workers", attrgetter("interval")),
    _paced("unstuck_poll_interval_base_seconds", "Configured base interval", attrgetter("base")),
    _paced("unstuck_poll_score_ratio", "Load score, 0 to 1", attrgetter("score")),
    _paced("unstuck_poll_delay_score_ratio", "Delay part before the clamp", attrgetter("delay_part")),
    _paced("unstuck_poll_backlog_score_ratio", "Backlog part before the clamp", attrgetter("backlog_part")),
    _paced("unstuck_poll_published_timestamp_seconds", "Unix time of the last publish", attrgetter("at")),
    counted("unstuck_poll_publish_failures_total", "Publications refused", ("kind",), attrgetter("publish_failures")),
    counted("unstuck_poll_resets_total", "Resets to base", ("cause",), attrgetter("resets")),
    _applied(
        "unstuck_poll_applied_interval_seconds",
        "Interval that the workers apply after an empty poll, the mean over their records",
        attrgetter("applied_mean"),
    ),
    _applied(
        "unstuck_poll_applied_interval_max_seconds",
        "Longest interval that a worker applies",
        attrgetter("applied_most"),
    ),
    _applied(
        "unstuck_poll_pollers", "Slots of live workers, each of which polls while it has no job", attrgetter("slots")
    ),
    _applied(
        "unstuck_poll_workers_on_own_base",
        "Live workers that do not use the published interval (none, old, unreadable or out of bounds)",
        attrgetter("on_own_base"),
    ),
    _paced(
        "unstuck_queue_delay_average_seconds", "Average start delay used for the score", attrgetter("average_delay")
    ),
    _paced("unstuck_queue_growth_ratio", "Jobs enqueued per job completed, smoothed", attrgetter("growth")),
    _paced(
        "unstuck_queue_drain_seconds",
        "Time until the backlog is gone at the present throughput, absent while nothing is completed",
        attrgetter("drain"),
    ),
    _paced("unstuck_queue_throughput", "Jobs completed per second, smoothed", attrgetter("throughput")),
    _paced("unstuck_poll_memory_ratio", "used_memory as a share of the limit of the queue", attrgetter("memory_share")),
    Family(
        "unstuck_cache_invalidations_total",
        "counter",
        "Per-job cache entries invalidated",
        (*QUEUE, "cause"),
        _invalidations,
    ),
    column(
        "unstuck_cache_invalidation_failures_total",
        "Invalidations that failed",
        lambda scene: scene.counted,
        lambda q: None if q.counts.invalidations is None else q.counts.invalidation_failures,
    ),
    _total("unstuck_cache_hits_total", "Reads that the per-job or batch cache could answer", attrgetter("cache_hits")),
    _total("unstuck_cache_misses_total", "Reads that found nothing in the cache", attrgetter("cache_misses")),
    _total("unstuck_cache_stale_total", "Reads that found an entry with an old stamp", attrgetter("cache_stale")),
    _paced(
        "unstuck_cache_hit_ratio", "Share of the workers' cache reads that hit, smoothed", attrgetter("cache_hit_ratio")
    ),
    _total("unstuck_cache_events_unheard_total", "Invalidation events that nobody listened to", attrgetter("unheard")),
)
