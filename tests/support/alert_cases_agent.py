"""The stories of the alerts about agents and Redis."""

from collections.abc import Mapping

from support.alert_story import AGENT, JOB, ONE, REDIS, SOURCE, Case, Told, always, counted, duty, trouble

AGENT_CASES: Mapping[str, Case] = {
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
}
