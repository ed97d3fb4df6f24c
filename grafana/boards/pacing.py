"""Pacing: how fast do workers poll, what drives it, and where should the thresholds be?"""

from __future__ import annotations

from boards import kit
from boards.kit import BLUE, GREEN, GREY, ORANGE, PACING, RED, WAITING, YELLOW, agent, by_queue, increase, queue

NAMED = "{{backend}}/{{queue}}"
POLLS = f"{queue('unstuck_poll_pollers')} / ({queue('unstuck_poll_applied_interval_seconds')} > 0)"


def board() -> kit.Board:
    """From what drives the interval to what comes of it."""
    board = kit.Board(PACING, "Pacing", "How fast do workers poll, what drives it, and where should the thresholds be?")
    board.row("Now", 4, *now())
    board.row("What drives it", 8, *causes())
    board.row("The score", 8, *score())
    board.row("What comes of it", 8, *effect())
    board.row("Does it help?", 8, *help_())
    board.row("Publishing", 8, *publishing())
    return board


def now() -> list[kit.Cell]:
    """Numbers."""
    share = f"{WAITING} / ignoring (state) ({queue('unstuck_queue_backlog_threshold')} > 0)"
    return [
        kit.number(
            "Longest interval",
            "The longest interval that is published.",
            f"max({queue('unstuck_poll_interval_seconds')})",
            unit="s",
            steps=[(None, GREEN), (5, YELLOW), (10, ORANGE)],
        ),
        kit.number(
            "Highest score",
            "0 leaves the interval at its base, 1 doubles it.",
            f"max({queue('unstuck_poll_score_ratio')})",
            unit="percentunit",
            steps=[(None, GREEN), (0.8, ORANGE)],
        ),
        kit.number(
            "Polls, at most",
            "Polls per second if every slot of every live worker were idle: what polling can cost Redis at most.",
            f"sum({POLLS})",
            unit="ops",
            steps=[(None, GREEN), (100, YELLOW), (1000, RED)],
        ),
        kit.number(
            "Longest delay",
            "The highest average start delay.",
            f"max({queue('unstuck_queue_delay_average_seconds')})",
            unit="s",
            steps=[(None, GREEN), (10, ORANGE)],
        ),
        kit.number(
            "Backlog",
            "The fullest queue's backlog as a share of its pacing.backlog_threshold.",
            f"max({share})",
            unit="percentunit",
            steps=[(None, GREEN), (0.8, YELLOW), (1, ORANGE)],
        ),
        kit.number(
            "Memory",
            "Memory of Redis as a share of the limit (pacing.cache_limit).",
            f"max({queue('unstuck_poll_memory_ratio')})",
            unit="percentunit",
            steps=[(None, GREEN), (0.8, YELLOW), (1, ORANGE)],
        ),
        kit.number(
            "Penalty",
            "Factor on every interval while memory is above its limit; 1 is none.",
            f"max({agent('unstuck_poll_memory_penalty_ratio')})",
            unit="none",
            steps=[(None, GREEN), (1.01, ORANGE)],
        ),
        kit.number(
            "On their own",
            "Live workers that do not use the published interval: it is missing, old, unreadable or out of bounds.",
            f"sum({queue('unstuck_poll_workers_on_own_base')})",
            steps=[(None, GREEN), (1, ORANGE)],
        ),
    ]


def causes() -> list[kit.Cell]:
    """Delay, backlog, memory."""
    return [
        kit.lines(
            "Start delay",
            "Average start delay per queue. At pacing.delay_threshold (the line is its default) it alone doubles the interval.",
            [(by_queue(queue("unstuck_queue_delay_average_seconds"), "max"), NAMED)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (10, ORANGE)],
            limit=True,
        ),
        kit.lines(
            "Backlog and its threshold",
            "Waiting jobs per queue. At pacing.backlog_threshold they alone double the interval.",
            [
                (by_queue(WAITING, "max"), NAMED),
                (f"min({queue('unstuck_queue_backlog_threshold')})", "lowest threshold"),
            ],
            width=8,
            dashed=["lowest threshold"],
            steps=[(None, GREEN), (1000, ORANGE)],
        ),
        kit.lines(
            "Memory of Redis",
            "As a share of the limit; above it every interval is multiplied by pacing.cache_penalty_factor.",
            [(f"max({queue('unstuck_poll_memory_ratio')})", "used")],
            width=8,
            unit="percentunit",
            steps=[(None, GREEN), (1, ORANGE)],
            limit=True,
        ),
    ]


