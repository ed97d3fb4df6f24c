"""Reclaiming: hand condemned jobs to their adapter, under this agent's authority, and tell what became of each.

"Somebody else was faster" is a normal outcome. A fence that holds a younger epoch deposes this agent: it stops at once. Any
other failure leaves the jobs as they are; the next sweep sees them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from unstuck.duties.sweeping import Judged, Sweep, limits_of, reclaimable
from unstuck.errors import Deposed, classify
from unstuck.model import Action, Authority, Condemned, Reclaimed, Verdict
from unstuck.queue import Adapter

BATCH = 50  # a script takes up to 100; fifty keep Redis busy for less than 3 ms on a slow machine too


@dataclass(slots=True)
class Outcome:
    """What was done for one queue: each verdict with what became of it, and what was left alone for which cause."""

    judged: Judged
    done: list[tuple[Verdict, Reclaimed]] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    failure: str = ""  # kind, as errors.classify gives it
    error: BaseException | None = None

    def action(self, verdict: Verdict) -> Reclaimed | None:
        """What became of one verdict's job, None if it was not touched."""
        return next((what for whose, what in self.done if whose is verdict), None)

    def skip(self, cause: str, count: int) -> None:
        """Leave `count` stuck jobs alone for this cause."""
        if count:
            self.skipped[cause] = self.skipped.get(cause, 0) + count


def condemned_of(verdict: Verdict) -> Condemned:
    """The evidence that a reclaim must find again, unchanged."""
    if verdict.reason is None:
        raise ValueError(f"job {verdict.lease.job} stands accused of nothing")
    lease = verdict.lease
    evidence = {"unchanged_s": round(verdict.unchanged, 1), "threshold_s": lease.threshold, **lease.evidence}
    return Condemned(
        job=lease.job,
        worker=lease.worker,
        token=lease.token,
        heartbeat=lease.heartbeat,
        lock=lease.lock,
        reason=verdict.reason,
        threshold=lease.threshold,
        owner_beat=lease.owner_beat,
        evidence=evidence,
    )


def reclaim(
    sweep: Sweep, adapters: Mapping[str, Adapter], authority: Callable[[], Authority | None], *, budget: int = 500
) -> Sequence[Outcome]:
    """Reclaim what the sweep let go, over all queues at most `budget` jobs (S6). `authority` is asked before every batch; None means: not (any more) the leader.

    A fence that holds a younger epoch ends it: the last outcome then has a `Deposed` as its `error`.
    """
    outcomes = []
    for judged in sweep.queues:
        if judged.going or judged.held:
            outcome = Outcome(judged)
            outcomes.append(outcome)
            _queue(judged, adapters[judged.snapshot.backend], authority, outcome, budget)
            budget -= len(outcome.done)
            if isinstance(outcome.error, Deposed):
                break
    return outcomes


def _queue(
    judged: Judged, adapter: Adapter, authority: Callable[[], Authority | None], outcome: Outcome, budget: int
) -> None:
    outcome.skip("brake", len(judged.held) if judged.brake.engaged else 0)
    outcome.skip("budget", 0 if judged.brake.engaged else len(judged.held))
    if not reclaimable(judged):
        outcome.skip("dry_run", len(judged.going))
        return
    limits = limits_of(judged.settings)
    outcome.skip("budget", max(0, len(judged.going) - budget))
    going = judged.going[:budget]
    for start in range(0, len(going), BATCH):
        batch = going[start : start + BATCH]
        under = authority()
        if under is None:
            outcome.skip("not_leader", len(going) - start)
            return
        try:
            answers = adapter.reclaim(
                judged.snapshot.queue, [condemned_of(verdict) for verdict in batch], limits, under
            )
        except Exception as error:  # noqa: BLE001  one queue's failure must not stop the others
            outcome.error, outcome.failure = error, classify(error)
            if isinstance(error, Deposed):
                outcome.skip("not_leader", len(going) - start)
            return
        outcome.done += list(zip(batch, answers, strict=True))


def moved(outcome: Outcome) -> list[tuple[Verdict, Reclaimed]]:
    """Those that really changed place."""
    return [(verdict, what) for verdict, what in outcome.done if what.action in (Action.REQUEUED, Action.DEAD_LETTERED)]
