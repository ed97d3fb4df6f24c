"""The stories of the alerts about queues and their jobs, and of the objective."""

from collections.abc import Mapping

from support.alert_story import (
    ENABLED,
    FINISHED,
    IDLE,
    QUEUE,
    RUNNING,
    STUCK,
    WAITING,
    WORKS,
    Case,
    On,
    Told,
    always,
    counted,
    other,
    q,
    trouble,
)

QUEUE_CASES: Mapping[str, Case] = {
    "UnstuckStuckJobs": Case(
        {STUCK: trouble(2), q("unstuck_stuck_jobs", reason="worker_dead"): trouble(1)},
        QUEUE,
        "Stuck jobs of unstuck/mail: 3. Their workers show no life.",
        quiet={other("unstuck_stuck_jobs", reason="worker_gone"): always(0)},
    ),
    "UnstuckStuckJobsNotReclaimed": Case(
        {STUCK: trouble(2), ENABLED: always(1)},
        QUEUE,
        "Jobs of unstuck/mail that have been stuck for 15m although reclaiming is on: 2.",
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
        "All jobs of unstuck/mail in flight (3) are stuck while they hold locks, and jobs wait.",
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
        "Stuck jobs of unstuck/mail: 2. The mode of the queue is observe, so nobody moves them.",
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
        "Jobs of unstuck/mail that were reclaimed in 10 minutes: 60. Workers die or hang in numbers.",
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
        "Jobs of unstuck/mail in flight: 4. None has ended for 10m.",
        quiet=WORKS,
        begins=4,
    ),
    "UnstuckQueueNotDraining": Case(
        {WAITING: always(7), IDLE: always(3), FINISHED: Told((0, 6), On(0), On(6))},
        QUEUE,
        "Jobs of unstuck/mail that wait: 7. Workers are alive, and the backlog has not moved for 10m.",
        quiet=WORKS,
        begins=4,
    ),
    "UnstuckBacklogRising": Case(
        {WAITING: Told(0, (10, 10), 0), FINISHED: always(5)},
        QUEUE,
        "Jobs of unstuck/mail that wait: 70. More come in, and none ends.",
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
        "Jobs of unstuck/mail that wait: 1001, more than the backlog threshold that is configured for it.",
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
        "Jobs of unstuck/mail that became dead letters within an hour: 1.",
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
        "Ids of unstuck/mail in quarantine: 2. Their jobs are missing or damaged.",
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
