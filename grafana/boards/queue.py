"""Queue: why does this queue not move, and since when?"""

from __future__ import annotations

from boards import kit
from boards.kit import (
    BLUE,
    GREEN,
    GREY,
    LIVE,
    ORANGE,
    PURPLE,
    QUEUE,
    RED,
    RUNNING,
    WAITING,
    YELLOW,
    by_queue,
    increase,
    quantile,
    queue,
    rate,
)

NAMED = "{{backend}}/{{queue}}"


def board() -> kit.Board:
    """One queue, or several side by side."""
    board = kit.Board(QUEUE, "Queue", "Why does this queue not move, and since when?")
    board.row("Now", 4, *now())
    board.row("Jobs", 8, *jobs())
    board.row("Waiting", 8, *waiting())
    board.row("Running", 8, *running())
    board.row("Workers", 8, *workers())
    board.row("Pace", 8, *pace())
    board.row("Caches", 8, *caches(), collapsed=True)
    return board


def now() -> list[kit.Cell]:
    """Numbers."""
    failed, finished = rate(queue("unstuck_jobs_failed_total")), rate(queue("unstuck_jobs_finished_total"))
    return [
        kit.number(
            "Waiting",
            "Jobs that wait for a worker.",
            f"sum({WAITING})",
            steps=[(None, GREEN), (1000, ORANGE)],
        ),
        kit.number(
            "Running",
            "Jobs that workers have taken.",
            f"sum({RUNNING})",
            steps=[(None, GREY), (1, GREEN)],
        ),
        kit.number(
            "Oldest waiting",
            "Age of the job that has waited longest.",
            f"max({queue('unstuck_queue_latency_seconds')})",
            unit="s",
            steps=[(None, GREEN), (60, YELLOW), (300, RED)],
        ),
        kit.number(
            "Empty in",
            "Time until the backlog is gone at the present throughput. A dash: nothing is completed at present.",
            f"max({queue('unstuck_queue_drain_seconds')})",
            unit="s",
            steps=[(None, GREEN), (600, YELLOW), (3600, RED)],
        ),
        kit.number(
            "Workers",
            "Workers that live, busy or idle.",
            f"sum({LIVE})",
            steps=[(None, RED), (1, GREEN)],
        ),
        kit.number(
            "Stuck",
            "Jobs judged stuck.",
            f"sum({queue('unstuck_stuck_jobs')})",
            steps=[(None, GREEN), (1, RED)],
            link=kit.RECLAIMS,
        ),
        kit.number(
            "Failures",
            "Share of the jobs that ended in failure, of those that ended.",
            f"sum({failed}) / (sum({finished}) > 0)",
            unit="percentunit",
            steps=[(None, GREEN), (0.05, YELLOW), (0.2, RED)],
        ),
        kit.number(
            "Paused",
            "Queues that somebody has paused: nothing is taken from them.",
            f"sum({queue('unstuck_queue_paused')})",
            steps=[(None, GREEN), (1, ORANGE)],
        ),
    ]


def jobs() -> list[kit.Cell]:
    """Where the jobs are, and how they flow."""

    def flow(name: str) -> str:
        return f"sum({rate(queue(name))})"

    return [
        kit.lines(
            "Jobs by state",
            "Where the jobs are. Waiting that grows while running stays: too few workers. Running that stays while "
            "nothing ends: see Stuck.",
            [(f"sum by (state) ({queue('unstuck_queue_jobs')})", "{{state}}")],
            stacked=True,
            colors={
                "waiting": BLUE,
                "running": GREEN,
                "scheduled": PURPLE,
                "dead": RED,
                "failed": ORANGE,
                "quarantined": YELLOW,
            },
            steps=[(None, GREEN), (1000, ORANGE)],
        ),
        kit.lines(
            "Flow",
            "Jobs per second that come in, are started, end, end in failure, and are tried again.",
            [
                (flow("unstuck_jobs_enqueued_total"), "in"),
                (flow("unstuck_jobs_started_total"), "started"),
                (flow("unstuck_jobs_finished_total"), "ended"),
                (flow("unstuck_jobs_failed_total"), "ended in failure"),
                (flow("unstuck_job_retries_total"), "tried again"),
            ],
            unit="ops",
            colors={"in": BLUE, "started": GREY, "ended": GREEN, "ended in failure": RED, "tried again": ORANGE},
            steps=[(None, ORANGE), (0.001, GREEN)],
        ),
    ]


