"""Stuck & rescues: what is stuck, since when, on what evidence, and what is done about it?"""

from __future__ import annotations

from boards import kit
from boards.kit import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RECLAIMS,
    RED,
    YELLOW,
    by_queue,
    increase,
    quantile,
    queue,
)

NAMED = "{{backend}}/{{queue}}"


def board() -> kit.Board:
    """From the evidence to the dead letter."""
    board = kit.Board(
        RECLAIMS, "Stuck & rescues", "What is stuck, since when, on what evidence, and what is done about it?"
    )
    board.row("Now", 4, *now())
    board.row("Evidence", 8, *evidence())
    board.row("Rescues", 8, *rescues())
    board.row("What was not done", 8, *left_alone())
    board.row("Dead letters and refused writes", 8, *ends())
    return board


def now() -> list[kit.Cell]:
    """Numbers."""
    oldest = queue("unstuck_stuck_oldest_timestamp_seconds")
    return [
        kit.number(
            "Stuck",
            "Jobs judged stuck now. A dash: no agent tells.",
            f"sum({queue('unstuck_stuck_jobs')})",
            steps=[(None, GREEN), (1, RED)],
        ),
        kit.number(
            "Suspected",
            "Jobs with evidence against them that were not watched for long enough yet.",
            f"sum({queue('unstuck_suspect_jobs')})",
            steps=[(None, GREEN), (1, YELLOW)],
        ),
        kit.number(
            "Stuck for",
            "For how long the longest stuck job has been stuck. 0: none is.",
            f"(time() - min({oldest})) or (max({queue('unstuck_queue_readable')}) * 0)",
            unit="s",
            steps=[(None, GREEN), (30, ORANGE), (900, RED)],
        ),
        kit.number(
            "Rescues in 1 h",
            "Reclaims that took effect within the last hour.",
            f"sum({increase(queue('unstuck_reclaims_total'), '1h')})",
            decimals=0,
            steps=[(None, GREEN), (1, YELLOW), (50, RED)],
        ),
        kit.number(
            "Delay of a rescue",
            "From becoming stuck to being reclaimed: 95 % of the rescues of the last hour were quicker. A dash: none.",
            "histogram_quantile(0.95, sum by (le) "
            f"({increase(queue('unstuck_reclaim_delay_seconds_bucket'), '1h')})) >= 0",
            unit="s",
            steps=[(None, GREEN), (60, YELLOW), (300, RED)],
        ),
        kit.number(
            "Failures in 1 h",
            "Reclaims that raised an error within the last hour.",
            f"sum({increase(queue('unstuck_reclaim_failures_total'), '1h')})",
            decimals=0,
            steps=[(None, GREEN), (1, RED)],
        ),
        kit.number(
            "Brakes",
            "Queues in which reclaiming is held back because too many jobs look stuck at once.",
            f"sum({queue('unstuck_brake_engaged')})",
            steps=[(None, GREEN), (1, RED)],
        ),
        kit.number(
            "Only observed",
            "Queues whose stuck jobs nobody moves: their mode is observe, or their layout allows no more.",
            f"count({queue('unstuck_reclaim_enabled')}) - sum({queue('unstuck_reclaim_enabled')})",
            steps=[(None, GREEN), (1, YELLOW)],
        ),
    ]


def evidence() -> list[kit.Cell]:
    """What the verdicts stand on."""
    soonest = by_queue(queue("unstuck_lock_soonest_expiry_timestamp_seconds"), "min")
    oldest = by_queue(queue("unstuck_heartbeat_oldest_timestamp_seconds"), "min")
    return [
        kit.lines(
            "Stuck jobs by reason",
            "Why jobs are stuck. worker_gone: the connection is lost; worker_dead: the worker stopped beating; "
            "lock_without_heartbeat, lock_expired, never_started, deadline_passed: as they say.",
            [(f"sum by (reason) ({queue('unstuck_stuck_jobs')})", "{{reason}}")],
            width=12,
            stacked=True,
            steps=[(None, GREEN), (1, RED)],
        ),
        kit.heat(
            "Ages of heartbeats",
            "Running jobs by the age of their last heartbeat, at each moment. A band that climbs is a worker that went silent.",
            f"sum by (le) ({queue('unstuck_heartbeat_age_seconds_bucket')})",
            steps=[(None, GREEN), (30, ORANGE)],
            width=12,
        ),
        kit.lines(
            "Oldest heartbeat",
            "Age of the oldest heartbeat among running jobs; the line is the default of stuck_after.",
            [(f"time() - {oldest}", NAMED)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (30, RED)],
            limit=True,
            none="Nothing runs",
        ),
        kit.lines(
            "Time left of the shortest lock",
            "Until the first held lock expires. Below 0: it has expired, and its key is still listed.",
            [(f"{soonest} - time()", NAMED)],
            width=8,
            unit="s",
            least=None,
            steps=[(None, RED), (0, GREEN)],
            none="No lock is held",
        ),
        kit.lines(
            "Locks and heartbeats",
            "Locks held, locks without an expiry, and running jobs without any heartbeat. The last two should be 0.",
            [
                (f"sum({queue('unstuck_locks_held')})", "locks held"),
                (f"sum({queue('unstuck_locks_without_expiry')})", "without expiry"),
                (f"sum({queue('unstuck_heartbeats_missing')})", "no heartbeat"),
            ],
            width=8,
            colors={"locks held": BLUE, "without expiry": ORANGE, "no heartbeat": RED},
            steps=[(None, GREEN), (10000, ORANGE)],
        ),
    ]


