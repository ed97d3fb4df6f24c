"""Boards with many queues, with hostile names, and with a story to tell: for the status page and for `top`."""

import time

from unstuck.clock import Clock, ManualClock
from unstuck.model import (
    Capability,
    Event,
    GateState,
    Lease,
    Mode,
    Pacing,
    Presence,
    QueueSnapshot,
    Reason,
    ServerSnapshot,
    SideFinding,
    Standing,
    Verdict,
)
from unstuck_exporters.board import Board, Brake, Promises

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202egnp.\x1b[31m"


def queue(name: str, backend: str = "unstuck", **counts: object) -> QueueSnapshot:
    """A queue that is well."""
    told: dict[str, object] = {
        "waiting": 3, "running": 2, "oldest_waiting": 1.4, "oldest_running": 4.0, "workers": {"busy": 2, "idle": 1},
        "pacing": Pacing(0.21, 0.2, 0.05, 0.05, "base", 1, 1, 0),
    }  # fmt: skip
    return QueueSnapshot(backend, name, Capability.RECLAIM, **{**told, **counts})  # type: ignore[arg-type]


def stuck(job: str, queue: str, backend: str = "unstuck", **more: object) -> Verdict:
    """A verdict on a job that is stuck."""
    lease = Lease(
        job, worker="web-3:4711:a1b2c3d4", token=f"1.{job}", beat_interval=5.0, connection=Presence.ABSENT,
        evidence={"connection_gone_seconds": 3.1, "rescues": 0},
    )  # fmt: skip
    told: dict[str, object] = {
        "standing": Standing.STUCK, "reason": Reason.WORKER_GONE, "unchanged": 3.4, "since": 0.4,
        "detail": "the worker's connection has been gone for 3.1 s",
    }  # fmt: skip
    return Verdict(backend, queue, **{"lease": lease, **told, **more})  # type: ignore[arg-type]


def suspect(job: str, queue: str, backend: str = "unstuck", **more: object) -> Verdict:
    """A verdict on a job that is suspected."""
    told = {"standing": Standing.SUSPECT, "reason": Reason.LOCK_WITHOUT_HEARTBEAT, "unchanged": 17.0, "since": 0.0}
    return stuck(job, queue, backend, **{**told, "detail": "no heartbeat for 17 s of 30 s", **more})


def living_board(clock: Clock | None = None, queues: int = 0) -> Board:
    """A board of an agent that leads, under an open gate, with this many queues that are well.

    Without a clock its time stands still at the present: what is on it stays fresh, however slow the machine is.
    """
    clock = clock or ManualClock(time.time())
    board = Board(version="1.2.3", clock=clock)
    board.expects("sweep", 60.0)
    board.leads(7)
    breathe(board, clock)
    board.gated(GateState(open=True))
    fill(board, queues)
    board.swept()
    board.passed("sweep", 0.004)
    return board


def breathe(board: Board, clock: Clock) -> None:
    """Redis answers and tells of itself."""
    board.redis_answered("look", 0.001)
    version = ServerSnapshot("r", "p", "master", "7.0.15", int(clock.wall() * 1000), 5_000.0, used_memory=3_200_000)
    board.saw_server(version)


def fill(board: Board, queues: int) -> None:
    """Look at this many queues that are well, each a little different."""
    looks = [queue(f"queue-{i:03d}", waiting=i % 37, running=i % 5) for i in range(queues)]
    board.looked("unstuck", looks)


def configure(board: Board, name: str, backend: str = "unstuck", mode: Mode = Mode.RECLAIM) -> None:
    """The queue is one that may be reclaimed."""
    board.configured(backend, name, mode=mode, promises=Promises())


def hostile_board() -> Board:
    """A board on which every text that can come from Redis is an attack."""
    board = living_board()
    look = queue(EVIL, "rq", error="", side_findings=(SideFinding("no_worker", EVIL, worker=EVIL),))
    board.looked("rq", [look])
    configure(board, EVIL, "rq")
    lease = Lease(EVIL, worker=EVIL, token="1", evidence={EVIL: EVIL})
    board.judged("rq", EVIL, [Verdict("rq", EVIL, lease, Standing.STUCK, Reason.WORKER_DEAD, detail=EVIL)])
    board.braked("rq", EVIL, Brake(engaged=True, condemned=9, in_flight=12, detail=EVIL))
    board.happened(Event(EVIL, time.time(), "rq", EVIL, EVIL, EVIL, detail=EVIL, reason=EVIL))
    return board