def waiting() -> list[kit.Cell]:
    """How long jobs wait."""
    bucket = queue("unstuck_job_queue_wait_seconds_bucket")
    return [
        kit.lines(
            "Oldest waiting job",
            "Age of the oldest waiting job; the lines are where it becomes a nuisance and where the alert fires.",
            [(by_queue(queue("unstuck_queue_latency_seconds"), "max"), NAMED)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (60, YELLOW), (300, RED)],
            limit=True,
        ),
        kit.lines(
            "Wait until started",
            "From enqueueing (or the due time) to the start, of the jobs that were started.",
            [(quantile(q, bucket), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (30, ORANGE)],
        ),
        kit.heat(
            "Waits",
            "How many jobs were started after which wait.",
            f"sum by (le) ({increase(bucket)})",
            steps=[(None, GREEN), (30, ORANGE)],
        ),
    ]


def running() -> list[kit.Cell]:
    """How long jobs run."""
    bucket = queue("unstuck_job_duration_seconds_bucket")
    oldest = by_queue(queue("unstuck_queue_oldest_running_timestamp_seconds"), "min")
    return [
        kit.lines(
            "Longest running job",
            "For how long the longest-running job has been running. A line that climbs without end is a job that hangs "
            "although its worker lives: only a deadline can tell.",
            [(f"time() - {oldest}", NAMED)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (600, YELLOW), (3600, RED)],
            none="Nothing runs",
        ),
        kit.lines(
            "Run time",
            "Run time of attempts that ended.",
            [(quantile(q, bucket), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (600, ORANGE)],
        ),
        kit.heat(
            "Run times",
            "How many attempts took how long.",
            f"sum by (le) ({increase(bucket)})",
            steps=[(None, GREEN), (600, ORANGE)],
        ),
    ]


def workers() -> list[kit.Cell]:
    """Who works here, and what is wrong."""
    return [
        kit.lines(
            "Workers by state",
            "Workers that listen on the queue. Lost: stopped beating and not forgotten yet.",
            [(f"sum by (state) ({queue('unstuck_queue_workers')})", "{{state}}")],
            width=8,
            stacked=True,
            colors={"busy": GREEN, "idle": BLUE, "lost": RED},
            steps=[(None, RED), (1, GREEN)],
        ),
        kit.lines(
            "Findings",
            "What is wrong with the queue besides stuck jobs, by kind; docs/findings.md explains each.",
            [(f"sum by (kind) ({queue('unstuck_queue_findings')})", "{{kind}}")],
            width=8,
            stacked=True,
            none="Nothing is wrong",
            steps=[(None, GREEN), (1, ORANGE)],
        ),
        kit.states(
            "Reading and reclaiming",
            "Whether the last look could read the queue, and whether stuck jobs are moved (the mode is reclaim and the "
            "queue's layout allows it).",
            [
                (by_queue(queue("unstuck_queue_readable"), "min"), f"read {NAMED}"),
                (by_queue(queue("unstuck_reclaim_enabled"), "min"), f"reclaim {NAMED}"),
            ],
            mappings=kit.words({0: ("no", ORANGE), 1: ("yes", GREEN)}),
            steps=[(None, ORANGE), (1, GREEN)],
            width=8,
        ),
    ]


def pace() -> list[kit.Cell]:
    """How fast workers poll here; more on the dashboard of its own."""
    return [
        kit.lines(
            "Start delay",
            "The average start delay that the interval follows; the line is the default of pacing.delay_threshold.",
            [(by_queue(queue("unstuck_queue_delay_average_seconds"), "max"), NAMED)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (10, ORANGE)],
            limit=True,
        ),
        kit.lines(
            "Polling interval",
            "What is published to the workers, and what they apply.",
            [
                (by_queue(queue("unstuck_poll_interval_seconds"), "max"), f"published {NAMED}"),
                (by_queue(queue("unstuck_poll_applied_interval_seconds"), "max"), f"applied {NAMED}"),
            ],
            width=8,
            unit="s",
            steps=[(None, GREEN), (10, ORANGE)],
        ),
        kit.lines(
            "Load score",
            "What lengthens the interval: 0 leaves it at its base, 1 doubles it.",
            [(by_queue(queue("unstuck_poll_score_ratio"), "max"), NAMED)],
            width=8,
            unit="percentunit",
            most=1,
            steps=[(None, GREEN), (0.8, ORANGE)],
        ),
    ]


def caches() -> list[kit.Cell]:
    """What the workers' caches did."""

    def flow(name: str) -> str:
        return f"sum({rate(queue(name))})"

    return [
        kit.lines(
            "Cache reads",
            "Reads of the per-job and batch caches: answered, nothing there, or an entry with an old stamp.",
            [
                (flow("unstuck_cache_hits_total"), "hit"),
                (flow("unstuck_cache_misses_total"), "missed"),
                (flow("unstuck_cache_stale_total"), "stale"),
            ],
            width=8,
            unit="ops",
            stacked=True,
            colors={"hit": GREEN, "missed": GREY, "stale": ORANGE},
            steps=[(None, GREEN), (1000, ORANGE)],
        ),
        kit.lines(
            "Invalidations",
            "Entries that were invalidated, by cause.",
            [(f"sum by (cause) ({rate(queue('unstuck_cache_invalidations_total'))})", "{{cause}}")],
            width=8,
            unit="ops",
            stacked=True,
            steps=[(None, GREEN), (1000, ORANGE)],
        ),
        kit.lines(
            "Invalidations without effect",
            "Invalidations that failed, and events that nobody listened to.",
            [
                (f"{flow('unstuck_cache_invalidation_failures_total')} or vector(0)", "failed"),
                (flow("unstuck_cache_events_unheard_total"), "unheard"),
            ],
            width=8,
            unit="ops",
            colors={"failed": RED, "unheard": GREY},
            steps=[(None, GREEN), (0.001, ORANGE)],
        ),
    ]