def rescues() -> list[kit.Cell]:
    """What was done."""
    bucket = queue("unstuck_reclaim_delay_seconds_bucket")
    reclaims = increase(queue("unstuck_reclaims_total"))
    return [
        kit.lines(
            "Rescues by what was done",
            "requeued: it runs again. dead_lettered: it was rescued too often. lock_released: only its lock was freed.",
            [(f"sum by (action) ({reclaims})", "{{action}}")],
            bars=True,
            stacked=True,
            colors={"requeued": GREEN, "dead_lettered": RED, "lock_released": BLUE},
            steps=[(None, GREEN), (10, ORANGE)],
        ),
        kit.lines(
            "Rescues by reason",
            "The reason for which they were judged stuck.",
            [(f"sum by (reason) ({reclaims})", "{{reason}}")],
            bars=True,
            stacked=True,
            steps=[(None, GREEN), (10, ORANGE)],
        ),
        kit.lines(
            "Newly stuck",
            "Jobs newly judged stuck, per queue. Many at once: a whole machine went.",
            [(by_queue(increase(queue("unstuck_stuck_detected_total"))), NAMED)],
            width=8,
            bars=True,
            steps=[(None, GREEN), (10, ORANGE)],
        ),
        kit.lines(
            "Delay of rescues",
            "From becoming stuck to being reclaimed. There are points only where something was rescued.",
            [(quantile(q, bucket), f"p{q * 100:g}") for q in (0.5, 0.95)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (60, ORANGE)],
            none="Nothing was rescued",
        ),
        kit.heat(
            "Delays of rescues",
            "How many rescues came how long after the job became stuck.",
            f"sum by (le) ({increase(bucket)})",
            steps=[(None, GREEN), (60, ORANGE)],
            what="rescues",
        ),
    ]


def left_alone() -> list[kit.Cell]:
    """What was stuck and was not moved, and why."""
    return [
        kit.lines(
            "Left alone, by cause",
            "Stuck jobs left alone, counted in every sweep that leaves them. lost_race is normal: somebody was faster.",
            [(f"sum by (cause) ({increase(queue('unstuck_reclaims_skipped_total'))})", "{{cause}}")],
            width=8,
            bars=True,
            stacked=True,
            steps=[(None, GREEN), (100, ORANGE)],
        ),
        kit.lines(
            "Reclaims that failed",
            "Reclaims that raised an error, by its kind.",
            [(f"sum by (kind) ({increase(queue('unstuck_reclaim_failures_total'))})", "{{kind}}")],
            width=8,
            bars=True,
            stacked=True,
            steps=[(None, GREEN), (1, RED)],
        ),
        kit.states(
            "Brake",
            "On: too many jobs of the queue look stuck at once, so the agent doubts itself and holds back.",
            [(by_queue(queue("unstuck_brake_engaged"), "max"), NAMED)],
            mappings=kit.words({0: ("off", GREEN), 1: ("on", RED)}),
            steps=[(None, GREEN), (1, RED)],
            width=8,
        ),
    ]


def ends() -> list[kit.Cell]:
    """Where jobs end that could not be saved, and attempts that were too late."""
    oldest = by_queue(queue("unstuck_dead_letter_oldest_timestamp_seconds"), "min")
    return [
        kit.lines(
            "Dead letters",
            "Jobs in the dead-letter store, per queue.",
            [(by_queue(queue("unstuck_dead_letter_jobs"), "max"), NAMED)],
            width=8,
            stacked=True,
            steps=[(None, GREEN), (100, ORANGE)],
        ),
        kit.lines(
            "Oldest dead letter",
            "For how long the oldest dead letter has waited for a person.",
            [(f"time() - {oldest}", NAMED)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (86400, ORANGE), (7 * 86400, RED)],
            none="No dead letters",
        ),
        kit.lines(
            "Given up, dropped, refused",
            "Given up after the attempt limit; dead letters dropped to make room; writes of attempts that were no longer "
            "current, which the token refused; completions without a lock that came second.",
            [
                (f"sum({increase(queue('unstuck_poison_jobs_total'))})", "given up"),
                (f"sum({increase(queue('unstuck_dead_letters_dropped_total'))})", "dropped"),
                (f"sum({increase(queue('unstuck_fencing_rejections_total'))})", "refused by the token"),
                (f"sum({increase(queue('unstuck_optimistic_conflicts_total'))})", "came second"),
            ],
            width=8,
            bars=True,
            colors={"given up": ORANGE, "dropped": RED, "refused by the token": PURPLE, "came second": GREY},
            steps=[(None, GREEN), (5, ORANGE)],
        ),
    ]
