"""Overview: is anything stuck, is it being handled, is it getting better?"""

from __future__ import annotations

from boards import kit
from boards.kit import (
    GREEN,
    GREY,
    LIVE,
    ORANGE,
    OVERVIEW,
    RECLAIMS,
    RED,
    RUNNING,
    WAITING,
    YELLOW,
    agent,
    by_queue,
    increase,
    queue,
    rate,
)


def board() -> kit.Board:
    """Everything at one look, and the way to the rest."""
    board = kit.Board(OVERVIEW, "Overview", "Is anything stuck, is it being handled, is it getting better?")
    board.row("Now", 4, *now())
    board.row("Alerts", 6, alerts())
    board.row("Queues", 8, queues())
    board.row("How it goes on", 8, *course())
    board.row("Memory of Redis", 8, *memory(), collapsed=True)
    return board


def now() -> list[kit.Cell]:
    """The first line of every look."""
    return [
        agents_up(),
        leaders(),
        redis_up(),
        gate(),
        kit.number(
            "Stuck jobs",
            "Jobs that a worker has taken and that show no sign of life any more. A dash: no agent tells.",
            f"sum({queue('unstuck_stuck_jobs')})",
            steps=[(None, GREEN), (1, RED)],
            link=RECLAIMS,
        ),
        kit.number(
            "Oldest waiting",
            "Age of the job that has waited longest, over all queues.",
            f"max({queue('unstuck_queue_latency_seconds')})",
            unit="s",
            steps=[(None, GREEN), (60, YELLOW), (300, RED)],
        ),
        kit.number(
            "Rescues in 1 h",
            "Jobs that were stuck and were moved on within the last hour.",
            f"sum({increase(queue('unstuck_reclaims_total'), '1h')})",
            decimals=0,
            steps=[(None, GREEN), (1, YELLOW), (50, RED)],
            link=RECLAIMS,
        ),
        kit.number(
            "Dead letters",
            "Jobs that were given up and wait for a person.",
            f"sum({queue('unstuck_dead_letter_jobs')})",
            steps=[(None, GREEN), (1, YELLOW), (100, RED)],
            link=RECLAIMS,
        ),
    ]


def agents_up() -> kit.Cell:
    """How many agents Prometheus reaches."""
    return kit.number(
        "Agents",
        "Agents that answer Prometheus. None: nobody watches, and everything else here is silent.",
        f"sum({agent('up')})",
        steps=[(None, RED), (1, GREEN)],
        link=kit.AGENT,
    )


def leaders() -> kit.Cell:
    """How many agents lead."""
    return kit.number(
        "Leaders",
        "Agents that hold the lease which allows them to reclaim. Anything but one is wrong.",
        f"sum({agent('unstuck_leader')})",
        steps=[(None, RED), (1, GREEN), (2, RED)],
        link=kit.AGENT,
    )


def redis_up() -> kit.Cell:
    """Whether any agent reaches Redis."""
    return kit.number(
        "Redis",
        "Whether any agent gets answers from Redis.",
        f"max({agent('unstuck_redis_up')})",
        unit="none",
        mappings=kit.UP,
        steps=[(None, RED), (1, GREEN)],
        link=kit.AGENT,
    )


def gate() -> kit.Cell:
    """Whether verdicts can be trusted."""
    return kit.number(
        "Gate",
        "Open: verdicts can be trusted. Closed: Redis or the agent was unwell within stuck_after, so nothing is judged "
        "or reclaimed. A dash: no agent leads.",
        f"min({agent('unstuck_gate_open')})",
        unit="none",
        mappings=kit.OPEN,
        steps=[(None, ORANGE), (1, GREEN)],
        link=kit.AGENT,
    )


def alerts() -> kit.Cell:
    """Which alerts fire and fired; their number is there even when none does."""
    firing = 'ALERTS{alertname=~"Unstuck.+", alertstate="firing", job=~"$job"}'
    texts: dict[float, tuple[str, str]] = {0: ("none", GREEN), **{n: (f"{n} firing", RED) for n in range(2, 10)}}
    return kit.states(
        "Alerts",
        "The shipped alerts that fire, over time (`unstuck rules` prints them), and how many do. Needs the rules in the same "
        "Prometheus.",
        [(f"count({firing}) or vector(0)", "all"), (f"max by (alertname) ({firing})", "{{alertname}}")],
        mappings=kit.words({**texts, 1: ("firing", RED)}),
        steps=[(None, GREEN), (1, RED)],
        width=kit.COLUMNS,
    )


