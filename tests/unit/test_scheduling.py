"""The schedule: duties go on whatever the wall clock, a failing pass or a hung duty does, and what is missed is noted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo

import apscheduler.executors.base
import apscheduler.schedulers.base
import pytest

from support.waiting import wait_until
from unstuck.clock import ManualClock, SystemClock
from unstuck.duties import scheduling
from unstuck.duties.scheduling import DutyFailedError, Schedule
from unstuck_exporters.board import Board

EVERY = 0.1


class Ledger:
    """Notes what the schedule tells."""

    def __init__(self) -> None:
        self.deadlines: dict[str, float] = {}
        self.passes: list[tuple[str, bool, str]] = []
        self.skipped: Counter[str] = Counter()

    def expects(self, duty: str, deadline: float) -> None:
        self.deadlines[duty] = deadline

    def passed(self, duty: str, seconds: float, *, ok: bool = True, detail: str = "") -> None:
        assert seconds >= 0
        self.passes.append((duty, ok, detail))

    def missed(self, duty: str) -> None:
        self.skipped[duty] += 1

    def count(self, duty: str) -> int:
        return sum(name == duty for name, _, _ in list(self.passes))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def schedule(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[Schedule]:
    monkeypatch.setattr(scheduling, "GUARD_EVERY_SECONDS", 0.05)
    schedule = Schedule(SystemClock(), ledger)
    yield schedule
    schedule.stop()


class WallClock:
    """What the libraries take for the time of day; a test may set it."""

    ahead = timedelta(0)

    @classmethod
    def installed(cls, monkeypatch: pytest.MonkeyPatch) -> WallClock:
        wall = cls()

        class Shifted(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Shifted:
                return super().now(tz) + wall.ahead

        for module in (scheduling, apscheduler.schedulers.base, apscheduler.executors.base):
            monkeypatch.setattr(module, "datetime", Shifted)
        return wall


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock.installed(monkeypatch)


def go_on(ledger: Ledger, duty: str, passes: int = 3) -> None:
    before = ledger.count(duty)
    wait_until(lambda: ledger.count(duty) >= before + passes, 20, f"{duty} ran {passes} more times")


def test_every_duty_begins_at_once_and_goes_on(schedule: Schedule, ledger: Ledger) -> None:
    schedule.every("sweep", EVERY, lambda: None, deadline=3)
    schedule.every("yearly", 3_600, lambda: None, deadline=9_999)
    schedule.start()
    wait_until(lambda: ledger.count("yearly") == 1, 20)
    go_on(ledger, "sweep")
    assert ledger.deadlines == {"sweep": 3, "yearly": 9_999}
    assert ledger.count("yearly") == 1


def test_a_duty_never_runs_twice_at_the_same_time(schedule: Schedule, ledger: Ledger) -> None:
    inside, most = [0], [0]

    def work() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(2 * EVERY)
        inside[0] -= 1

    schedule.every("slow", EVERY, work, deadline=3)
    schedule.start()
    for _ in range(5):
        schedule.soon("slow")
        go_on(ledger, "slow", 1)
    assert most[0] == 1


def test_a_pass_that_fails_is_noted_and_followed_by_the_next(schedule: Schedule, ledger: Ledger) -> None:
    def refused() -> None:
        raise DutyFailedError("Redis is away")

    def broken() -> None:
        raise KeyError("queue")

    schedule.every("refused", EVERY, refused, deadline=3)
    schedule.every("broken", EVERY, broken, deadline=3)
    schedule.start()
    go_on(ledger, "refused")
    go_on(ledger, "broken")
    assert ("refused", False, "Redis is away") in ledger.passes
    assert ("broken", False, "KeyError: 'queue'") in ledger.passes
    assert not any(ok for _, ok, _ in ledger.passes)


def test_a_hung_duty_is_noted_as_missed_and_hinders_no_other(schedule: Schedule, ledger: Ledger) -> None:
    let_go = threading.Event()
    schedule.every("hung", EVERY, lambda: let_go.wait(60) and None, deadline=3)
    schedule.every("sweep", EVERY, lambda: None, deadline=3)
    schedule.start()
    wait_until(lambda: ledger.skipped["hung"] >= 3, 20, "the missed passes are noted")
    go_on(ledger, "sweep")
    assert ledger.count("hung") == 0
    let_go.set()
    go_on(ledger, "hung")


def test_a_hung_duty_turns_health_red_and_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    board = Board(clock=clock, version="0")
    schedule = Schedule(clock, board)
    let_go, begun = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        let_go.wait(60)

    schedule.every("sweep", 2.0, hang, deadline=11.0)
    schedule.start()
    try:
        assert begun.wait(20)
        assert overdue(board) == []
        clock.advance(10.9)
        assert overdue(board) == []
        clock.advance(0.2)
        assert overdue(board) == ["sweep"]
    finally:
        let_go.set()
        schedule.stop()


def overdue(board: Board) -> list[str]:
    view = board.view()
    return [duty.name for duty in view.agent.duties.values() if duty.overdue(view.now) > 0]


@pytest.mark.parametrize("hours", [-1, -24 * 365], ids=["an hour", "a year"])
def test_a_wall_clock_set_back_stops_nothing(schedule: Schedule, ledger: Ledger, wall: WallClock, hours: int) -> None:
    """C88: left to itself the scheduler would wait until the time has caught up."""
    schedule.every("sweep", EVERY, lambda: None, deadline=3)
    schedule.start()
    go_on(ledger, "sweep")
    wall.ahead = timedelta(hours=hours)
    go_on(ledger, "sweep", 5)


@pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(days=3652)], ids=["an hour", "ten years"])
def test_a_wall_clock_set_forward_makes_no_storm(
    schedule: Schedule, ledger: Ledger, wall: WallClock, jump: timedelta
) -> None:
    """C89: all the runs that seem to have been missed are one run."""
    schedule.every("sweep", 60.0, lambda: None, deadline=200)
    schedule.every("pulse", EVERY, lambda: None, deadline=3)
    schedule.start()
    wait_until(lambda: ledger.count("sweep") == 1, 20)
    go_on(ledger, "pulse")
    wall.ahead = jump
    go_on(ledger, "pulse", 10)
    schedule.soon("sweep")
    go_on(ledger, "pulse", 10)
    assert ledger.count("sweep") <= 3, "the first, the one asked for, and at most one more"


def test_a_change_to_or_from_summer_time_is_not_noticed(
    schedule: Schedule, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C91: all times are UTC, so that local time may do what it likes."""
    monkeypatch.setenv("TZ", "Europe/Brussels")
    schedule.every("sweep", EVERY, lambda: None, deadline=3)
    schedule.start()
    go_on(ledger, "sweep")
    assert schedule._scheduler is not None
    assert str(schedule._scheduler.timezone) == "UTC"
    for job in schedule._scheduler.get_jobs():
        assert job.next_run_time.utcoffset() == timedelta(0)
        assert (job.coalesce, job.max_instances, job.misfire_grace_time) == (True, 1, None)


