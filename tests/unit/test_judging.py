"""Judging, as tables: what speaks against a lease, when it is believed, and what makes the watcher begin anew."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from unstuck.clock import ManualClock
from unstuck.judging import Rules, Watched, judge
from unstuck.model import Capability, GateState, Lease, Lock, Presence, QueueSnapshot, Reason, Standing, Verdict

OPEN = GateState(open=True)
CLOSED = GateState(open=False, reasons=("oom",))
WATCHING = GateState(open=False, reasons=("watching",))
RULES = Rules(gone_after=2.0, confirm_after=2.0)
WORKER = "host:1:aaaaaaaa"


def own(age: float = 0.0, **changes: Any) -> Lease:
    """A lease of our own protocol whose last heartbeat is `age` seconds old by the server's times."""
    lease = Lease(
        job="j1",
        worker=WORKER,
        token="1.aaaaaaaaaaaaaaaa",
        heartbeat="1000",
        owner_beat="1000",
        heartbeat_age=age,
        lock=Lock.HELD,
        threshold=30.0,
        beat_interval=5.0,
        record=Presence.PRESENT,
        connection=Presence.PRESENT,
        connection_recorded=True,
    )
    return replace(lease, **changes)


def foreign(**changes: Any) -> Lease:
    """A lease of a system whose sign of life is opaque."""
    lease = Lease(job="j1", worker="w", token="t", heartbeat="opaque-1", lock=Lock.HELD, threshold=90.0)
    return replace(lease, **changes)


GONE = own(connection=Presence.ABSENT)


@dataclass
class Watcher:
    """The watcher of one queue: looks come one after the other, time in between is ours."""

    rules: Rules = RULES
    clock: ManualClock = field(default_factory=ManualClock)
    memory: dict[str, Watched] = field(default_factory=dict)

    steady: float = math.inf  # seconds without any trouble

    def look(self, *leases: Lease, gate: GateState = OPEN, holds: bool = True) -> tuple[Verdict, ...]:
        snapshot = QueueSnapshot("unstuck", "mail", Capability.RECLAIM, leases=leases)
        now = self.clock.monotonic()
        verdicts, self.memory = judge(
            snapshot, self.memory, gate, self.rules, now, memory_holds=holds, steady=self.steady
        )
        return verdicts

    def see(self, lease: Lease, *, after: float = 0.0, gate: GateState = OPEN, holds: bool = True) -> Verdict:
        self.clock.advance(after)
        (verdict,) = self.look(lease, gate=gate, holds=holds)
        return verdict


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


class TestHeartbeats:
    @pytest.mark.parametrize(
        ("age", "lock", "standing", "reason"),
        [
            (0.0, Lock.HELD, Standing.HEALTHY, None),
            (14.999, Lock.HELD, Standing.HEALTHY, None),
            (15.0, Lock.HELD, Standing.SUSPECT, Reason.LOCK_WITHOUT_HEARTBEAT),
            (15.0, Lock.MISSING, Standing.SUSPECT, Reason.LOCK_EXPIRED),
            (29.999, Lock.HELD, Standing.SUSPECT, Reason.LOCK_WITHOUT_HEARTBEAT),
            (30.0, Lock.HELD, Standing.STUCK, Reason.LOCK_WITHOUT_HEARTBEAT),
            (30.0, Lock.MISSING, Standing.STUCK, Reason.LOCK_EXPIRED),
            (30.0, Lock.NONE, Standing.STUCK, Reason.LOCK_EXPIRED),
            (9_999.0, Lock.HELD, Standing.STUCK, Reason.LOCK_WITHOUT_HEARTBEAT),
        ],
    )
    def test_a_lease_is_stuck_from_its_threshold_on_and_not_a_moment_before(
        self, watcher: Watcher, age: float, lock: Lock, standing: Standing, reason: Reason | None
    ) -> None:
        """C28: the boundary is exact."""
        verdict = watcher.see(own(age, lock=lock))
        assert (verdict.standing, verdict.reason) == (standing, reason)
        assert verdict.unchanged == age

    def test_a_lock_that_is_missing_once_while_the_heartbeat_is_fresh_proves_nothing(self, watcher: Watcher) -> None:
        """C17: the lock key is a symptom."""
        assert watcher.see(own(1.0, lock=Lock.MISSING)).standing is Standing.HEALTHY

    def test_each_job_is_judged_by_its_own_threshold(self, watcher: Watcher) -> None:
        quick, slow = own(45.0), own(45.0, job="j2", threshold=90.0, beat_interval=30.0)
        first, second = watcher.look(quick, slow)
        assert (first.standing, second.standing) == (Standing.STUCK, Standing.HEALTHY)

    def test_what_the_server_stored_is_believed_at_the_first_look_but_not_acted_on(self, watcher: Watcher) -> None:
        """C52: an agent that has just begun to watch confirms nothing."""
        verdict = watcher.see(own(3_600.0))
        assert verdict.standing is Standing.STUCK
        assert not verdict.confirmed


