"""The families that tell of queues: what the last look saw, and what the agent has counted about them.

What a system does not tell is absent, never 0. Unix times of jobs are the server's: they grow old by `time() - x` even
if this agent hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import Final, TypeVar

from unstuck.model import QueueSnapshot, Totals
from unstuck_exporters import labels as sets
from unstuck_exporters.exposition import (
    QUEUE,
    Buckets,
    Family,
    Row,
    Scene,
    Shown,
    chosen,
    column,
    counted,
    histogram,
    labelled,
    stored_counts,
    tallied,
)
from unstuck_exporters.families_pacing import PACING
from unstuck_exporters.ledger import QueueLedger
from unstuck_exporters.tally import HEARTBEAT_BUCKETS, JOB_BUCKETS, Tally

T = TypeVar("T")


def _seen(name: str, text: str, get: Callable[[QueueSnapshot], float | None]) -> Family:
    """A gauge of the last look."""
    return column(name, text, lambda scene: scene.snapshots, get)


def _judged(name: str, text: str, get: Callable[[Shown], float | None]) -> Family:
    """A gauge of the last look that needs more than its snapshot."""
    return column(name, text, lambda scene: scene.present, get)


def _total(name: str, text: str, get: Callable[[Totals], int]) -> Family:
    """A counter that Redis keeps."""
    return column(name, text, lambda scene: scene.totals, get)


def _own(name: str, text: str, get: Callable[[QueueLedger], int | None]) -> Family:
    """What the agent itself knows of a queue, however old the last look is."""
    return column(name, text, lambda scene: scene.counted, get)


_JOBS: Final = "".join(f"unstuck_queue_jobs{{%s,{labelled(state=state)}}} %d\n" for state in sets.JOB_STATES)
_WORKERS: Final = "".join(f"unstuck_queue_workers{{%s,{labelled(state=state)}}} %d\n" for state in sets.WORKER_STATES)


def _jobs(scene: Scene) -> Iterable[Row]:
    for at, s in zip(*scene.snapshots, strict=True):
        states = (at, s.waiting, at, s.scheduled, at, s.running, at, s.dead, at, s.failed, at, s.quarantined)
        yield _JOBS % states


def _workers(scene: Scene) -> Iterable[Row]:
    for at, snapshot in zip(*scene.snapshots, strict=True):
        get = snapshot.workers.get
        yield _WORKERS % (at, get("busy", 0), at, get("idle", 0), at, get("lost", 0))


def _findings(scene: Scene) -> Iterable[Row]:
    for labels, snapshot in zip(*scene.snapshots, strict=True):
        if snapshot.side_findings:
            counts = Tally()
            for finding in snapshot.side_findings:
                counts.add(sets.word(finding.kind), count=finding.count)
            yield tallied("unstuck_queue_findings", labels + ",", ("kind",), counts)


def _stuck(scene: Scene) -> bytes:
    name = "unstuck_stuck_jobs"
    tallies = chosen(scene.present, attrgetter("ledger.judgement.stuck"))
    return scene.memory.each(
        name, tallies, lambda labels, tally: tallied(name, labels + ",", ("reason",), tally).encode()
    )


def _reclaim_delay(scene: Scene) -> bytes:
    name = "unstuck_reclaim_delay_seconds"
    delays = chosen(scene.counted, attrgetter("counts.reclaim_delay"))
    return scene.memory.each(
        name, delays, lambda labels, delay: histogram(name, labels, delay, exemplars=scene.openmetrics).encode()
    )


def _stored(name: str, text: str, get: Callable[[Totals], tuple[Mapping[str, int], int]]) -> Family:
    """A histogram that the scripts count in Redis."""
    lines = Buckets(name, JOB_BUCKETS)

    def write(labels: str, stored: tuple[Mapping[str, int], int]) -> bytes:
        cumulative = list(accumulate(stored_counts(JOB_BUCKETS, stored[0])))
        return lines.rows(labels, *cumulative, cumulative[-1], stored[1] / 1000)

    def rows(scene: Scene) -> bytes:
        return scene.memory.each(name, chosen(scene.totals, get), write)

    return Family(name, "histogram", text, QUEUE, rows)


_AGES: Final = tuple(f"{bound:g}" for bound in HEARTBEAT_BUCKETS)
_AGE_LINES: Final = Buckets("unstuck_heartbeat_age_seconds", HEARTBEAT_BUCKETS, summed=False)


def _heartbeat_ages(scene: Scene) -> bytes:
    """Redis counts the members per bucket without reading them, so there are exact buckets and no sum."""

    def write(labels: str, told: tuple[Mapping[str, int], int]) -> bytes:
        buckets, beating = told
        counts = [buckets.get(bound, -1) for bound in _AGES]
        if -1 in counts:  # spelled in another way; where one of our bounds was not asked for, the lower one holds
            spelled = {as_bound(bound): count for bound, count in buckets.items()}
            counts = list(accumulate((spelled.get(bound, 0) for bound in HEARTBEAT_BUCKETS), max))
        return _AGE_LINES.rows(labels, *counts, max(counts[-1], beating))

    ages = chosen(
        scene.snapshots,
        lambda s: (
            None if s.heartbeat_buckets is None else (s.heartbeat_buckets, s.running - (s.heartbeats_missing or 0))
        ),
    )
    return scene.memory.each("unstuck_heartbeat_age_seconds", ages, write)


@lru_cache(maxsize=256)
def as_bound(text: str) -> float:
    """The upper bound of a bucket, from its text (`+Inf` and `inf` are both heard)."""
    return float(text)


def _ago(queue: Shown, seconds: float | None) -> float | None:
    return None if seconds is None else round(queue.server_now - seconds, 3)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _latency(s: QueueSnapshot) -> float | None:
    return s.oldest_waiting if s.oldest_waiting is not None else None if s.waiting else 0


QUEUES: Final = (
    Family("unstuck_queue_jobs", "gauge", "Jobs by state", (*QUEUE, "state"), _jobs),
    _seen(
        "unstuck_queue_prefetched_jobs",
        "Running jobs that a worker has taken and not started, absent where the backend does not show it",
        attrgetter("prefetched"),
    ),
    _own(
        "unstuck_queue_readable",
        "1 if the last look could read the queue",
        lambda q: None if q.look is None and not q.trouble else int(not q.trouble),
    ),
    _judged(
        "unstuck_queue_oldest_job_timestamp_seconds",
        "Enqueue time of the oldest waiting job, absent when the queue is empty or the backend does not store it",
        lambda q: _ago(q, q.snapshot.oldest_waiting),
    ),
    _seen("unstuck_queue_latency_seconds", "Age of the oldest waiting job, 0 when empty", _latency),
    _judged(
        "unstuck_queue_oldest_running_timestamp_seconds",
        "Start time of the longest-running job",
        lambda q: _ago(q, q.snapshot.oldest_running),
    ),
    Family(
        "unstuck_queue_workers",
        "gauge",
        "Workers by state that listen on the queue; lost ones have stopped beating and are not yet forgotten",
        (*QUEUE, "state"),
        _workers,
    ),
    _seen("unstuck_queue_paused", "1 if the queue is paused", lambda s: int(s.paused)),
    _own(
        "unstuck_queue_backlog_threshold",
        "Configured backlog threshold",
        lambda q: q.setup.backlog_threshold,
    ),
    Family(
        "unstuck_queue_findings",
        "gauge",
        "What is wrong with the queue besides stuck jobs (wrong key types, orphans, no workers), by kind",
        (*QUEUE, "kind"),
        _findings,
    ),
    _seen("unstuck_locks_held", "Locks held by the queue's jobs", attrgetter("locks_held")),
    _seen(
        "unstuck_lock_soonest_expiry_timestamp_seconds",
        "Soonest expiry among held locks",
        lambda s: _seconds(s.soonest_lock_expiry_ms),
    ),
    _seen("unstuck_locks_without_expiry", "Locks with no TTL", attrgetter("locks_without_expiry")),
    _seen(
        "unstuck_heartbeat_oldest_timestamp_seconds",
        "Oldest heartbeat among running jobs",
        lambda s: _seconds(s.oldest_heartbeat_ms),
    ),
    _seen("unstuck_heartbeats_missing", "Running jobs with no heartbeat recorded", attrgetter("heartbeats_missing")),
    Family(
        "unstuck_heartbeat_age_seconds",
        "histogram",
        "Age of every running job's heartbeat, sampled once a pass; buckets only",
        QUEUE,
        _heartbeat_ages,
    ),
    Family("unstuck_stuck_jobs", "gauge", "Jobs judged stuck now", (*QUEUE, "reason"), _stuck),
    _judged(
        "unstuck_suspect_jobs",
        "Jobs with evidence against them that were not watched for long enough yet",
        lambda q: q.ledger.judgement.suspects,
    ),
    _judged(
        "unstuck_stuck_oldest_timestamp_seconds",
        "Since when the longest stuck job has been stuck",
        lambda q: q.ledger.judgement.since,
    ),
    counted("unstuck_stuck_detected_total", "Jobs newly judged stuck", ("reason",), attrgetter("detected")),
    counted("unstuck_reclaims_total", "Reclaims that took effect", ("action", "reason"), attrgetter("reclaims")),
    counted("unstuck_reclaim_failures_total", "Reclaims that raised", ("kind",), attrgetter("failures")),
    counted(
        "unstuck_reclaims_skipped_total",
        "Stuck jobs left alone, counted in every sweep that leaves them",
        ("cause",),
        attrgetter("skipped"),
    ),
    Family(
        "unstuck_reclaim_delay_seconds",
        "histogram",
        "Time from becoming stuck to being reclaimed",
        QUEUE,
        _reclaim_delay,
    ),
    _own(
        "unstuck_reclaim_enabled",
        "1 if stuck jobs of the queue are reclaimed: its mode says so and its layout allows it",
        lambda q: int(q.reclaims_allowed),
    ),
    _own(
        "unstuck_brake_engaged",
        "1 while reclaiming is held back because too many jobs look stuck at once",
        lambda q: int(q.brake.engaged),
    ),
    _seen("unstuck_dead_letter_jobs", "Jobs in the dead-letter store", attrgetter("dead")),
    _seen(
        "unstuck_dead_letter_oldest_timestamp_seconds",
        "Arrival time of the oldest dead letter",
        lambda s: _seconds(s.oldest_dead_ms),
    ),
    _total("unstuck_dead_letters_dropped_total", "Dead letters dropped to make room", attrgetter("dead_dropped")),
    _own("unstuck_poison_jobs_total", "Jobs dead-lettered after the attempt limit", lambda q: q.counts.poison),
    _total(
        "unstuck_fencing_rejections_total",
        "Completions refused because the lock had moved on",
        attrgetter("refused"),
    ),
    _total(
        "unstuck_optimistic_conflicts_total",
        "Completions without a lock refused because somebody else had finished the job",
        attrgetter("conflicts"),
    ),
    *PACING,
    _total("unstuck_jobs_enqueued_total", "Jobs accepted", attrgetter("enqueued")),
    _total("unstuck_jobs_started_total", "Attempts started", attrgetter("started")),
    _total(
        "unstuck_jobs_finished_total",
        "Jobs that ended, any outcome",
        lambda t: t.completed + max(0, t.failed - t.retried),
    ),
    _total("unstuck_jobs_failed_total", "Jobs that ended in failure", lambda t: max(0, t.failed - t.retried)),
    _total("unstuck_job_retries_total", "Retries", attrgetter("retried")),
    _stored("unstuck_job_duration_seconds", "Run time of attempts", lambda t: (t.run_buckets, t.run_ms)),
    _stored(
        "unstuck_job_queue_wait_seconds",
        "Time from enqueue or due time to start",
        lambda t: (t.delay_buckets, t.delay_ms),
    ),
)