def test_a_duty_can_be_asked_for_before_its_turn(schedule: Schedule, ledger: Ledger) -> None:
    schedule.every("sweep", 3_600, lambda: None, deadline=9_999)
    schedule.start()
    wait_until(lambda: ledger.count("sweep") == 1, 20)
    schedule.soon("sweep")
    wait_until(lambda: ledger.count("sweep") == 2, 20, "it ran once more")


def test_asking_for_what_does_not_exist_or_after_the_end_is_harmless(schedule: Schedule, ledger: Ledger) -> None:
    schedule.soon("sweep")
    schedule.every("sweep", EVERY, lambda: None, deadline=3)
    schedule.start()
    schedule.soon("unknown")
    schedule.stop()
    schedule.soon("sweep")
    assert schedule.stopping


def test_nothing_begins_after_the_end_and_no_thread_is_left(ledger: Ledger) -> None:
    before = set(threading.enumerate())
    schedule = Schedule(SystemClock(), ledger)
    for name in "abc":
        schedule.every(name, EVERY, lambda: None, deadline=3)
    schedule.start()
    go_on(ledger, "a")
    schedule.stop()
    wait_until(lambda: not [one for one in threading.enumerate() if one not in before], 20, "its threads have ended")
    passes = len(ledger.passes)
    threading.Event().wait(3 * EVERY)
    assert len(ledger.passes) == passes


@pytest.mark.parametrize("ends", [lambda: None, lambda: 1 / 0], ids=["well", "badly"])
def test_the_time_of_a_pass_is_measured_on_the_monotonic_clock(ledger: Ledger, ends: Callable[[], object]) -> None:
    clock = ManualClock()
    seconds: list[float] = []
    ledger.passed = lambda duty, took, **_: seconds.append(took)  # type: ignore[method-assign]
    schedule = Schedule(clock, ledger)

    def work() -> None:
        clock.advance(4.0)
        clock.jump(-3_600)
        ends()

    schedule.every("sweep", 3_600, work, deadline=9_999)
    schedule.start()
    wait_until(lambda: seconds, 20)
    schedule.stop()
    assert seconds == [4.0]