class TestObservedChange:
    def test_a_foreign_lease_is_stuck_only_after_its_threshold_under_our_own_eyes(self, watcher: Watcher) -> None:
        assert watcher.see(foreign()).standing is Standing.HEALTHY
        assert watcher.see(foreign(), after=89.9).standing is Standing.HEALTHY
        verdict = watcher.see(foreign(), after=0.1)
        assert (verdict.standing, verdict.reason) == (Standing.STUCK, Reason.LOCK_WITHOUT_HEARTBEAT)
        assert verdict.unchanged == pytest.approx(90.0)

    @pytest.mark.parametrize("beat", ["opaque-2", "0", "", "-17", "9999-12-31T00:00:00Z"])
    def test_any_change_of_an_opaque_heartbeat_is_a_sign_of_life_even_one_that_goes_back(
        self, watcher: Watcher, beat: str
    ) -> None:
        watcher.see(foreign())
        assert watcher.see(foreign(heartbeat=beat), after=89.0).standing is Standing.HEALTHY
        assert watcher.see(foreign(heartbeat=beat), after=89.0).standing is Standing.HEALTHY

    def test_a_job_that_was_not_seen_in_one_look_is_watched_anew(self, watcher: Watcher) -> None:
        watcher.see(foreign())
        watcher.clock.advance(60)
        watcher.look()
        assert watcher.see(foreign(), after=60).standing is Standing.HEALTHY


