"""The board of an agent in the middle of its work, for the pictures of the documentation: made up, but as it would be."""

import math

from support.crowds import breathe, configure, queue, stuck, suspect
from unstuck.clock import ManualClock
from unstuck.model import Event, GateState, Lease, Mode, Pacing, Presence, Reason, Verdict
from unstuck_exporters.board import Board

HALF_HOUR = 1800
STEP = 15


def story(wall: float) -> tuple[Board, ManualClock]:
    """Half an hour of a board, up to this Unix time, in which a worker of `mail` died twice; and the board's clock."""
    clock = ManualClock(wall - HALF_HOUR)
    board = Board(version="0.1.0", clock=clock)
    for duty in ("elect", "sweep", "publish", "tend", "audit", "memory"):
        board.expects(duty, 60.0)
    board.leads(int(wall * 1000) - HALF_HOUR * 1000)
    for name in ("mail", "thumbnails", "reports", "billing"):
        configure(board, name)
    configure(board, "default", "rq")
    configure(board, "low", "rq", Mode.OBSERVE)
    for step in range(HALF_HOUR // STEP + 1):
        _at(board, clock, step)
        if step < HALF_HOUR // STEP:
            clock.advance(STEP)
    for duty, seconds in (("elect", 0.002), ("sweep", 0.011), ("publish", 0.004), ("tend", 0.001), ("audit", 0.4), ("memory", 0.001)):  # fmt: skip
        board.passed(duty, seconds)
    return board, clock


def go_on(board: Board, clock: ManualClock, seconds: float) -> None:
    """Let time pass, with another look at the end of it that sees the same."""
    clock.advance(seconds)
    _at(board, clock, HALF_HOUR // STEP)
    for duty in board.view().agent.duties.values():
        board.passed(duty.name, duty.seconds)


def _wave(step: int, middle: float, swing: float, period: float, shift: float = 0.0) -> int:
    return max(0, round(middle + swing * math.sin(step / period + shift) + 0.3 * swing * math.sin(step * 1.7 + shift)))


def _paced(interval: float, reason: str) -> Pacing:
    return Pacing(interval, 0.2, 0.1, 0.1, reason, 40, 1, 0)


def _at(board: Board, clock: ManualClock, step: int) -> None:
    breathe(board, clock)
    board.gated(GateState(open=True))
    burst = max(0.0, 220 * math.exp(-(((step - 84) / 9) ** 2)))
    waiting = round(12 + burst + _wave(step, 6, 5, 3))
    fleet = {"busy": 7, "idle": 1, "lost": 1}
    board.looked("unstuck", [
        queue("mail", waiting=waiting, running=8, workers=fleet, oldest_waiting=1 + burst / 8, scheduled=42, dead=3, pacing=_paced(0.2 * (1 + min(1, burst / 250)), "backlog")),
        queue("thumbnails", waiting=_wave(step, 130, 60, 11), running=24, workers={"busy": 24}, oldest_waiting=6.2, pacing=_paced(0.31, "backlog")),
        queue("reports", waiting=_wave(step, 4, 4, 5, 1), running=3, workers={"busy": 3, "idle": 5}, oldest_waiting=0.4, pacing=_paced(0.2, "base")),
        queue("billing", waiting=_wave(step, 1.5, 2, 6, 2), running=2, workers={"busy": 2, "idle": 2}, paused=step > 100, oldest_waiting=55.0, pacing=_paced(0.2, "base")),
    ])  # fmt: skip
    board.looked("rq", [
        queue("default", "rq", waiting=_wave(step, 18, 9, 8, 3), running=5, workers={"busy": 5, "idle": 1}, oldest_waiting=14.0, pacing=None),
        queue("low", "rq", waiting=round(20 + step * 0.9), running=1, workers={"busy": 1}, oldest_waiting=20.0 * step, pacing=None, dead=17),
    ])  # fmt: skip
    died = step in (34, 35, 119, 120)
    board.judged("unstuck", "mail", [stuck("4f1c9e07", "mail", confirmed=False)] if died else [])
    board.judged("unstuck", "thumbnails", [_silent(clock)] if step >= 119 else [])
    board.judged("rq", "low", [_of_rq()] if step >= 108 else [])
    board.swept()
    _events(board, clock, step)


def _silent(clock: ManualClock) -> Verdict:
    beaten = {"heartbeat_at_ms": int((clock.wall() - 17.2) * 1000), "rescues": 0}
    lease = Lease("b2c48810", worker="img-1:902:77c0de11", token="1.b", beat_interval=5.0, evidence=beaten)
    return suspect("b2c48810", "thumbnails", lease=lease, unchanged=17.2)


def _of_rq() -> Verdict:
    worker = "9b0f2d6e51"
    lease = Lease(
        "5ad1b7c2-0d1f", worker=worker, token="x", threshold=90.0, beat_interval=30.0, connection=Presence.ABSENT,
        evidence={"connection_gone_seconds": 171.0, "lease_over_seconds": 48.0},
    )  # fmt: skip
    detail = "the worker's connection has been gone for 171.0 s"
    return stuck("", "low", "rq", lease=lease, reason=Reason.WORKER_GONE, unchanged=171.0, detail=detail)


def _events(board: Board, clock: ManualClock, step: int) -> None:
    at, worker = clock.wall(), "web-3:4711:a1b2c3d4"

    def tell(kind: str, job: str, delay: float, detail: str, queue: str = "mail", backend: str = "unstuck") -> None:
        board.happened(Event(kind, at + delay, backend, queue, job, worker, reason="worker_gone", detail=detail))

    for kind, when, detail in (
        ("leader_acquired", 0, "epoch 1764430000000"),
        ("gate_closed", 0, "watching"),
        ("gate_opened", 2, "verdicts can be trusted"),
    ):
        if step == when:
            board.happened(Event(kind, at, detail=detail))
    if step == 34:
        jobs = ("77ab01c4", "0c93de55", "e8f02b1a")
        for job in jobs:
            tell("suspected", job, 0.0, "the worker's connection has just gone")
        for job in jobs:
            tell("stuck", job, 2.0, "the worker's connection has been gone for 2.1 s")
        for job in jobs:
            tell("requeued", job, 4.1, "rescue 1: the worker's connection has been gone for 4.2 s")
    for when, kind, job, delay, detail, place, backend in (
        (61, "requeued", "d41d8cd9", 1.0, "rescue 2: no lock and no heartbeat for 31 s", "thumbnails", "unstuck"),
        (62, "dead_lettered", "c0ffee12", 3.0, "rescue 4: no lock and no heartbeat for 30 s", "thumbnails", "unstuck"),
        (90, "requeued", "8a7d5c1e", 2.0, "rescue 1: the worker's connection has been gone for 2.9 s", "default", "rq"),
        (108, "stuck", "5ad1b7c2-0d1f", 0.0, "the worker's connection has been gone for 2.0 s", "low", "rq"),
    ):
        if step == when:
            tell(kind, job, delay, detail, place, backend)
    if step == 119:
        tell("suspected", "4f1c9e07", 9.0, "the worker's connection has just gone")
        tell("stuck", "4f1c9e07", 11.0, "the worker's connection has been gone for 2.1 s")
