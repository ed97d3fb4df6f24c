"""Boards as an agent would leave them, for tests of the exporters."""

from dataclasses import replace

from unstuck.clock import ManualClock
from unstuck.model import (
    Action,
    Capability,
    GateState,
    Lease,
    Mode,
    Pollers,
    QueueSnapshot,
    Reason,
    Reclaimed,
    ServerSnapshot,
    SideFinding,
    Standing,
    Totals,
    Verdict,
)
from unstuck_exporters.board import Board, Brake, Paced, PacedWhole


def verdict(
    job: str = "j1", *, queue: str = "mail", standing: Standing = Standing.STUCK, unchanged: float = 40.0
) -> Verdict:
    """A verdict on one job."""
    lease = Lease(job, worker="host:1:aaaaaaaa", token=f"1.{job}", threshold=30.0)
    reason = Reason.WORKER_DEAD if standing is Standing.STUCK else None
    return Verdict("unstuck", queue, lease, standing, reason, unchanged=unchanged, detail=f"{job} does not move")


def snapshot(queue: str = "mail", *, server_ms: int = 1_700_000_000_000) -> QueueSnapshot:
    """A queue of our own protocol that tells all there is to tell."""
    buckets = {"50": 1, "1000": 2, "inf": 1}
    return QueueSnapshot(
        "unstuck",
        queue,
        Capability.RECLAIM,
        server_ms=server_ms,
        waiting=3,
        scheduled=2,
        running=4,
        prefetched=1,
        dead=5,
        failed=0,
        quarantined=1,
        oldest_waiting=12.5,
        oldest_running=90.0,
        oldest_dead_ms=server_ms - 60_000,
        workers={"busy": 1, "idle": 2, "lost": 1},
        locks_held=4,
        locks_without_expiry=0,
        soonest_lock_expiry_ms=server_ms + 5_000,
        oldest_heartbeat_ms=server_ms - 40_000,
        heartbeats_missing=1,
        heartbeat_buckets={"1": 0, "2.5": 1, "5": 1, "10": 1, "15": 1, "30": 2, "60": 3, "120": 3, "300": 3, "900": 3},
        totals=Totals(20, 15, 10, 4, 2, 1, 4_000, 9_000, 7, 3, 1, 1, 0, delay_buckets=buckets, run_buckets=buckets),
        pollers=Pollers(12, 0.2, 0.25, 0.4, 1, 3),
        side_findings=(SideFinding("no_worker", "3 jobs wait and no worker is alive", count=3),),
    )


def server(clock: ManualClock) -> ServerSnapshot:
    """Redis in good health."""
    return ServerSnapshot("r", "p", "master", "7.0.15", int(clock.wall() * 1000), 5_000.0, used_memory=1_000_000)


def full_board(clock: ManualClock) -> Board:
    """A board on which every family has something to say."""
    board = Board(version="1.2.3", clock=clock)
    board.configuration_loaded(ok=True)
    board.expects("sweep", 10.0)
    board.leads(7)
    board.configured("unstuck", "mail", mode=Mode.RECLAIM, backlog_threshold=1000)
    board.redis_answered("look", 0.002)
    board.redis_failed("reclaim", "timeout", 1.0, "Redis did not answer in time")
    board.redis_answered("look", 0.003)
    board.saw_server(server(clock), clock_offset=0.01)
    board.memory_limit(750_000)
    board.gated(GateState(open=False, reasons=("watching",), opens_in=3.0))
    board.gated(GateState(open=True))
    board.looked("unstuck", [snapshot()])
    board.judged("unstuck", "mail", [verdict("j1"), verdict("j2", standing=Standing.SUSPECT, unchanged=9.0)])
    board.reclaimed("unstuck", "mail", Reason.WORKER_DEAD, Reclaimed("j1", Action.REQUEUED), delay=2.2)
    board.reclaim_failed("unstuck", "mail", "oom")
    board.braked("unstuck", "mail", Brake(engaged=True, condemned=12, in_flight=20, detail="12 of 20 look stuck"))
    told = Paced(0.4, 0.2, 1.0, 0.9, 0.3, penalty=2.0, average_delay=9.0, growth=1.5, drain=12.0, throughput=4.0)
    board.paced("unstuck", "mail", replace(told, memory_share=0.5, cache_hit_ratio=0.9))
    board.paced_whole(PacedWhole(0.3, 0.5, 120, "backlog", keyspace_hit_ratio=0.8))
    board.pacing_failed("unstuck", "mail", "oom")
    board.pacing_reset("unstuck", "mail", "drained")
    board.invalidated("unstuck", "mail", "requeue")
    board.published("invalidate", 2)
    board.notified("pager", 0.2, ok=False)
    board.notification_suppressed("pager", "permanent")
    board.notifications_waiting("pager", 0)
    board.swept()
    board.passed("sweep", 0.004)
    return board