class TestConfirmation:
    """S5: two observations of the same attempt and heartbeat, confirm_after apart, without a gap."""

    def test_a_second_observation_confirms_once_confirm_after_has_passed(self, watcher: Watcher) -> None:
        """C17: the first pass only marks."""
        assert not watcher.see(own(30.0)).confirmed
        assert not watcher.see(own(31.9), after=1.999).confirmed
        verdict = watcher.see(own(32.0), after=0.001)
        assert verdict.confirmed
        assert verdict.since == pytest.approx(2.0)

    def test_two_looks_at_the_same_moment_confirm_nothing(self, watcher: Watcher) -> None:
        assert [watcher.see(own(30.0)).confirmed for _ in range(5)] == [False] * 5

    @pytest.mark.parametrize(
        "change",
        [{"token": "2.bbbbbbbbbbbbbbbb"}, {"heartbeat": "1001"}, {"heartbeat_age": 1.0}],
        ids=["another attempt", "a heartbeat", "no longer silent"],
    )
    def test_a_change_between_the_two_observations_begins_anew(self, watcher: Watcher, change: dict[str, Any]) -> None:
        """C2: a job that was taken again in the gap has done nothing wrong yet."""
        watcher.see(own(30.0))
        assert not watcher.see(own(32.0, **change), after=2.0).confirmed
        watcher.see(own(40.0, **change), after=2.0)
        after = watcher.see(own(40.0, **change | {"heartbeat_age": 40.0}), after=0.5)
        assert not after.confirmed or after.since >= 2.0

    def test_a_heartbeat_between_two_looks_that_are_both_silent_begins_anew(self, watcher: Watcher) -> None:
        watcher.see(own(30.0, heartbeat="1000"))
        assert not watcher.see(own(30.0, heartbeat="2000"), after=60.0).confirmed
        assert watcher.see(own(32.0, heartbeat="2000"), after=2.0).confirmed

    def test_a_closing_of_the_gate_in_between_begins_anew(self, watcher: Watcher) -> None:
        watcher.see(own(30.0))
        verdict = watcher.see(own(32.0), after=2.0, gate=CLOSED, holds=False)
        assert (verdict.standing, verdict.confirmed) == (Standing.INCONCLUSIVE, False)
        assert not watcher.see(own(34.0), after=2.0).confirmed
        assert watcher.see(own(36.0), after=2.0).confirmed

    def test_a_look_without_the_job_in_between_begins_anew(self, watcher: Watcher) -> None:
        watcher.see(own(30.0))
        watcher.clock.advance(1)
        watcher.look()
        assert not watcher.see(own(32.0), after=1.0).confirmed

    def test_a_memory_that_does_not_hold_is_forgotten_even_when_the_gate_is_open(self, watcher: Watcher) -> None:
        watcher.see(own(30.0))
        assert not watcher.see(own(32.0), after=2.0, holds=False).confirmed

    def test_an_alert_for_a_missed_deadline_does_not_confirm_the_loss_of_a_connection(self, watcher: Watcher) -> None:
        """A cut shorter than gone_after + confirm_after must not take a late job from a worker that is fine."""
        late = own(1.0, overdue=100.0)
        cut = replace(late, connection=Presence.ABSENT)
        assert watcher.see(late).reason is Reason.DEADLINE_PASSED
        watcher.see(cut, after=1.0)
        verdict = watcher.see(cut, after=2.0)
        assert verdict.reason is Reason.WORKER_GONE
        assert not verdict.confirmed
        assert watcher.see(cut, after=2.0).confirmed

    def test_a_lock_that_lapses_between_the_two_observations_does_not_begin_anew(self, watcher: Watcher) -> None:
        """L1 would not hold if it did: the lock lives about as long as the threshold."""
        assert watcher.see(own(30.0, lock=Lock.HELD)).reason is Reason.LOCK_WITHOUT_HEARTBEAT
        verdict = watcher.see(own(32.0, lock=Lock.MISSING), after=2.0)
        assert verdict.reason is Reason.LOCK_EXPIRED
        assert verdict.confirmed

    def test_the_same_stuck_attempt_stays_one_finding_however_often_it_is_seen(self, watcher: Watcher) -> None:
        """C11: what changes from look to look is only for how long."""
        seen = [watcher.see(own(30.0 + i), after=1.0) for i in range(6)]
        assert [one.since for one in seen] == pytest.approx([0, 1, 2, 3, 4, 5])
        assert len({(one.lease.job, one.lease.token, one.reason) for one in seen}) == 1


class TestGate:
    @pytest.mark.parametrize("gate", [CLOSED, WATCHING])
    def test_while_the_gate_is_closed_whatever_is_not_healthy_is_inconclusive(
        self, watcher: Watcher, gate: GateState
    ) -> None:
        """C22: no verdict during an outage, and the cause is said."""
        stuck, suspect, well = watcher.look(own(99.0), own(20.0, job="j2"), own(1.0, job="j3"), gate=gate)
        assert [one.standing for one in (stuck, suspect, well)] == [
            Standing.INCONCLUSIVE, Standing.INCONCLUSIVE, Standing.HEALTHY,
        ]  # fmt: skip
        assert gate.reasons[0] in stuck.detail
        assert stuck.reason is Reason.LOCK_WITHOUT_HEARTBEAT

    def test_waiting_for_a_full_window_spoils_no_memory_but_counts_as_no_observation(self, watcher: Watcher) -> None:
        for _ in range(20):
            watcher.see(foreign(), after=5.0, gate=WATCHING)
        verdict = watcher.see(foreign(), after=0.0)
        assert verdict.standing is Standing.STUCK, "95 s were watched, the last of them with an open gate"
        assert not verdict.confirmed
        assert watcher.see(foreign(), after=2.0).confirmed

    def test_an_outage_makes_a_foreign_job_be_watched_from_the_beginning(self, watcher: Watcher) -> None:
        watcher.see(foreign())
        watcher.see(foreign(), after=80.0, gate=CLOSED, holds=False)
        assert watcher.see(foreign(), after=80.0).standing is Standing.HEALTHY
        assert watcher.see(foreign(), after=10.0).standing is Standing.STUCK

    @pytest.mark.parametrize(
        ("threshold", "steady", "trusted"), [(90.0, 89.9, False), (90.0, 90.0, True), (30.0, 30.0, True)]
    )
    def test_a_job_with_a_long_threshold_needs_so_long_a_watch_without_trouble(
        self, watcher: Watcher, threshold: float, steady: float, *, trusted: bool
    ) -> None:
        """An outage within its own threshold may be the whole cause of its silence, however short the gate's window."""
        watcher.steady = steady
        verdict = watcher.see(own(threshold, threshold=threshold, beat_interval=30.0))
        assert verdict.standing is (Standing.STUCK if trusted else Standing.INCONCLUSIVE)

    def test_the_vanished_connection_needs_no_watch_of_the_jobs_own_threshold(self, watcher: Watcher) -> None:
        watcher.steady = 5.0
        watcher.see(GONE)
        assert watcher.see(GONE, after=2.0).standing is Standing.STUCK


