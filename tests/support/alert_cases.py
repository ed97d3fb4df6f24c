"""For every shipped alert a story for promtool: what is seen before, during and after the trouble, and what is said.

The trouble begins at minute 5 and lasts for the alert's `for` and ten minutes more. `begins` and `ends` are the first minute at
which the expression holds, and the first at which it does not any more, in minutes after the trouble began and ended:
rates and windows need time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

CALM = 5
"""Minutes before the trouble."""
SLACK = 10
"""Minutes that the trouble goes on after the alert must fire."""
AFTER = 400
"""Minutes that are told of after the trouble."""

AGENT = 'job="unstuck", instance="a:9797"'
SOURCE = f'{AGENT}, source="default"'
MAIL = f'{AGENT}, backend="unstuck", queue="mail"'
JOB = {"job": "unstuck"}
ONE = {**JOB, "instance": "a:9797"}
REDIS = {**JOB, "source": "default"}
QUEUE = {**JOB, "backend": "unstuck", "queue": "mail"}


@dataclass(frozen=True)
class On:
    """From the last value on, so much more each minute."""

    step: float


Part = float | tuple[float, float] | On | None
"""A value; a first value and what is added each minute; what is added to the value before; absent."""


@dataclass(frozen=True)
class Told:
    """The values of one series, a sample a minute."""

    before: Part
    during: Part
    after: Part

    def values(self, trouble: int) -> str:
        """As promtool wants them; ``trouble`` in minutes."""
        runs, last = [], 0.0
        for part, minutes in ((self.before, CALM), (self.during, trouble), (self.after, AFTER)):
            if part is None:
                runs.append(f"_x{minutes}")
                continue
            step = part.step if isinstance(part, On) else part[1] if isinstance(part, tuple) else 0
            first = last + step if isinstance(part, On) else part[0] if isinstance(part, tuple) else part
            last = first + step * (minutes - 1)
            runs.append(f"{first}{step:+}x{minutes - 1}")
        return " ".join(runs)


@dataclass(frozen=True)
class Case:
    """One alert."""

    series: Mapping[str, Told]
    labels: Mapping[str, str]
    says: str
    begins: int = 0
    ends: int = 0
    trouble: int | None = None  # minutes, where `for` and ten more are not what is meant
    quiet: Mapping[str, Told] = field(default_factory=dict)  # a second story of other labels, in which it must not fire


def always(value: float) -> Told:
    return Told(value, value, value)


def trouble(during: float, *, else_: float = 0) -> Told:
    return Told(else_, during, else_)


def q(name: str, **labels: str) -> str:
    """A series of the queue `mail`."""
    more = "".join(f', {label}="{value}"' for label, value in labels.items())
    return f"{name}{{{MAIL}{more}}}"


def other(name: str, **labels: str) -> str:
    """The same of the queue `quiet`."""
    return q(name, **labels).replace('queue="mail"', 'queue="quiet"')


def duty(name: str) -> str:
    return f'{name}{{{AGENT}, collector="sweep"}}'


def counted(step: float) -> Told:
    """A counter that grows by ``step`` a minute while the trouble lasts."""
    return Told(0, On(step), On(0))


WAITING = q("unstuck_queue_jobs", state="waiting")
RUNNING = q("unstuck_queue_jobs", state="running")
STUCK = q("unstuck_stuck_jobs", reason="worker_gone")
IDLE = q("unstuck_queue_workers", state="idle")
FINISHED = q("unstuck_jobs_finished_total")
ENABLED = q("unstuck_reclaim_enabled")
WORKS: Mapping[str, Told] = {
    other("unstuck_queue_jobs", state="waiting"): always(500),
    other("unstuck_queue_jobs", state="running"): always(5),
    other("unstuck_queue_workers", state="idle"): always(5),
    other("unstuck_jobs_finished_total"): Told((0, 9), On(9), On(9)),
}
"""A queue with a steady backlog that is worked off."""

CASES: Mapping[str, Case] = {
    "UnstuckAgentDown": Case(
        {f"up{{{AGENT}}}": trouble(0, else_=1)},
        JOB,
        "No agent of job unstuck answers Prometheus: nobody watches the queues, and all other alerts about them are silent.",
    ),
    "UnstuckStandbyDown": Case(
        {f"up{{{AGENT}}}": trouble(0, else_=1), 'up{job="unstuck", instance="b:9797"}': always(1)},
        ONE,
        "The agent a:9797 does not answer Prometheus; others do. If the one that leads goes too, nobody takes over.",
    ),
    "UnstuckRedisDown": Case(
        {f"unstuck_redis_up{{{SOURCE}}}": trouble(0, else_=1)},
        REDIS,
        "No agent of job unstuck gets an answer from Redis (default). Workers most likely get none either.",
        quiet={
            'unstuck_redis_up{job="unstuck", instance="b:9797", source="other"}': always(0),
            'unstuck_redis_up{job="unstuck", instance="c:9797", source="other"}': always(1),
        },
    ),
    "UnstuckNoLeader": Case(
        {f"unstuck_leader{{{AGENT}}}": trouble(0, else_=1), f"unstuck_gate_open{{{SOURCE}}}": Told(1, None, 1)},
        JOB,
        "Agents of job unstuck run, but none leads: nothing is judged, reclaimed or published.",
        # promtool writes no stale markers, so the last value of a series that is absent is seen for 5 minutes more.
        begins=5,
        trouble=20,
    ),
    "UnstuckSeveralLeaders": Case(
        {f"unstuck_leader{{{AGENT}}}": always(1), 'unstuck_leader{job="unstuck", instance="b:9797"}': trouble(1)},
        JOB,
        "2 agents of job unstuck lead at once. The fence in Redis lets only the youngest act.",
    ),
    "UnstuckLeaderFlapping": Case(
        {f'unstuck_leader_transitions_total{{{AGENT}, event="acquired"}}': counted(1)},
        JOB,
        "The lead of unstuck changed hands 10 times in 30 minutes. Each new leader judges nothing for one window.",
        begins=4,
        ends=25,
    ),
    "UnstuckCollectorFailing": Case(
        {duty("unstuck_collector_success"): trouble(0, else_=1)},
        {**ONE, "collector": "sweep"},
        "The duty sweep of a:9797 has failed for 5 minutes.",
    ),
    "UnstuckCollectorStale": Case(
        {duty("unstuck_collector_last_success_timestamp_seconds"): Told((0, 60), 240, (1200, 60))},
        {**ONE, "collector": "sweep"},
        "The duty sweep of a:9797 last succeeded 5m 0s ago.",
        begins=2,
    ),
    "UnstuckSweepsMissed": Case(
        {duty("unstuck_collector_missed_total"): counted(20)},
        {**ONE, "collector": "sweep"},
        "The duty sweep of a:9797 missed 140 passes in 15 minutes.",
        begins=1,
        ends=13,
    ),
    "UnstuckCollectorTruncated": Case(
        {duty("unstuck_collector_truncated"): trouble(1)},
        {**ONE, "collector": "sweep"},
        "The duty sweep of a:9797 stops at its budget: its counts are lower bounds.",
    ),
    "UnstuckGateClosed": Case(
        {f"unstuck_gate_open{{{SOURCE}}}": trouble(0, else_=1)},
        REDIS,
        "The gate of unstuck has been closed for 10m: Redis or the agent is unwell, so nothing is judged or reclaimed.",
    ),
    "UnstuckClockSkew": Case(
        {f"unstuck_clock_offset_seconds{{{SOURCE}}}": trouble(-90)},
        {**ONE, "source": "default"},
        "The clock of a:9797 is 1m 30s away from that of Redis: ages in alerts are off by as much.",
        quiet={'unstuck_clock_offset_seconds{job="unstuck", instance="b:9797", source="default"}': always(2)},
    ),
    "UnstuckConfigurationNotLoaded": Case(
        {f"unstuck_config_last_reload_successful{{{AGENT}}}": trouble(0, else_=1)},
        ONE,
        "The last configuration of a:9797 was refused; the one before is in force.",
    ),
    "UnstuckMetricsIncomplete": Case(
        {f"unstuck_exporter_family_failures_total{{{AGENT}}}": counted(1)},
        ONE,
        "a:9797 left out metric families 1 times in 15 minutes: alerts on them are blind.",
        ends=14,
    ),
    "UnstuckQueuesDropped": Case(
        {f"unstuck_queues_dropped{{{SOURCE}}}": trouble(12)},
        {**ONE, "source": "default"},
        "12 queues are not exported by a:9797: no alert speaks of them.",
    ),
    "UnstuckNotificationsFailing": Case(
        {f'unstuck_notification_failures_total{{{AGENT}, receiver="pager"}}': counted(3)},
        {**ONE, "receiver": "pager"},
        "18 deliveries from a:9797 to pager failed in 15 minutes.",
        ends=14,
    ),
    "UnstuckRedisEvicting": Case(
        {f"unstuck_redis_evicted_keys_total{{{SOURCE}}}": counted(60)},
        REDIS,
        "Redis (default) evicted 60 keys in 5 minutes. Verdicts are suspended: a missing lock proves nothing now.",
        ends=4,
    ),
    "UnstuckRedisMemoryHigh": Case(
        {
            f"unstuck_redis_memory_used_bytes{{{SOURCE}}}": trouble(95, else_=90),
            f"unstuck_redis_memory_max_bytes{{{SOURCE}}}": always(100),
        },
        REDIS,
        "Redis (default) uses 95% of its maxmemory.",
        quiet={
            'unstuck_redis_memory_used_bytes{job="unstuck", instance="b:9797", source="unlimited"}': always(1e9),
            'unstuck_redis_memory_max_bytes{job="unstuck", instance="b:9797", source="unlimited"}': always(0),
        },
    ),
    "UnstuckEvictionPolicyUnsafe": Case(
        {
            f'unstuck_redis_maxmemory_policy_info{{{SOURCE}, policy="allkeys-lru"}}': always(1),
            f"unstuck_redis_memory_max_bytes{{{SOURCE}}}": trouble(100),
        },
        {**REDIS, "policy": "allkeys-lru"},
        "Redis (default) has maxmemory-policy allkeys-lru; job queues need noeviction.",
    ),
    "UnstuckStuckJobs": Case(
        {STUCK: trouble(2), q("unstuck_stuck_jobs", reason="worker_dead"): trouble(1)},
        QUEUE,
        "3 jobs of unstuck/mail are stuck: taken by a worker that shows no life.",
        quiet={other("unstuck_stuck_jobs", reason="worker_gone"): always(0)},
    ),
    "UnstuckStuckJobsNotReclaimed": Case(
        {STUCK: trouble(2), ENABLED: always(1)},
        QUEUE,
        "2 jobs of unstuck/mail have been stuck for 15m although reclaiming is on.",
        quiet={
            other("unstuck_stuck_jobs", reason="worker_gone"): always(2),
            other("unstuck_reclaim_enabled"): always(0),
        },
    ),
    "UnstuckStuckShareHigh": Case(
        {STUCK: trouble(4), RUNNING: always(10)},
        QUEUE,
        "40% of what unstuck/mail has in flight is stuck.",
        quiet={
            other("unstuck_stuck_jobs", reason="worker_gone"): always(3),
            other("unstuck_queue_jobs", state="running"): always(3),
        },
    ),
    "UnstuckLockDeadlock": Case(
        {STUCK: trouble(3), RUNNING: always(3), WAITING: always(7), q("unstuck_locks_held"): always(3)},
        QUEUE,
        "All 3 jobs in flight of unstuck/mail are stuck while they hold locks, and jobs wait.",
        quiet={
            other("unstuck_stuck_jobs", reason="worker_gone"): always(2),
            other("unstuck_queue_jobs", state="running"): always(3),
            other("unstuck_queue_jobs", state="waiting"): always(7),
            other("unstuck_locks_held"): always(3),
        },
    ),
    "UnstuckDryRun": Case(
        {STUCK: trouble(2), ENABLED: always(0)},
        QUEUE,
        "2 jobs of unstuck/mail are stuck; the mode of the queue is observe, so nobody moves them.",
    ),
    "UnstuckBrakeEngaged": Case(
        {q("unstuck_brake_engaged"): trouble(1)},
        QUEUE,
        "The brake of unstuck/mail is engaged: either a whole fleet died, or it only looks so.",
    ),
    "UnstuckReclaimFailures": Case(
        {q("unstuck_reclaim_failures_total", kind="oom"): counted(2)},
        QUEUE,
        "12 reclaims in unstuck/mail raised an error in 10 minutes.",
        ends=9,
    ),
    "UnstuckReclaimStorm": Case(
        {q("unstuck_reclaims_total", action="requeued", reason="worker_gone"): counted(20)},
        QUEUE,
        "60 jobs of unstuck/mail were reclaimed in 10 minutes: workers die or hang in numbers.",
        begins=2,
        ends=7,
    ),
    "UnstuckHeartbeatOld": Case(
        {q("unstuck_heartbeat_oldest_timestamp_seconds"): Told((0, 60), 240, (1020, 60))},
        QUEUE,
        "The oldest heartbeat among running jobs of unstuck/mail is 4m 0s old.",
        begins=1,
    ),
    "UnstuckLocksWithoutExpiry": Case(
        {q("unstuck_locks_without_expiry"): trouble(2)},
        QUEUE,
        "2 locks of unstuck/mail have no expiry: if their holder dies, only a reclaim or a person frees them.",
    ),
    "UnstuckFencingRejections": Case(
        {q("unstuck_fencing_rejections_total"): counted(6)},
        QUEUE,
        "6 writes in unstuck/mail were refused in 15 minutes because the attempt was no longer current.",
        ends=14,
    ),
    "UnstuckQueueStalled": Case(
        {RUNNING: always(4), FINISHED: Told((0, 6), On(0), On(6))},
        QUEUE,
        "4 jobs of unstuck/mail are in flight and none has ended for 10m.",
        quiet=WORKS,
        begins=4,
    ),
    "UnstuckQueueNotDraining": Case(
        {WAITING: always(7), IDLE: always(3), FINISHED: Told((0, 6), On(0), On(6))},
        QUEUE,
        "7 jobs of unstuck/mail wait, workers are alive, and the backlog has not moved for 10m.",
        quiet=WORKS,
        begins=4,
    ),
    "UnstuckBacklogRising": Case(
        {WAITING: Told(0, (10, 10), 0), FINISHED: always(5)},
        QUEUE,
        "70 jobs of unstuck/mail wait, more come in, and none ends.",
        quiet={
            other("unstuck_queue_jobs", state="waiting"): Told((0, 10), On(10), On(10)),
            other("unstuck_jobs_finished_total"): Told((0, 9), On(9), On(9)),
        },
        begins=1,
    ),
    "UnstuckQueueHasNoWorkers": Case(
        {q("unstuck_queue_findings", kind="no_worker"): trouble(1)},
        QUEUE,
        "Jobs wait in unstuck/mail and no live worker listens to it.",
        quiet={other("unstuck_queue_findings", kind="wrong_type"): always(1)},
    ),
    "UnstuckQueueLatencyHigh": Case(
        {q("unstuck_queue_oldest_job_timestamp_seconds"): Told((0, 60), 0, (900, 60))},
        QUEUE,
        "The oldest waiting job of unstuck/mail has waited for 11m 0s.",
        begins=1,
    ),
    "UnstuckQueueBacklogHigh": Case(
        {WAITING: trouble(1001, else_=1000), q("unstuck_queue_backlog_threshold"): always(1000)},
        QUEUE,
        "1001 jobs of unstuck/mail wait, more than the backlog threshold that is configured for it.",
    ),
    "UnstuckUnackedAgeHigh": Case(
        {q("unstuck_queue_oldest_running_timestamp_seconds"): Told((0, 60), -3600, (1200, 60))},
        QUEUE,
        "The oldest job that a worker of unstuck/mail has taken and not ended is 1h 10m 0s old.",
    ),
    "UnstuckFailureRatioHigh": Case(
        {FINISHED: Told((0, 60), On(60), On(60)), q("unstuck_jobs_failed_total"): Told(0, On(6), On(0))},
        QUEUE,
        "10% of the jobs of unstuck/mail that ended have failed.",
        quiet={
            other("unstuck_jobs_finished_total"): Told((0, 1), On(1), On(1)),
            other("unstuck_jobs_failed_total"): Told((0, 1), On(1), On(1)),
        },
        begins=2,
        ends=2,
    ),
    "UnstuckDeadLettersGrowing": Case(
        {q("unstuck_dead_letter_jobs"): Told(40, 41, 41)},
        QUEUE,
        "1 jobs of unstuck/mail became dead letters within an hour.",
        quiet={other("unstuck_dead_letter_jobs"): always(9000)},
        ends=48,
    ),
    "UnstuckDeadLettersDropped": Case(
        {q("unstuck_dead_letters_dropped_total"): counted(3)},
        QUEUE,
        "3 dead letters of unstuck/mail were dropped within an hour: they are lost.",
        ends=59,
    ),
    "UnstuckQuarantinedJobs": Case(
        {q("unstuck_queue_jobs", state="quarantined"): trouble(2)},
        QUEUE,
        "2 ids of unstuck/mail are in quarantine: their jobs are missing or damaged.",
    ),
    "UnstuckQueueUnreadable": Case(
        {q("unstuck_queue_readable"): trouble(0, else_=1)},
        QUEUE,
        "The agent cannot read unstuck/mail: a key of the wrong type, or no right to read it.",
    ),
    "UnstuckPollIntervalNotPublished": Case(
        {q("unstuck_poll_published_timestamp_seconds"): Told((0, 60), 240, (1020, 60))},
        QUEUE,
        "The last interval for unstuck/mail was published 4m 0s ago; workers use their own base.",
        begins=1,
    ),
    "UnstuckPollIntervalSaturated": Case(
        {q("unstuck_poll_score_ratio"): trouble(1, else_=0.9)},
        QUEUE,
        "The load score of unstuck/mail has been 1 for 30 minutes: pacing can do no more, workers are missing.",
    ),
}


def _starts(late: int) -> Mapping[str, Told]:
    """100 starts a minute, ``late`` of which are late during the trouble."""
    return {
        q("unstuck_job_queue_wait_seconds_count"): Told((0, 100), On(100), On(100)),
        q("unstuck_job_queue_wait_seconds_bucket", le="30.0"): Told((0, 100), On(100 - late), On(100)),
    }


SLO_CASES: Mapping[str, Case] = {
    "UnstuckStartDelayBurnFastest": Case(
        _starts(50),
        {**QUEUE, "long_window": "1h", "short_window": "5m"},
        "25% of the jobs of unstuck/mail started late in the last 1h: more than 14.4 times what the objective allows.",
        begins=1,
        ends=3,
        trouble=60,
    ),
    "UnstuckStartDelayBurnFast": Case(
        _starts(20),
        {**QUEUE, "long_window": "6h", "short_window": "30m"},
        "16.19% of the jobs of unstuck/mail started late in the last 6h: more than 6 times what the objective allows.",
        begins=1,
        ends=20,
        trouble=60,
    ),
    "UnstuckStartDelayBurnSlow": Case(
        _starts(10),
        {**QUEUE, "long_window": "1d", "short_window": "2h"},
        "9.394% of the jobs of unstuck/mail started late in the last 1d: more than 3 times what the objective allows.",
        begins=1,
        ends=83,
        trouble=120,
    ),
    "UnstuckStartDelayBurnSlowest": Case(
        _starts(5),
        {**QUEUE, "long_window": "3d", "short_window": "6h"},
        "4.892% of the jobs of unstuck/mail started late in the last 3d: more than the objective allows.",
        begins=1,
        ends=287,
        trouble=240,
    ),
}
