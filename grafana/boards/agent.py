"""Agent & Redis: do the agents work, and is Redis well?"""

from __future__ import annotations

from boards import kit, overview
from boards.kit import AGENT, BLUE, GREEN, GREY, ORANGE, RED, YELLOW, agent, increase, quantile, rate


def board() -> kit.Board:
    """The machinery itself."""
    board = kit.Board(AGENT, "Agent & Redis", "Do the agents work, who leads, and is Redis well?")
    board.row("Now", 4, *now())
    board.row("Leader and gate", 7, *leader())
    board.row("Duties", 8, *duties())
    board.row("Redis as the agents see it", 8, *redis())
    board.row("Memory of Redis", 8, *overview.memory(), *keys())
    board.row("What goes out", 8, *out())
    return board


def now() -> list[kit.Cell]:
    """Numbers."""
    return [
        overview.agents_up(),
        overview.leaders(),
        overview.redis_up(),
        overview.gate(),
        kit.number(
            "Clock",
            "Clock of the agent minus that of Redis, the larger way off. Ages here are wrong by as much; verdicts are not.",
            f"max(abs({agent('unstuck_clock_offset_seconds')}))",
            unit="s",
            steps=[(None, GREEN), (1, YELLOW), (2, RED)],
        ),
        kit.number(
            "Configuration",
            "Whether the last configuration of every agent was taken.",
            f"min({agent('unstuck_config_last_reload_successful')})",
            unit="none",
            mappings=kit.words({0: ("refused", RED), 1: ("in force", GREEN)}),
            steps=[(None, RED), (1, GREEN)],
        ),
        kit.number(
            "Not exported",
            "Queues beyond the limit of series, and metric families that could not be made in the last hour.",
            f"sum({agent('unstuck_queues_dropped')}) "
            f"+ sum({increase(agent('unstuck_exporter_family_failures_total'), '1h')})",
            decimals=0,
            steps=[(None, GREEN), (1, ORANGE)],
        ),
        kit.number(
            "Version",
            "Versions of the agents that run.",
            f"count by (version) ({agent('unstuck_build_info')})",
            legend="{{version}}",
            unit="none",
            name=True,
            steps=[(None, GREEN), (10, GREY)],
        ),
    ]


def leader() -> list[kit.Cell]:
    """Who leads, and whether it may judge."""
    return [
        kit.states(
            "Who leads",
            "One agent leads; the others stand by and take over when its lease runs out.",
            [(f"max by (instance) ({agent('unstuck_leader')})", "{{instance}}")],
            mappings=kit.words({0: ("stands by", BLUE), 1: ("leads", GREEN)}),
            steps=[(None, BLUE), (1, GREEN)],
        ),
        kit.states(
            "Gate over time",
            "Closed: Redis or the agent was unwell within stuck_after, so every verdict is inconclusive.",
            [(f"max by (source) ({agent('unstuck_gate_open')})", "{{source}}")],
            mappings=kit.OPEN,
            steps=[(None, ORANGE), (1, GREEN)],
        ),
        kit.lines(
            "Changes of the lead",
            "Leases acquired, lost, released and taken by a younger leader.",
            [(f"sum by (event) ({increase(agent('unstuck_leader_transitions_total'))})", "{{event}}")],
            bars=True,
            stacked=True,
            steps=[(None, GREEN), (4, ORANGE)],
        ),
        kit.lines(
            "Why the gate closed",
            "Times the gate closed, by cause. watching: the agent is new and has not seen a full window yet.",
            [(f"sum by (cause) ({increase(agent('unstuck_gate_closed_total'))}) > 0", "{{cause}}")],
            bars=True,
            stacked=True,
            steps=[(None, GREEN), (1, ORANGE)],
            none="The gate did not close",
        ),
    ]


def duties() -> list[kit.Cell]:
    """What the agents do all the time."""
    done = agent("unstuck_collector_last_success_timestamp_seconds")
    return [
        kit.lines(
            "Duration of the last pass",
            "Per duty. sweep looks at all queues, audit reads all keys at one percent of Redis' time.",
            [(f"max by (collector) ({agent('unstuck_collector_duration_seconds')})", "{{collector}}")],
            unit="s",
            steps=[(None, GREEN), (60, ORANGE)],
        ),
        kit.lines(
            "Since the last success",
            "Per duty, of the agent that is furthest behind; the line is where the alert fires (audit is allowed more).",
            [(f"time() - min by (collector) ({done})", "{{collector}}")],
            unit="s",
            steps=[(None, GREEN), (120, ORANGE)],
            limit=True,
        ),
        kit.states(
            "Success of the last pass",
            "Per duty, over all agents: one that fails is enough to show.",
            [(f"min by (collector) ({agent('unstuck_collector_success')})", "{{collector}}")],
            mappings=kit.words({0: ("failed", RED), 1: ("well", GREEN)}),
            steps=[(None, RED), (1, GREEN)],
        ),
        kit.lines(
            "Passes missed or cut short",
            "Missed: due and not started, because the one before still ran or the agent had no time. Cut short: the "
            "last pass stopped at its budget, so counts are lower bounds.",
            [
                (f"sum by (collector) ({increase(agent('unstuck_collector_missed_total'))})", "missed {{collector}}"),
                (f"sum({agent('unstuck_collector_truncated')})", "cut short"),
            ],
            steps=[(None, GREEN), (10, ORANGE)],
        ),
    ]