def score() -> list[kit.Cell]:
    """What the causes add up to."""
    return [
        kit.lines(
            "Load score",
            "The parts of delay and backlog together, between 0 and 1. Always 1: the thresholds are too low, or workers too few.",
            [(by_queue(queue("unstuck_poll_score_ratio"), "max"), NAMED)],
            width=8,
            unit="percentunit",
            most=1,
            steps=[(None, GREEN), (0.8, ORANGE)],
        ),
        kit.lines(
            "Part of the delay",
            "Before the clamp, so above 100 % it says by how much the threshold is exceeded.",
            [(by_queue(queue("unstuck_poll_delay_score_ratio"), "max"), NAMED)],
            width=8,
            unit="percentunit",
            steps=[(None, GREEN), (1, ORANGE)],
            limit=True,
        ),
        kit.lines(
            "Part of the backlog",
            "Before the clamp, so above 100 % it says by how much the threshold is exceeded.",
            [(by_queue(queue("unstuck_poll_backlog_score_ratio"), "max"), NAMED)],
            width=8,
            unit="percentunit",
            steps=[(None, GREEN), (1, ORANGE)],
            limit=True,
        ),
    ]


def effect() -> list[kit.Cell]:
    """Intervals and polls."""
    return [
        kit.lines(
            "Polling interval",
            "What is published, what the workers apply (the mean, and the longest), and the configured base.",
            [
                (by_queue(queue("unstuck_poll_interval_seconds"), "max"), f"published {NAMED}"),
                (by_queue(queue("unstuck_poll_applied_interval_seconds"), "max"), f"applied {NAMED}"),
                (f"max({queue('unstuck_poll_applied_interval_max_seconds')})", "longest applied"),
                (f"min({queue('unstuck_poll_interval_base_seconds')})", "lowest base"),
            ],
            unit="s",
            dashed=["lowest base"],
            colors={"longest applied": GREY},
            steps=[(None, GREEN), (10, ORANGE)],
        ),
        kit.lines(
            "Polls per second, at most",
            "If every slot of every live worker were idle: slots divided by the applied interval.",
            [(by_queue(POLLS), NAMED)],
            unit="ops",
            stacked=True,
            steps=[(None, GREEN), (1000, ORANGE)],
        ),
        kit.lines(
            "One interval for all",
            "What policy fleet would publish (or does), as if all queues were one.",
            [(f"max by (source) ({agent('unstuck_poll_fleet_interval_seconds')})", "{{source}}")],
            width=8,
            unit="s",
            steps=[(None, GREEN), (10, ORANGE)],
        ),
        kit.lines(
            "Score of all",
            "The load score as if all queues were one.",
            [(f"max by (source) ({agent('unstuck_poll_fleet_score_ratio')})", "{{source}}")],
            width=8,
            unit="percentunit",
            most=1,
            steps=[(None, GREEN), (0.8, ORANGE)],
        ),
        kit.lines(
            "Who polls",
            "Slots of live workers, over all queues, and workers that keep to an interval of their own.",
            [
                (f"max({agent('unstuck_poll_fleet_pollers')})", "slots"),
                (f"sum({queue('unstuck_poll_workers_on_own_base')})", "workers on their own"),
            ],
            width=8,
            colors={"slots": BLUE, "workers on their own": ORANGE},
            steps=[(None, GREEN), (10000, ORANGE)],
        ),
    ]


def help_() -> list[kit.Cell]:
    """Whether the queue drains."""
    return [
        kit.lines(
            "Growth",
            "Jobs enqueued per job completed, smoothed: above 1 the backlog grows whatever the interval is.",
            [(by_queue(queue("unstuck_queue_growth_ratio"), "max"), NAMED)],
            width=8,
            unit="none",
            steps=[(None, GREEN), (1, ORANGE)],
            limit=True,
        ),
        kit.lines(
            "Throughput",
            "Jobs completed per second, smoothed. If it falls when the interval grows, the interval is too long.",
            [(by_queue(queue("unstuck_queue_throughput"), "max"), NAMED)],
            width=8,
            unit="ops",
            steps=[(None, ORANGE), (0.001, GREEN)],
        ),
        kit.lines(
            "Empty in",
            "Time until the backlog is gone at the present throughput; nothing while nothing is completed.",
            [(by_queue(queue("unstuck_queue_drain_seconds"), "max"), NAMED)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (600, YELLOW), (3600, RED)],
        ),
    ]


def publishing() -> list[kit.Cell]:
    """Whether workers can know it."""
    at = by_queue(queue("unstuck_poll_published_timestamp_seconds"), "min")
    return [
        kit.lines(
            "Age of the publication",
            "Since the interval was last published. After 15 s it lapses and workers go back to their own base.",
            [(f"time() - {at}", NAMED)],
            width=8,
            unit="s",
            steps=[(None, GREEN), (15, ORANGE)],
            limit=True,
        ),
        kit.lines(
            "Publications refused",
            "By the kind of error.",
            [(f"sum by (kind) ({increase(queue('unstuck_poll_publish_failures_total'))})", "{{kind}}")],
            width=8,
            bars=True,
            steps=[(None, GREEN), (1, RED)],
        ),
        kit.lines(
            "Resets to the base",
            "By cause. drained: the queue became empty; no_data: nothing was known of it.",
            [(f"sum by (cause) ({increase(queue('unstuck_poll_resets_total'))})", "{{cause}}")],
            width=8,
            bars=True,
            steps=[(None, GREEN), (10, ORANGE)],
        ),
    ]
