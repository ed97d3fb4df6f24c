"""Telling: each thing that happened is told once, when it begins."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from unstuck.brake import Brake
from unstuck.clock import ManualClock
from unstuck.config import QueueSettings
from unstuck.duties.reclaiming import Outcome
from unstuck.duties.sweeping import Judged, Sweep
from unstuck.duties.telling import LOUD, Narrator, write_log
from unstuck.model import (
    Action,
    Capability,
    Event,
    GateState,
    Lease,
    QueueSnapshot,
    Reason,
    Reclaimed,
    ServerSnapshot,
    Standing,
    Verdict,
)

OPEN = GateState(open=True)
SERVER = ServerSnapshot("run", "repl", "master", "7.0.15", 1_700_000_000_000, 1_000.0)


def verdict(
    standing: Standing = Standing.STUCK, *, job: str = "j1", token: str = "1.a", confirmed: bool = False
) -> Verdict:
    reason = None if standing is Standing.HEALTHY else Reason.WORKER_GONE
    lease = Lease(job, worker="host:1:aaaaaaaa", token=token, evidence={"attempt": "1"})
    return Verdict("unstuck", "mail", lease, standing, reason, unchanged=31.24, confirmed=confirmed, detail="gone")


@dataclass
class Listener:
    """Sweeps one queue and keeps what was told."""

    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.narrator = Narrator(self.clock)
        self.hear()

    def judged(self, *verdicts: Verdict, brake: Brake | None = None, error: str = "") -> Judged:
        snapshot = QueueSnapshot("unstuck", "mail", Capability.RECLAIM, error=error)
        return Judged(snapshot, QueueSettings(), verdicts, brake=brake or Brake(), brake_detail="12 of 20")

    def hear(
        self, *verdicts: Verdict, gate: GateState = OPEN, brake: Brake | None = None, error: str = ""
    ) -> list[str]:
        self.last = self.narrator.judged(Sweep(SERVER, gate, (self.judged(*verdicts, brake=brake, error=error),), 0.0))
        return [event.kind for event in self.last]

    def outcome(self, one: Verdict, action: Action, cause: str = "", rescues: int = 0) -> list[Event]:
        outcome = Outcome(self.judged(one), done=[(one, Reclaimed(one.lease.job, action, cause, rescues))])
        return self.narrator.reclaimed([outcome])


@pytest.fixture
def listener() -> Listener:
    return Listener()


def test_a_stuck_job_is_told_of_once_however_often_it_is_seen(listener: Listener) -> None:
    """C11: the second sweep over the same attempt tells nothing."""
    assert listener.hear(verdict()) == ["stuck"]
    assert [listener.hear(verdict()) for _ in range(5)] == [[]] * 5


def test_each_stage_is_told_when_it_begins(listener: Listener) -> None:
    told = [
        *listener.hear(verdict(Standing.HEALTHY)),
        *listener.hear(verdict(Standing.SUSPECT)),
        *listener.hear(verdict(Standing.SUSPECT)),
        *listener.hear(verdict()),
        *listener.hear(verdict(confirmed=True)),
        *listener.hear(verdict(confirmed=True)),
        *listener.hear(verdict(Standing.HEALTHY)),
        *listener.hear(),
    ]
    assert told == ["suspected", "stuck", "confirmed", "cleared"]


def test_a_job_that_has_gone_from_view_is_cleared(listener: Listener) -> None:
    listener.hear(verdict())
    assert listener.hear() == ["cleared"]


def test_another_attempt_of_the_same_job_is_another_story(listener: Listener) -> None:
    listener.hear(verdict(token="1.a"))
    assert listener.hear(verdict(token="2.b")) == ["stuck", "cleared"]


def test_what_was_inconclusive_is_not_cleared_with_a_flourish(listener: Listener) -> None:
    gate = GateState(open=False, reasons=("oom",))
    assert listener.hear(verdict(Standing.INCONCLUSIVE), gate=gate) == ["gate_closed", "inconclusive"]
    assert listener.hear(gate=gate) == []


def test_a_requeued_job_is_told_as_requeued_and_not_as_cleared_after_that(listener: Listener) -> None:
    stuck = verdict(confirmed=True)
    listener.hear(stuck)
    (event,) = listener.outcome(stuck, Action.REQUEUED, "worker_gone", rescues=1)
    assert (event.kind, event.job, event.token, event.reason) == ("requeued", "j1", "1.a", "worker_gone")
    assert event.detail == "rescue 1: gone"
    assert listener.hear() == []


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (Action.REQUEUED, "requeued"),
        (Action.DEAD_LETTERED, "dead_lettered"),
        (Action.LOST_RACE, "lost_race"),
        (Action.LOCK_RELEASED, "lock_released"),
        (Action.SKIPPED, "skipped"),
    ],
)
def test_every_outcome_has_an_event(listener: Listener, action: Action, kind: str) -> None:
    """C1: somebody else was faster is told as what it is, with the evidence that had changed."""
    (event,) = listener.outcome(verdict(confirmed=True), action, "state")
    assert (event.kind, event.detail) == (kind, "state")


def test_the_gate_is_told_when_it_opens_closes_or_closes_for_another_cause(listener: Listener) -> None:
    closed, worse = GateState(False, ("oom",)), GateState(False, ("oom", "readonly"))
    told = [listener.hear(gate=gate) for gate in (OPEN, closed, closed, worse, OPEN)]
    assert told == [[], ["gate_closed"], [], ["gate_closed"], ["gate_opened"]]


def test_the_brake_is_told_once_each_way(listener: Listener) -> None:
    engaged = Brake(engaged=True)
    told = [listener.hear(brake=brake) for brake in (None, engaged, engaged, None, None)]
    assert told == [[], ["brake_engaged"], [], ["brake_released"], []]


def test_an_unreadable_queue_is_told_once_and_does_not_clear_what_was_stuck_in_it(listener: Listener) -> None:
    listener.hear(verdict())
    assert listener.hear(error="pending holds a hash") == ["queue_unreadable"]
    assert listener.hear(error="pending holds a hash") == []
    assert listener.hear(verdict()) == []


def test_an_event_carries_job_worker_token_reason_and_evidence(listener: Listener) -> None:
    listener.hear(verdict())
    (event,) = listener.last
    assert (event.backend, event.queue, event.job, event.worker) == ("unstuck", "mail", "j1", "host:1:aaaaaaaa")
    assert event.evidence == {"unchanged_s": 31.2, "threshold_s": 30.0, "attempt": "1"}
    assert event.at == listener.clock.wall()


def test_only_what_a_person_should_see_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    kinds = ["suspected", "stuck", "requeued", "lost_race", "inconclusive", "gate_closed", "gate_opened"]
    with caplog.at_level("DEBUG", logger="unstuck.agent"):
        write_log([Event(kind, 0.0, job="j1", evidence={"unchanged_s": 3}) for kind in kinds])
    levels = {record.message: record.levelname for record in caplog.records}
    assert {kind for kind, level in levels.items() if level == "WARNING"} == LOUD & set(kinds)
    assert levels["inconclusive"] == "DEBUG"
    assert caplog.records[0].fields == {"job": "j1", "unchanged_s": 3}  # type: ignore[attr-defined]