class TestNeverStarted:
    @pytest.mark.parametrize("lock", [Lock.MISSING, Lock.NONE])
    def test_an_id_in_flight_without_lock_or_heartbeat_is_stuck_a_threshold_after_we_first_saw_it(
        self, watcher: Watcher, lock: Lock
    ) -> None:
        """C25, C31: the clock of this rule is ours, and starts at first sight."""
        bare = Lease(job="j1", lock=lock, threshold=30.0)
        assert watcher.see(bare).standing is Standing.HEALTHY
        assert watcher.see(bare, after=29.9).standing is Standing.HEALTHY
        verdict = watcher.see(bare, after=0.1)
        assert (verdict.standing, verdict.reason) == (Standing.STUCK, Reason.NEVER_STARTED)
        assert watcher.see(bare, after=2.0).confirmed

    def test_with_a_lock_but_no_heartbeat_yet_it_is_the_lock_that_is_told_of(self, watcher: Watcher) -> None:
        bare = Lease(job="j1", lock=Lock.HELD, threshold=30.0)
        watcher.see(bare)
        assert watcher.see(bare, after=30.0).reason is Reason.LOCK_WITHOUT_HEARTBEAT

    @pytest.mark.parametrize("value", ["garbage", " ", "null", "NaN"])
    def test_a_garbage_heartbeat_that_never_changes_is_found_too(self, watcher: Watcher, value: str) -> None:
        """C32: an unreadable first heartbeat hides nothing."""
        odd = Lease(job="j1", heartbeat=value, lock=Lock.MISSING, threshold=30.0)
        watcher.see(odd)
        verdict = watcher.see(odd, after=30.0)
        assert (verdict.standing, verdict.reason) == (Standing.STUCK, Reason.LOCK_EXPIRED)

    def test_a_heartbeat_that_appears_ends_it(self, watcher: Watcher) -> None:
        bare = Lease(job="j1", lock=Lock.NONE, threshold=30.0)
        watcher.see(bare)
        assert watcher.see(replace(bare, heartbeat="1"), after=30.0).standing is Standing.HEALTHY


