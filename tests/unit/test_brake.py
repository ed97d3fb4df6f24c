"""The brake: a fleet that died is let go slowly and by itself, one that only looks dead is not touched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstuck.brake import Brake, BrakeRules
from unstuck.model import Lease, Reason, Standing, Verdict

RULES = BrakeRules(budget=500, share=0.5, patience=120.0)


def stuck(number: int, worker: str = "") -> Verdict:
    """A confirmed verdict; by default three jobs to a worker."""
    lease = Lease(f"j{number}", worker=worker or f"w{number // 3}", token=f"t{number}")
    return Verdict("unstuck", "mail", lease, Standing.STUCK, Reason.LOCK_EXPIRED, confirmed=True)


def fleet(count: int, *, first: int = 0, worker: str = "") -> list[Verdict]:
    return [stuck(first + i, worker) for i in range(count)]


@dataclass
class Queue:
    """A queue whose brake is asked once per sweep."""

    rules: BrakeRules = RULES
    brake: Brake = field(default_factory=Brake)
    now: float = 1_000.0
    told: str = ""

    def sweep(
        self,
        condemned: Sequence[Verdict],
        in_flight: int,
        *,
        after: float = 2.0,
        ready: Sequence[Verdict] | None = None,
        gate_open: bool = True,
        release: bool = False,
    ) -> list[str]:
        """The jobs that may go."""
        self.now += after
        self.brake, going, self.told = self.brake.decide(
            condemned,
            condemned if ready is None else ready,
            in_flight,
            self.rules,
            self.now,
            gate_open=gate_open,
            release_asked=release,
        )
        return [one.lease.job for one in going]

    def let_go_until_done(self, condemned: Iterable[Verdict], healthy: int = 0) -> list[int]:
        """How many went in each sweep, those that went being in flight no more."""
        left, portions = list(condemned), []
        while left:
            gone = set(self.sweep(left, len(left) + healthy))
            left = [one for one in left if one.lease.job not in gone]
            portions.append(len(gone))
            assert len(portions) < 10_000, "they never went"
        return portions


@pytest.fixture
def queue() -> Queue:
    return Queue()


class TestWhenItEngages:
    @pytest.mark.parametrize(
        ("condemned", "in_flight", "engages"),
        [
            (9, 9, False),  # fewer than ten in flight
            (5, 10, False),  # exactly half
            (6, 10, True),
            (10, 20, False),
            (11, 20, True),
            (50, 100, False),
            (51, 100, True),
            (100, 100, True),
        ],
    )
    def test_strictly_more_than_the_share_of_at_least_ten_in_flight(
        self, queue: Queue, condemned: int, in_flight: int, *, engages: bool
    ) -> None:
        going = queue.sweep(fleet(condemned), in_flight)
        assert queue.brake.engaged is engages
        assert len(going) == (0 if engages else condemned)

    def test_the_many_jobs_of_one_worker_never_engage_it(self, queue: Queue) -> None:
        assert len(queue.sweep(fleet(100, worker="w"), 100)) == 100
        assert not queue.brake.engaged

    def test_two_workers_suffice(self, queue: Queue) -> None:
        assert queue.sweep([*fleet(99, worker="a"), stuck(99, "b")], 100) == []
        assert queue.brake.engaged

    def test_jobs_whose_owner_is_not_recorded_are_not_taken_for_those_of_one_worker(self, queue: Queue) -> None:
        """Many systems store no owner: their whole fleet may look dead just as well."""
        nameless = [Verdict("custom", "q", Lease(f"j{i}"), Standing.STUCK, Reason.LOCK_EXPIRED) for i in range(20)]
        assert queue.sweep(nameless, 20) == []
        assert queue.brake.engaged

    def test_those_not_yet_confirmed_count_too(self, queue: Queue) -> None:
        assert queue.sweep(fleet(20), 20, ready=fleet(2)) == []

    @pytest.mark.parametrize(
        ("share", "condemned", "engages"), [(0.01, 1, False), (0.1, 2, False), (0.1, 3, True), (1.0, 20, False)]
    )
    def test_the_share_is_a_setting(self, share: float, condemned: int, *, engages: bool) -> None:
        queue = Queue(BrakeRules(share=share))
        verdicts = [stuck(i, f"w{i}") for i in range(condemned)]
        queue.sweep(verdicts, 20)
        assert queue.brake.engaged is engages

    def test_it_says_how_many_of_how_many_and_for_how_long(self, queue: Queue) -> None:
        queue.sweep(fleet(12), 20)
        assert "12 of 20 in-flight jobs of 4 workers" in queue.told
        assert "120 s" in queue.told
        queue.sweep(fleet(12), 20, after=20.0)
        assert "100 s more" in queue.told


class TestBudget:
    def test_never_more_than_the_budget_go_in_one_sweep(self) -> None:
        queue = Queue(BrakeRules(budget=7))
        assert len(queue.sweep(fleet(40), 1_000)) == 7

    def test_the_budget_holds_for_a_brake_released_by_hand_and_by_patience(self) -> None:
        queue = Queue(BrakeRules(budget=2, patience=10.0))
        queue.sweep(fleet(90), 90)
        assert len(queue.sweep(fleet(90), 90, release=True)) == 2
        queue = Queue(BrakeRules(budget=2, patience=10.0))
        queue.sweep(fleet(90), 90)
        assert len(queue.sweep(fleet(90), 90, after=10.0)) == 2


class TestPatience:
    def test_a_fleet_that_did_die_is_recovered_by_itself_a_tenth_at_a_time(self, queue: Queue) -> None:
        portions = queue.let_go_until_done(fleet(100))
        assert portions[:60] == [0] * 60, "nothing for 120 s, at one sweep every two seconds"
        assert set(portions[60:-1]) == {10}
        assert sum(portions) == 100

    def test_at_least_one_goes_per_sweep(self, queue: Queue) -> None:
        queue.rules = BrakeRules(patience=10.0)
        queue.sweep(fleet(10), 10)
        assert len(queue.sweep(fleet(10), 10, after=10.0)) == 1

    def test_it_lets_nobody_go_a_moment_before(self, queue: Queue) -> None:
        queue.sweep(fleet(20), 20)
        assert queue.sweep(fleet(20), 20, after=119.9) == []
        assert len(queue.sweep(fleet(20), 20, after=0.1)) == 2

    def test_a_sign_of_life_from_any_of_them_begins_the_wait_anew(self, queue: Queue) -> None:
        queue.sweep(fleet(20), 20)
        queue.sweep(fleet(20), 20, after=100.0)
        queue.sweep(fleet(19), 20, after=10.0)  # one beats again, or its job has ended
        assert queue.sweep(fleet(19), 20, after=119.9) == []
        assert len(queue.sweep(fleet(19), 20, after=0.1)) == 2

    def test_the_ones_that_it_let_go_itself_are_no_sign_of_life(self, queue: Queue) -> None:
        queue.sweep(fleet(100), 100)
        queue.sweep(fleet(100), 100, after=120.0)
        assert len(queue.sweep(fleet(90, first=10), 90)) == 10

    def test_newly_condemned_ones_do_not_begin_it_anew(self, queue: Queue) -> None:
        queue.sweep(fleet(20), 30)
        queue.sweep(fleet(25), 30, after=60.0)
        assert len(queue.sweep(fleet(25), 30, after=60.0)) == 3

    @pytest.mark.parametrize("condemned", [20, 0], ids=["still shown", "as a closed gate shows them: none"])
    def test_time_with_a_closed_gate_does_not_count(self, queue: Queue, condemned: int) -> None:
        queue.sweep(fleet(20), 20)
        queue.sweep(fleet(20), 20, after=100.0)
        assert queue.sweep(fleet(condemned), 20, after=10.0, gate_open=False) == []
        assert queue.brake.engaged
        assert queue.sweep(fleet(20), 20, after=119.0) == []
        assert len(queue.sweep(fleet(20), 20, after=1.0)) == 2


class TestAFleetThatOnlyLooksDead:
    def test_workers_that_come_back_one_by_one_lose_no_job(self, queue: Queue) -> None:
        """When half of them are back the rest is no mass any more; it is still coming back."""
        dead = fleet(30)
        for _ in range(10):
            assert queue.sweep(dead, 30) == []
        while dead:
            dead = dead[3:]
            assert queue.sweep(dead, 30) == []
        assert not queue.brake.engaged

    def test_those_that_did_not_come_back_go_after_another_patience(self, queue: Queue) -> None:
        queue.sweep(fleet(30), 30)
        queue.sweep(fleet(10), 30, after=10.0)
        assert queue.brake.engaged
        assert queue.sweep(fleet(10), 30, after=119.0) == []
        assert len(queue.sweep(fleet(10), 30, after=1.0)) == 10
        assert not queue.brake.engaged

    def test_new_jobs_of_healthy_workers_do_not_dilute_a_mass_away(self, queue: Queue) -> None:
        queue.sweep(fleet(20), 30)
        assert queue.sweep(fleet(20), 300, after=10.0) == []

    def test_it_is_over_when_none_is_condemned_any_more(self, queue: Queue) -> None:
        queue.sweep(fleet(30), 30)
        queue.sweep([], 30)
        assert queue.brake == Brake()
        assert queue.sweep(fleet(2), 30) == ["j0", "j1"]


class TestByHand:
    def test_a_person_can_release_it_at_once(self, queue: Queue) -> None:
        queue.sweep(fleet(60), 60)
        assert len(queue.sweep(fleet(60), 60, release=True)) == 60
        assert "released by hand" in queue.told

    def test_the_release_holds_until_the_mass_is_gone_and_not_for_the_next_one(self, queue: Queue) -> None:
        queue.rules = BrakeRules(budget=10)
        queue.sweep(fleet(60), 60)
        assert len(queue.sweep(fleet(60), 60, release=True)) == 10
        assert len(queue.sweep(fleet(50, first=10), 50)) == 10
        queue.sweep([], 0)
        assert queue.sweep(fleet(60, first=100), 60) == []

    def test_what_is_left_below_the_share_goes_too(self, queue: Queue) -> None:
        queue.rules = BrakeRules(budget=40)
        queue.sweep(fleet(60), 80)
        queue.sweep(fleet(60), 80, release=True)
        assert len(queue.sweep(fleet(10), 80)) == 10


@given(
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(1, 12),
    st.integers(1, 30),
    st.floats(0.05, 1.0),
    st.lists(st.tuples(st.floats(0.1, 200), st.booleans(), st.booleans(), st.integers(0, 60)), max_size=12),
)
def test_it_never_exceeds_the_budget_nor_hands_out_what_it_was_not_given(
    condemned: int, healthy: int, workers: int, budget: int, share: float, sweeps: list[tuple[float, bool, bool, int]]
) -> None:
    queue = Queue(BrakeRules(budget=budget, share=share, patience=100.0))
    verdicts = [stuck(i, f"w{i % workers}") for i in range(condemned)]
    for after, gate_open, release, ready in sweeps:
        mass = len({one.lease.worker for one in verdicts}) > 1 and condemned > share * (condemned + healthy)
        mass = mass and condemned + healthy >= 10
        engaged = queue.brake.engaged
        going = queue.sweep(
            verdicts, condemned + healthy, after=after, gate_open=gate_open, release=release, ready=verdicts[:ready]
        )
        assert len(going) <= min(budget, ready)
        assert set(going) <= {one.lease.job for one in verdicts[:ready]}
        if mass and not engaged and not release:
            assert going == []
