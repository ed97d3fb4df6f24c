"""One complete pass: sweep after sweep until everything in flight has been watched for as long as it takes, then an end.

A pass is over when the gate is open and every lease is settled: confirmed stuck (and dealt with, if this pass may), seen to
beat, or beyond help. It never lasts longer than the longest threshold, the confirmation and three sweeps together, unless Redis has
been up for less than a window or jobs are still being moved. What may go wrong: Redis fails in between (then the watch begins anew within the same bound), or
the lease of a reclaiming pass is lost to a younger leader: then it stops at once and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unstuck.duties.reclaiming import Outcome, moved, reclaim
from unstuck.duties.sweeping import Judged, Place, Sweep, Sweeper, reclaimable
from unstuck.errors import Deposed
from unstuck.model import Action, Authority, Lease, Presence, Reclaimed, Standing, Verdict
from unstuck.report import Attempt, QueueReport

if TYPE_CHECKING:
    from unstuck.clock import Clock
    from unstuck.config import Settings
    from unstuck.queue import Adapter

SHORTEST_PAUSE_SECONDS = 0.05


@dataclass(slots=True)
class Watch:
    """What one queue's attempts have shown since the pass began."""

    judged: Judged
    first: dict[Attempt, str] = field(default_factory=dict)  # the sign of life at the first look
    beaten: set[Attempt] = field(default_factory=set)  # it has changed since
    acted: dict[Attempt, tuple[Verdict, Reclaimed]] = field(default_factory=dict)

    def look(self, judged: Judged) -> None:
        """Take in one more look."""
        self.judged = judged
        there = {(one.lease.job, one.lease.token): one.lease for one in judged.verdicts}
        self.first = {attempt: self.first.get(attempt, lease.heartbeat) for attempt, lease in there.items()}
        self.beaten = {
            attempt
            for attempt, lease in there.items()
            if attempt in self.beaten or self.first[attempt] != lease.heartbeat
        }

    def settled(self, verdict: Verdict, held: bool) -> bool:
        """Whether more watching would change nothing. `held`: it waits for its turn in the next sweep."""
        lease = verdict.lease
        match verdict.standing:
            case Standing.STUCK:
                return verdict.confirmed and not held
            case Standing.SUSPECT:
                return bool(lease.exempt)
            case Standing.INCONCLUSIVE:
                return False
            case Standing.HEALTHY:
                return alive(lease) or (lease.job, lease.token) in self.beaten or verdict.unchanged >= lease.threshold

    def report(self) -> QueueReport:
        """The queue for the document: what is accused now, and what was dealt with."""
        settings = self.judged.settings
        now = [one for one in self.judged.verdicts if one.standing is not Standing.HEALTHY]
        shown = {(one.lease.job, one.lease.token) for one in now}
        gone = [verdict for attempt, (verdict, _) in self.acted.items() if attempt not in shown]
        return QueueReport(
            snapshot=self.judged.snapshot,
            mode=settings.mode,
            verdicts=(*gone, *now),
            done={attempt: what for attempt, (_, what) in self.acted.items()},
            max_rescues=settings.max_rescues,
            deadline_reclaims=settings.deadline.action == "reclaim",
            brake=self.judged.brake_detail if self.judged.brake.engaged else "",
        )