def redis() -> list[kit.Cell]:
    """Exchanges with Redis."""
    bucket = agent("unstuck_redis_command_duration_seconds_bucket")
    count = agent("unstuck_redis_command_duration_seconds_count")
    errors = f"sum by (operation, kind) ({increase(agent('unstuck_redis_errors_total'))})"
    return [
        kit.lines(
            "Time of an exchange, p95",
            "By operation, as the agent sees it: the network and Redis together.",
            [(quantile(0.95, bucket, "operation"), "{{operation}}")],
            width=8,
            unit="s",
            steps=[(None, GREEN), (0.1, YELLOW), (1, RED)],
        ),
        kit.lines(
            "Exchanges",
            "Per second, by operation.",
            [(f"sum by (operation) ({rate(count)})", "{{operation}}")],
            width=8,
            unit="ops",
            stacked=True,
            steps=[(None, ORANGE), (0.001, GREEN)],
        ),
        kit.lines(
            "Failed exchanges",
            "By operation and kind of error.",
            [(errors, "{{operation}}: {{kind}}")],
            width=8,
            bars=True,
            stacked=True,
            none="No exchange failed",
            steps=[(None, GREEN), (1, RED)],
        ),
    ]


def keys() -> list[kit.Cell]:
    """What Redis tells of its keys."""
    hits, misses = (rate(agent(f"unstuck_redis_keyspace_{which}_total")) for which in ("hits", "misses"))
    return [
        kit.lines(
            "Key look-ups that hit",
            "Share of all look-ups of Redis that found the key. Workers that poll an empty queue lower it.",
            [(f"sum({hits}) / (sum({hits}) + sum({misses}) > 0)", "hit")],
            unit="percentunit",
            most=1,
            steps=[(None, GREEN), (1, GREEN)],
        ),
        kit.states(
            "maxmemory-policy",
            "The policy in force. Anything but noeviction may throw away jobs and locks.",
            [(f"max by (policy, source) ({agent('unstuck_redis_maxmemory_policy_info')})", "{{source}}: {{policy}}")],
            mappings=kit.words({1: ("in force", BLUE)}),
            steps=[(None, BLUE), (2, ORANGE)],
        ),
    ]


def out() -> list[kit.Cell]:
    """Notifications and events."""

    def told(name: str, by: str) -> str:
        return f"sum by ({by}) ({increase(agent(name))})"

    bucket = agent("unstuck_notification_duration_seconds_bucket")
    return [
        kit.lines(
            "Notifications",
            "Deliveries to the webhooks: attempted, failed, and held back. 0 where no webhook is configured.",
            [
                (f"sum({increase(agent('unstuck_notifications_total'))}) or vector(0)", "attempted"),
                (f"sum({increase(agent('unstuck_notification_failures_total'))}) or vector(0)", "failed"),
                (f"sum({increase(agent('unstuck_notifications_suppressed_total'))}) or vector(0)", "held back"),
                (f"sum({agent('unstuck_notification_queue_length')}) or vector(0)", "waiting"),
            ],
            width=8,
            colors={"attempted": GREEN, "failed": RED, "held back": GREY, "waiting": BLUE},
            steps=[(None, GREEN), (100, ORANGE)],
        ),
        kit.lines(
            "Time of a delivery, p95",
            "How long receivers take to answer. 0 where no webhook is configured.",
            [(f"({quantile(0.95, bucket)}) or vector(0)", "p95")],
            width=8,
            unit="s",
            steps=[(None, GREEN), (5, ORANGE)],
        ),
        kit.lines(
            "Invalidation events",
            "Events published, and who heard the last one.",
            [
                (told("unstuck_cache_events_published_total", "channel"), "published: {{channel}}"),
                (f"max by (channel) ({agent('unstuck_cache_event_subscribers')})", "subscribers: {{channel}}"),
            ],
            width=8,
            steps=[(None, GREEN), (10000, ORANGE)],
        ),
    ]
