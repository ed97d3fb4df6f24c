"""The families that tell of the agent and of Redis itself. They stay when the data of the queues is too old."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final

from unstuck.model import ServerSnapshot
from unstuck_exporters.agency import Duty, Role
from unstuck_exporters.exposition import Family, Row, Scene, histogram, labelled, number, row, tallied
from unstuck_exporters.ledger import PacedWhole


def _plain(name: str, text: str, get: Callable[[Scene], float | None], *, source: bool = False) -> Family:
    """A gauge with one sample, or none where there is nothing to say."""

    def rows(scene: Scene) -> Iterable[Row]:
        value = get(scene)
        return () if value is None else (row(name, scene.source if source else "", value),)

    return Family(name, "gauge", text, ("source",) if source else (), rows)


def _duty(name: str, kind: str, text: str, get: Callable[[Duty], float | None]) -> Family:
    def rows(scene: Scene) -> Iterable[Row]:
        for duty in scene.view.agent.duties.values():
            value = get(duty)
            if value is not None:
                yield row(name, labelled(collector=duty.name), value)

    return Family(name, kind, text, ("collector",), rows)


def _server(name: str, kind: str, text: str, get: Callable[[ServerSnapshot], float]) -> Family:
    def rows(scene: Scene) -> Iterable[Row]:
        server = scene.view.agent.server
        if server is not None and scene.view.server_fresh:
            yield row(name, scene.source, get(server))

    return Family(name, kind, text, ("source",), rows)


def _whole(name: str, text: str, get: Callable[[PacedWhole], float | None]) -> Family:
    """A gauge of the interval for all queues together."""

    def value(scene: Scene) -> float | None:
        paced = scene.view.agent.paced
        return get(paced) if paced is not None and scene.view.exports_queues else None

    return _plain(name, text, value, source=True)


def _clock_offset(scene: Scene) -> float | None:
    return scene.view.agent.clock_offset if scene.view.server_fresh else None


def _gate_open(scene: Scene) -> float | None:
    gate = scene.view.agent.gate
    return None if gate is None or not scene.view.exports_queues else gate.open


def _policy(scene: Scene) -> Iterable[Row]:
    server = scene.view.agent.server
    if server is not None and scene.view.server_fresh:
        yield row("unstuck_redis_maxmemory_policy_info", f"{labelled(policy=server.policy)},{scene.source}", 1)


def _transitions(scene: Scene) -> Iterable[Row]:
    yield tallied("unstuck_leader_transitions_total", "", ("event",), scene.view.agent.transitions)


def _commands(scene: Scene) -> Iterable[Row]:
    for operation, data in scene.view.agent.commands.items():
        yield histogram("unstuck_redis_command_duration_seconds", labelled(operation=operation), data)


def _errors(scene: Scene) -> Iterable[Row]:
    yield tallied("unstuck_redis_errors_total", "", ("operation", "kind"), scene.view.agent.redis_errors)


def _gate_closings(scene: Scene) -> Iterable[Row]:
    prefix = scene.source + ","
    yield tallied("unstuck_gate_closed_total", prefix, ("cause",), scene.view.agent.gate_closings)


def _subscribers(scene: Scene) -> Iterable[Row]:
    for channel, count in scene.view.agent.subscribers.items():
        yield row("unstuck_cache_event_subscribers", labelled(channel=channel), count)


def _waiting(scene: Scene) -> Iterable[Row]:
    for receiver, count in scene.view.agent.notifications_waiting.items():
        yield row("unstuck_notification_queue_length", labelled(receiver=receiver), count)


def _deliveries(scene: Scene) -> Iterable[Row]:
    for receiver, data in scene.view.agent.deliveries.items():
        yield histogram("unstuck_notification_duration_seconds", labelled(receiver=receiver), data)


def _dry_run(scene: Scene) -> float | None:
    if not scene.counted[1]:
        return None
    return not any(ledger.reclaims_allowed for ledger in scene.counted[1])


AGENT: Final = (
    Family(
        "unstuck_build_info",
        "gauge",
        "Version of the agent",
        ("version",),
        lambda s: (row("unstuck_build_info", labelled(version=s.view.agent.version), 1),),
    ),
    _plain("unstuck_redis_up", "1 if the last exchange with Redis worked", lambda s: s.view.redis_up, source=True),
    _duty(
        "unstuck_collector_duration_seconds",
        "gauge",
        "Duration of the last pass of a collector",
        lambda d: d.seconds if d.passes else None,
    ),
    _duty(
        "unstuck_collector_success",
        "gauge",
        "1 if the last pass of a collector worked",
        lambda d: d.ok if d.passes else None,
    ),
    _duty(
        "unstuck_collector_last_success_timestamp_seconds",
        "gauge",
        "Unix time of the last successful pass",
        lambda d: d.ok_at,
    ),
    _duty(
        "unstuck_collector_truncated",
        "gauge",
        "1 if the last pass stopped at its key budget, so counts are lower bounds",
        lambda d: d.truncated if d.passes else None,
    ),
    _duty(
        "unstuck_collector_missed_total",
        "counter",
        "Passes that were due and did not start because the one before still ran or the scheduler came late",
        lambda d: d.missed,
    ),
    _plain(
        "unstuck_queues_dropped",
        "Queues not exported because of the series limit",
        lambda s: s.view.queues_dropped,
        source=True,
    ),
    _plain(
        "unstuck_leader",
        "1 if this agent holds the lease that allows it to reclaim",
        lambda s: s.view.agent.role is Role.LEADER,
    ),
    Family(
        "unstuck_leader_transitions_total",
        "counter",
        "Lease acquisitions and losses",
        ("event",),
        _transitions,
    ),
    Family(
        "unstuck_redis_command_duration_seconds",
        "histogram",
        "Time of a Redis exchange seen by the agent",
        ("operation",),
        _commands,
    ),
    Family("unstuck_redis_errors_total", "counter", "Failed Redis exchanges", ("operation", "kind"), _errors),
    _plain(
        "unstuck_config_last_reload_successful",
        "1 if the last configuration load worked",
        lambda s: s.view.agent.config_ok,
    ),
    _plain(
        "unstuck_config_last_reload_success_timestamp_seconds",
        "Unix time of the last good configuration load",
        lambda s: s.view.agent.config_ok_at,
    ),
    _plain("unstuck_clock_offset_seconds", "Agent clock minus Redis TIME", _clock_offset, source=True),
    _plain(
        "unstuck_gate_open",
        "1 while verdicts can be trusted; 0 while Redis or the agent itself was unwell within stuck_after",
        _gate_open,
        source=True,
    ),
    Family(
        "unstuck_gate_closed_total",
        "counter",
        "Times the gate closed, by cause",
        ("source", "cause"),
        _gate_closings,
    ),
    _plain("unstuck_reclaim_dry_run", "1 if reclaiming only reports", _dry_run),
    _server("unstuck_redis_memory_used_bytes", "gauge", "used_memory", lambda s: s.used_memory),
    _server("unstuck_redis_memory_max_bytes", "gauge", "maxmemory, 0 = none", lambda s: s.maxmemory),
    _plain(
        "unstuck_redis_memory_limit_bytes",
        "Limit the agent compares with",
        lambda s: s.view.agent.memory_limit,
        source=True,
    ),
    _server("unstuck_redis_evicted_keys_total", "counter", "evicted_keys", lambda s: s.evicted_keys),
    Family(
        "unstuck_redis_maxmemory_policy_info",
        "gauge",
        "Policy in force",
        ("policy", "source"),
        _policy,
    ),
    _plain(
        "unstuck_poll_memory_penalty_ratio",
        "Multiplier in force, 1 = none",
        lambda s: max((paced.penalty for paced in s.paced[1]), default=None),
        source=True,
    ),
    _whole(
        "unstuck_poll_fleet_interval_seconds", "Interval for all queues as if they were one", attrgetter("interval")
    ),
    _whole("unstuck_poll_fleet_score_ratio", "Load score of all queues as if they were one", attrgetter("score")),
    _whole(
        "unstuck_poll_fleet_pollers", "What polls when nothing is to be done, over all queues", attrgetter("pollers")
    ),
    _server("unstuck_redis_keyspace_hits_total", "counter", "keyspace_hits", lambda s: s.keyspace_hits),
    _server("unstuck_redis_keyspace_misses_total", "counter", "keyspace_misses", lambda s: s.keyspace_misses),
    _whole(
        "unstuck_redis_keyspace_hit_ratio",
        "Share of Redis' key look-ups that found the key, smoothed",
        attrgetter("keyspace_hit_ratio"),
    ),
    Family(
        "unstuck_cache_events_published_total",
        "counter",
        "Invalidation events published",
        ("channel",),
        lambda s: (tallied("unstuck_cache_events_published_total", "", ("channel",), s.view.agent.publications),),
    ),
    Family(
        "unstuck_cache_event_subscribers",
        "gauge",
        "Subscribers that received the last event",
        ("channel",),
        _subscribers,
    ),
    Family(
        "unstuck_notifications_total",
        "counter",
        "Alert webhook deliveries attempted",
        ("receiver",),
        lambda s: (tallied("unstuck_notifications_total", "", ("receiver",), s.view.agent.notifications),),
    ),
    Family(
        "unstuck_notification_failures_total",
        "counter",
        "Alert webhook deliveries failed",
        ("receiver",),
        lambda s: (
            tallied("unstuck_notification_failures_total", "", ("receiver",), s.view.agent.notification_failures),
        ),
    ),
    Family(
        "unstuck_notifications_suppressed_total",
        "counter",
        "Alerts not sent",
        ("receiver", "cause"),
        lambda s: (
            tallied("unstuck_notifications_suppressed_total", "", ("receiver", "cause"), s.view.agent.suppressions),
        ),
    ),
    Family(
        "unstuck_notification_queue_length",
        "gauge",
        "Alerts waiting for delivery",
        ("receiver",),
        _waiting,
    ),
    Family("unstuck_notification_duration_seconds", "histogram", "Webhook time", ("receiver",), _deliveries),
    Family(
        "unstuck_exporter_family_failures_total",
        "counter",
        "Metric families left out of a scrape because they could not be made",
        (),
        lambda s: (f"unstuck_exporter_family_failures_total {number(s.family_failures)}\n",),
    ),
)