def alive(lease: Lease) -> bool:
    """Whether what is stored says that it lives, so that nothing has to be watched: its heartbeat has a time of the server,
    or its worker is connected (no job of a connected worker would be moved).
    """
    return lease.heartbeat_age is not None or lease.connection is Presence.PRESENT


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass is."""

    elapsed: float  # seconds
    expected: float  # seconds that it will take in all if nothing else happens
    open: int  # leases that are not settled
    gate_open: bool


class Pass:
    """One pass. `leading` is asked before every sweep and batch of a reclaiming pass: the authority, or None."""

    def __init__(
        self,
        settings: Settings,
        sweeper: Sweeper,
        adapters: Sequence[Adapter],
        clock: Clock,
        *,
        leading: Callable[[], Authority | None] | None = None,
    ) -> None:
        self._settings = settings
        self._sweeper = sweeper
        self._adapters = {adapter.backend: adapter for adapter in adapters}
        self._clock = clock
        self._leading = leading
        self._watches: dict[Place, Watch] = {}
        self._youth = 0.0  # seconds for which Redis itself is too young to be believed
        self.last: Sweep | None = None
        self.trouble = ""  # why it ended early, one sentence

    def run(self, wait: Callable[[float], None], tell: Callable[[Progress], None]) -> None:
        """Sweep until it is over. Raises redis-py's exceptions where Redis does not answer at the beginning or the end."""
        begun = self._clock.monotonic()
        self._sweeper.begin_watch()
        while True:
            turn = self._clock.monotonic()
            failure, moving = self._turn()
            if failure is not None and self.last is None:
                raise failure
            elapsed = self._clock.monotonic() - begun
            if self.trouble or (
                failure is None and not moving and self._over()
            ):  # what was moved is looked at once more
                return
            if elapsed >= self._bound() and not moving:
                if failure is not None:
                    raise failure
                return
            tell(self._progress(elapsed))
            wait(max(SHORTEST_PAUSE_SECONDS, self._settings.sweep_interval - (self._clock.monotonic() - turn)))

    @property
    def reports(self) -> list[QueueReport]:
        """Every queue, for the document."""
        return [watch.report() for watch in self._watches.values()]

    def _turn(self) -> tuple[Exception | None, bool]:
        """One sweep: (why it failed, whether it moved anything)."""
        try:
            sweep = self._sweeper.sweep()
        except Exception as error:  # noqa: BLE001  it is raised if it is the first or the last one
            self._sweeper.failed(error)
            return error, False
        if self.last is None:
            self._youth = max(0.0, self._settings.stuck_after - max(0.0, sweep.server.uptime))
        self.last = sweep
        for judged in sweep.queues:
            if judged.place not in self._watches:
                self._watches[judged.place] = Watch(judged)
            self._watches[judged.place].look(judged)
        if self._leading is None:
            return None, False
        if self._leading() is None:
            self.trouble = "the lease was lost to another agent; what was not moved by then was left alone"
            return None, False
        outcomes = reclaim(sweep, self._adapters, self._leading)
        for outcome in outcomes:
            self._note(outcome)
        return None, any(moved(outcome) for outcome in outcomes)

    def _note(self, outcome: Outcome) -> None:
        judged = outcome.judged
        acted = self._watches[judged.place].acted
        done = {(one.lease.job, one.lease.token): (one, what) for one, what in outcome.done}
        if isinstance(outcome.error, Deposed):
            self.trouble = str(outcome.error)
        if reclaimable(judged):
            cause = outcome.failure or "not_leader"
            held = "brake" if judged.brake.engaged else "budget"
            for group, why in ((judged.going, cause), (judged.held, held)):
                for one in group:
                    acted[one.lease.job, one.lease.token] = (one, Reclaimed(one.lease.job, Action.SKIPPED, why))
        acted.update(done)

    def _over(self) -> bool:
        """Whether nothing is in flight, or the gate is open and every lease is settled."""
        if not any(watch.judged.snapshot.running or watch.judged.verdicts for watch in self._watches.values()):
            return True
        return self._sweeper.gate.state.open and not self._open()

    def _open(self) -> list[Verdict]:
        """The leases that are not settled yet."""
        left = []
        for watch in self._watches.values():
            waits = watch.judged.held if reclaimable(watch.judged) and not watch.judged.brake.engaged else ()
            turns = {id(one) for one in waits}
            left += [one for one in watch.judged.verdicts if not watch.settled(one, id(one) in turns)]
        return left

    def _bound(self) -> float:
        rules = [watch.judged.settings for watch in self._watches.values() if watch.judged.snapshot.running]
        longest = max(
            (
                self._settings.stuck_after,
                *(one.stuck_after for one in rules),
                *(one.lease.threshold for one in self._open()),
            )
        )
        confirm = max((self._settings.confirm_after, *(one.confirm_after for one in rules)))
        interval = max((self._settings.sweep_interval, *(one.sweep_interval for one in rules)))
        return self._youth + longest + confirm + 3 * interval

    def _progress(self, elapsed: float) -> Progress:
        left, gate = self._open(), self._sweeper.gate.state
        waits = [max(0.0, one.lease.threshold - one.unchanged) for one in left if one.standing is not Standing.STUCK]
        still = max(gate.opens_in, max(waits, default=0.0)) + (self._settings.confirm_after if left else 0.0)
        bound = self._bound()
        return Progress(elapsed, min(bound, elapsed + math.ceil(still)), len(left), gate.open)