class TestDeadline:
    def test_a_deadline_hits_even_a_job_that_still_beats_and_says_that_the_lock_lives(self, watcher: Watcher) -> None:
        """C43, C44: heartbeats of a hung handler hide it from every other rule."""
        verdict = watcher.see(own(0.5, overdue=0.001, progress="3/10"))
        assert (verdict.standing, verdict.reason) == (Standing.STUCK, Reason.DEADLINE_PASSED)
        assert "expected to end" in verdict.detail

    @pytest.mark.parametrize(
        ("overdue", "grace", "late"), [(-1.0, 0.0, False), (0.0, 0.0, False), (5.0, 5.0, False), (5.001, 5.0, True)]
    )
    def test_the_grace_is_granted_to_the_full(self, overdue: float, grace: float, late: bool) -> None:
        watcher = Watcher(Rules(deadline_grace=grace))
        assert (watcher.see(own(0.5, overdue=overdue)).standing is Standing.STUCK) is late

    def test_heartbeats_without_progress_are_said_only_where_progress_stands_still(self, watcher: Watcher) -> None:
        moving, still = own(0.5, overdue=9.0, progress="1"), own(0.5, job="j2", overdue=9.0, progress="1")
        watcher.look(moving, still)
        watcher.clock.advance(10.0)
        first, second = watcher.look(replace(moving, progress="2", heartbeat="2000"), replace(still, heartbeat="2000"))
        assert "without progress" not in first.detail
        assert "heartbeats without progress for 10 s" in second.detail

    def test_a_silent_job_past_its_deadline_is_accused_of_silence(self, watcher: Watcher) -> None:
        assert watcher.see(own(30.0, overdue=100.0)).reason is Reason.LOCK_WITHOUT_HEARTBEAT

    def test_a_beating_late_job_is_never_confirmed_across_its_heartbeats(self, watcher: Watcher) -> None:
        beats = [watcher.see(own(0.5, overdue=9.0, heartbeat=str(i)), after=5.0) for i in range(5)]
        assert not any(one.confirmed for one in beats)


class TestWorkerGone:
    def test_a_vanished_connection_condemns_after_gone_after_and_is_confirmed_after_confirm_after(
        self, watcher: Watcher
    ) -> None:
        told = [(v.standing, v.confirmed) for v in (watcher.see(GONE, after=1.0) for _ in range(5))]
        assert told == [
            (Standing.SUSPECT, False), (Standing.SUSPECT, False), (Standing.STUCK, False), (Standing.STUCK, False),
            (Standing.STUCK, True),
        ]  # fmt: skip
        assert watcher.see(GONE).reason is Reason.WORKER_GONE

    def test_a_worker_that_never_subscribed_is_not_missed(self, watcher: Watcher) -> None:
        never = own(connection=Presence.ABSENT, connection_recorded=False)
        for _ in range(20):
            assert watcher.see(never, after=1.0).standing is Standing.HEALTHY

    def test_a_connection_that_we_saw_ourselves_counts_as_recorded(self, watcher: Watcher) -> None:
        watcher.see(own(connection_recorded=False))
        unrecorded = own(connection=Presence.ABSENT, connection_recorded=False)
        watcher.see(unrecorded, after=1.0)
        assert watcher.see(unrecorded, after=2.0).reason is Reason.WORKER_GONE

    def test_a_reconnect_ends_the_suspicion(self, watcher: Watcher) -> None:
        watcher.see(GONE)
        assert watcher.see(own(), after=1.9).standing is Standing.HEALTHY
        assert watcher.see(GONE, after=0.1).standing is Standing.SUSPECT
        assert watcher.see(GONE, after=1.9).standing is Standing.SUSPECT

    @pytest.mark.parametrize("sign", [{"heartbeat": "2000"}, {"owner_beat": "2000"}], ids=["the job", "the worker"])
    def test_a_beat_since_the_loss_ends_it(self, watcher: Watcher, sign: dict[str, Any]) -> None:
        """A worker that loses its control connection beats at once and every second."""
        watcher.see(GONE)
        watcher.see(GONE, after=2.0)
        verdict = watcher.see(replace(GONE, **sign), after=2.0)
        assert (verdict.standing, verdict.confirmed) == (Standing.SUSPECT, False)

    def test_a_cut_shorter_than_both_waits_together_is_survived(self, watcher: Watcher) -> None:
        seen = [watcher.see(GONE, after=0.5) for _ in range(8)]  # absent for 3.5 s under our eyes
        assert not any(one.confirmed for one in seen)

    def test_what_cannot_be_known_is_not_absence(self, watcher: Watcher) -> None:
        watcher.see(own())
        for _ in range(10):
            assert watcher.see(own(connection=Presence.UNKNOWN), after=5.0).standing is Standing.HEALTHY

    def test_when_all_subscriptions_vanish_with_a_restarted_redis_the_gate_decides(self, watcher: Watcher) -> None:
        restarted = GateState(open=False, reasons=("restarted", "young"))
        watcher.look(*(own(job=f"j{i}") for i in range(20)))
        for _ in range(15):
            watcher.clock.advance(2.0)
            fleet = (own(job=f"j{i}", connection=Presence.ABSENT) for i in range(20))
            assert {v.standing for v in watcher.look(*fleet, gate=restarted, holds=False)} == {Standing.INCONCLUSIVE}
        watcher.clock.advance(2.0)
        assert {v.standing for v in watcher.look(*(own(job=f"j{i}") for i in range(20)))} == {Standing.HEALTHY}