def queues() -> kit.Cell:
    """A row per queue."""
    return kit.rows_of_queues(
        "Queues",
        "A row per queue; its name leads to its own dashboard. An empty cell: the queue system does not tell.",
        [
            kit.Column(
                "Stuck", by_queue(f"sum without (reason) ({queue('unstuck_stuck_jobs')})", "max"),
                steps=[(None, GREEN), (1, RED)],
            ),
            kit.Column("Suspected", by_queue(queue("unstuck_suspect_jobs"), "max"), steps=[(None, GREEN), (1, YELLOW)]),
            kit.Column(
                "Waiting", by_queue(WAITING, "max"), steps=[(None, GREY), (1000, ORANGE)]
            ),
            kit.Column("Running", by_queue(RUNNING, "max")),
            kit.Column(
                "Oldest waiting", by_queue(queue("unstuck_queue_latency_seconds"), "max"), "s",
                [(None, GREEN), (60, YELLOW), (300, RED)],
            ),
            kit.Column(
                "Workers", by_queue(f"sum without (state) ({LIVE})", "max"), steps=[(None, RED), (1, GREEN)]
            ),
            kit.Column("Finished/s", by_queue(rate(queue("unstuck_jobs_finished_total"))), "ops"),
            kit.Column("Dead", by_queue(queue("unstuck_dead_letter_jobs"), "max"), steps=[(None, GREEN), (1, YELLOW)]),
            kit.Column("Interval", by_queue(queue("unstuck_poll_interval_seconds"), "max"), "s"),
            kit.Column(
                "Mode", by_queue(queue("unstuck_reclaim_enabled"), "max"), "none",
                mappings=kit.words({0: ("observe", GREY), 1: ("reclaim", GREEN)}),
            ),
        ],
        steps=[(None, GREY), (1, GREY)],
    )  # fmt: skip


def course() -> list[kit.Cell]:
    """Whether it is getting better."""
    return [
        kit.lines(
            "Stuck and suspected jobs",
            "Stuck: judged so by evidence. Suspected: the same evidence, not watched for long enough yet. Both should "
            "fall to 0 by themselves where the mode is reclaim.",
            [
                (f"sum({queue('unstuck_stuck_jobs')})", "stuck"),
                (f"sum({queue('unstuck_suspect_jobs')})", "suspected"),
            ],
            colors={"stuck": RED, "suspected": YELLOW},
            steps=[(None, GREEN), (1, RED)],
        ),
        kit.lines(
            "Rescues",
            "Reclaims that took effect, per queue.",
            [(by_queue(increase(queue("unstuck_reclaims_total"))), "{{backend}}/{{queue}}")],
            bars=True,
            steps=[(None, GREEN), (10, ORANGE)],
        ),
        kit.lines(
            "Backlog",
            "Jobs that wait for a worker, per queue.",
            [(by_queue(WAITING, "max"), "{{backend}}/{{queue}}")],
            stacked=True,
            steps=[(None, GREEN), (1000, ORANGE)],
        ),
        kit.lines(
            "Jobs finished",
            "Jobs that ended per second, with any outcome. Nothing while jobs wait: see the queue.",
            [(by_queue(rate(queue("unstuck_jobs_finished_total"))), "{{backend}}/{{queue}}")],
            unit="ops",
            steps=[(None, ORANGE), (0.001, GREEN)],
        ),
    ]


def memory() -> list[kit.Cell]:
    """Also on the agent's dashboard."""
    return [
        kit.lines(
            "Memory",
            "What Redis uses, the limit above which the agent slows the polling, and maxmemory (0 is none).",
            [
                (f"max by (source) ({agent('unstuck_redis_memory_used_bytes')})", "used"),
                (f"max by (source) ({agent('unstuck_redis_memory_limit_bytes')})", "limit of the agent"),
                (f"max by (source) ({agent('unstuck_redis_memory_max_bytes')})", "maxmemory"),
            ],
            unit="bytes",
            dashed=["limit of the agent"],
            colors={"maxmemory": RED},
            steps=[(None, GREEN), (8 * 2**30, ORANGE)],
        ),
        kit.lines(
            "Evicted keys",
            "Keys that Redis threw away for lack of memory. A queue loses jobs and locks by it; verdicts are suspended.",
            [(f"sum by (source) ({rate(agent('unstuck_redis_evicted_keys_total'))})", "{{source}}")],
            unit="ops",
            steps=[(None, GREEN), (0.001, RED)],
            limit=True,
        ),
    ]
