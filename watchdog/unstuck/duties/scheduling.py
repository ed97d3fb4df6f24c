"""The schedule of duties: APScheduler, with a guard of its own, because by itself it can fall silent.

What may go wrong with it, measured: a wall clock set back stops all runs until time has caught up; set forward it may storm;
one hung run makes every later one be skipped, with nothing but a log line; late runs are dropped after one second. So: runs
coalesce, late ones are never dropped, all times are UTC, and a guard on the monotonic clock kicks a duty that is overdue
and counts one that is stuck. The board turns `/healthz` red when a duty misses its deadline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from unstuck.clock import Clock
from unstuck.logs import say

log = logging.getLogger("unstuck.schedule")

GUARD_EVERY_SECONDS = 0.5


class Ledger(Protocol):
    """Where passes are noted (the board)."""

    def expects(self, duty: str, deadline: float) -> None: ...
    def passed(self, duty: str, seconds: float, *, ok: bool = True, detail: str = "") -> None: ...
    def missed(self, duty: str) -> None: ...


class DutyFailedError(Exception):
    """A pass could not do its work, for a reason that has been told already: noted, not logged again."""


@dataclass(slots=True)
class _Duty:
    name: str
    interval: float
    work: Callable[[], None]
    started: float  # monotonic: begin of the last pass
    running: bool = False
    runs: int = 0
    noted_missed_at: float = 0.0


class _Every(BaseTrigger):  # type: ignore[misc]  # ships no types
    """Every so many seconds, without a look back.

    APScheduler's own interval lists every run that a jump of the wall clock has skipped before it coalesces them: a machine
    that boots in 1970 and then learns the date would be out of memory.
    """

    def __init__(self, seconds: float) -> None:
        self._step = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        due = now if previous_fire_time is None else previous_fire_time + self._step
        return due if due > now else now + self._step


class Schedule:
    """Runs each duty every so many seconds, each in at most one thread at a time."""

    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        self._clock = clock
        self._ledger = ledger
        self._duties: dict[str, _Duty] = {}
        self._stop = threading.Event()
        self._guard = threading.Thread(target=self._watch, name="unstuck-guard", daemon=True)
        self._scheduler: BackgroundScheduler | None = None

    def every(self, name: str, seconds: float, work: Callable[[], None], *, deadline: float) -> None:
        """Run `work` every `seconds`; a pass must end within `deadline` seconds of the one before, or health turns red."""
        self._duties[name] = _Duty(name, seconds, work, self._clock.monotonic())
        self._ledger.expects(name, deadline)

    def start(self) -> None:
        """Begin at once with every duty."""
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(len(self._duties) + 1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        for duty in self._duties.values():
            self._scheduler.add_job(
                self._pass,
                _Every(duty.interval),
                args=[duty],
                id=duty.name,
                next_run_time=datetime.now(UTC),
            )
        self._scheduler.start()
        self._guard.start()

    def soon(self, name: str) -> None:
        """Run a duty now rather than when its turn comes; harmless if it is running."""
        if self._scheduler is not None and not self._stop.is_set():
            try:
                self._scheduler.modify_job(name, next_run_time=datetime.now(UTC))
            except JobLookupError:
                return

    def stop(self) -> None:
        """No new passes. Those under way end by themselves, bounded by their socket time-outs; they are not waited for."""
        again = self._stop.is_set()
        self._stop.set()
        if self._scheduler is not None and not again:
            self._scheduler.shutdown(wait=False)

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stopped_within(self, seconds: float) -> bool:
        """Wait so long, or until `stop` is called; True if it was."""
        return self._stop.wait(seconds)

    def _pass(self, duty: _Duty) -> None:
        duty.started = self._clock.monotonic()
        duty.running = True
        duty.runs += 1
        ok, detail = True, ""
        try:
            duty.work()
        except DutyFailedError as told:
            ok, detail = False, str(told)
        except Exception as error:
            ok, detail = False, f"{type(error).__name__}: {error}"
            say(log, logging.ERROR, "duty_failed", duty=duty.name, detail=detail)
            log.debug("duty_failed", exc_info=True)
        finally:
            duty.running = False
            self._ledger.passed(duty.name, self._clock.monotonic() - duty.started, ok=ok, detail=detail)

    def _watch(self) -> None:
        while not self._stop.wait(GUARD_EVERY_SECONDS):
            now = self._clock.monotonic()
            for duty in self._duties.values():
                late = now - duty.started - duty.interval
                if late <= max(0.5, duty.interval / 2):
                    continue
                if now - duty.noted_missed_at >= duty.interval:
                    duty.noted_missed_at = now
                    self._ledger.missed(duty.name)
                if not duty.running:
                    self.soon(duty.name)