class TestWorkerDead:
    def test_a_record_that_is_gone_condemns_after_two_heartbeats_without_a_beat(self, watcher: Watcher) -> None:
        dead = own(1.0, record=Presence.ABSENT, connection=Presence.UNKNOWN, connection_recorded=False)
        assert watcher.see(dead).standing is Standing.SUSPECT
        assert watcher.see(dead, after=9.9).standing is Standing.SUSPECT
        verdict = watcher.see(dead, after=0.1)
        assert (verdict.standing, verdict.reason) == (Standing.STUCK, Reason.WORKER_DEAD)
        assert watcher.see(dead, after=2.0).confirmed

    @pytest.mark.parametrize(
        "sign", [{"heartbeat": "2000"}, {"owner_beat": "2000"}, {"record": Presence.PRESENT}], ids=str
    )
    def test_a_sign_of_life_since_then_ends_it(self, watcher: Watcher, sign: dict[str, Any]) -> None:
        dead = own(1.0, record=Presence.ABSENT)
        watcher.see(dead)
        watcher.see(replace(dead, **sign), after=9.0)
        assert watcher.see(replace(dead, **sign), after=1.0).standing is not Standing.STUCK

    def test_an_owner_whose_name_another_process_has_now_is_told_apart_by_its_id(self, watcher: Watcher) -> None:
        """C49: a worker's name is new with every process, so the old one's record stays away."""
        dead = own(1.0, worker="host:1:aaaaaaaa", record=Presence.ABSENT)
        alive = own(1.0, worker="host:1:bbbbbbbb", job="j2")
        watcher.look(dead, alive)
        watcher.clock.advance(10.0)
        first, second = watcher.look(dead, alive)
        assert (first.standing, second.standing) == (Standing.STUCK, Standing.HEALTHY)

    def test_without_a_known_owner_nobody_is_missed(self, watcher: Watcher) -> None:
        bare = own(1.0, worker="", record=Presence.ABSENT)
        watcher.see(bare)
        assert watcher.see(bare, after=60.0).standing is Standing.HEALTHY


class TestExemptions:
    def test_an_exempt_lease_stays_suspect_until_its_deadline_and_is_never_confirmed_before(
        self, watcher: Watcher
    ) -> None:
        """C16: silent, but its owner shows life; C8: never taken away however old."""
        exempt = own(9_999.0, exempt="its worker is alive and can only be told by its own deadline")
        for _ in range(10):
            verdict = watcher.see(exempt, after=5.0)
            assert (verdict.standing, verdict.confirmed) == (Standing.SUSPECT, False)
        assert "its worker is alive" in verdict.detail
        late = replace(exempt, heartbeat_age=1.0, overdue=1.0)
        assert watcher.see(late, after=5.0).reason is Reason.DEADLINE_PASSED

    def test_ten_thousand_exempt_leases_do_not_hide_a_stuck_one(self, watcher: Watcher) -> None:
        """C14: nobody is skipped because of those before it."""
        exempt = tuple(own(9_999.0, job=f"old{i}", exempt="not ours to move") for i in range(10_000))
        watcher.look(*exempt, own(31.0))
        watcher.clock.advance(2.0)
        stuck = [v for v in watcher.look(*exempt, own(33.0)) if v.confirmed]
        assert [v.lease.job for v in stuck] == ["j1"]


def test_the_memory_holds_only_what_the_last_look_showed(watcher: Watcher) -> None:
    watcher.look(*(own(job=f"j{i}") for i in range(100)))
    watcher.look(own(job="j7"))
    assert set(watcher.memory) == {"j7"}


def test_a_clock_of_the_server_that_ran_back_is_no_negative_silence(watcher: Watcher) -> None:
    assert watcher.see(own(-5.0)).unchanged == 0.0
