"""Alarms: when the agent's findings become worth telling, and when they are over. No network, no waiting."""

from dataclasses import replace

import pytest

from support.boards import server, snapshot, verdict
from unstuck.clock import ManualClock
from unstuck.config.settings import Alarms
from unstuck.model import Event, GateState, Lease, Reason, Standing, Totals, Verdict
from unstuck_exporters.alarms import CALM_SECONDS, MOST_JOBS, SEVERITIES, Watch
from unstuck_exporters.board import Board, Brake

CALM = snapshot()


class Scene:
    """An agent that leads, and a watch over its board."""

    def __init__(self, **rules: float) -> None:
        self.clock = ManualClock()
        self.board = Board(version="1", clock=self.clock)
        self.watch = Watch(Alarms(**rules))
        self.board.leads(1)
        self.board.gated(GateState(open=True))

    def look(self, *verdicts: Verdict, seen=CALM, seconds: float = 1.0, brake: Brake | None = None) -> set[str]:
        """One sweep, and what is active after it."""
        self.clock.advance(seconds)
        self.board.redis_answered("look", 0.001)
        self.board.saw_server(server(self.clock))
        self.board.looked("unstuck", [seen])
        self.board.judged("unstuck", "mail", verdicts)
        self.board.braked("unstuck", "mail", brake or Brake())
        return self.active()

    def active(self) -> set[str]:
        alarms = self.watch.look(self.board.view())
        self.last = alarms or {}
        return {rule for rule, _, _ in self.last}

    def alarm(self, rule: str):
        return next(alarm for key, alarm in self.last.items() if key[0] == rule)


@pytest.fixture
def scene() -> Scene:
    return Scene()


class TestStuckJobs:
    def test_they_are_told_of_only_after_they_were_stuck_for_a_while(self, scene):
        assert scene.look(verdict()) == set()
        assert scene.look(verdict(), seconds=29) == set()
        assert scene.look(verdict(), seconds=1) == {"stuck_jobs"}

    def test_a_quick_rescue_is_no_alarm(self, scene):
        scene.look(verdict())
        assert scene.look(seconds=5) == set()
        assert scene.look(verdict(), seconds=28) == set()

    def test_fewer_than_asked_for_are_none(self):
        scene = Scene(stuck_jobs=3, stuck_for=0)
        assert scene.look(verdict("a"), verdict("b")) == set()
        assert scene.look(verdict("a"), verdict("b"), verdict("c")) == {"stuck_jobs"}

    def test_the_alarm_names_ids_workers_reasons_and_evidence(self):
        scene = Scene(stuck_for=0)
        lease = Lease("j9", worker="host:1:aaaaaaaa", token="1.x", threshold=30.0, evidence={"attempt": 2})
        scene.look(
            Verdict("unstuck", "mail", lease, Standing.STUCK, Reason.WORKER_GONE, unchanged=31.24, detail="gone")
        )
        alarm = scene.alarm("stuck_jobs")
        assert alarm.summary == "1 job of unstuck/mail is stuck (1 worker_gone)"
        assert alarm.jobs == (
            {
                "job": "j9",
                "worker": "host:1:aaaaaaaa",
                "token": "1.x",
                "reason": "worker_gone",
                "unchanged_seconds": 31.2,
                "threshold_seconds": 30.0,
                "detail": "gone",
                "evidence": {"attempt": 2},
            },
        )

    def test_a_thousand_stuck_jobs_are_counted_and_some_are_named(self):
        scene = Scene(stuck_for=0)
        scene.look(*(verdict(f"j{n}") for n in range(1000)))
        alarm = scene.alarm("stuck_jobs")
        assert (alarm.value, len(alarm.jobs), alarm.jobs_omitted) == (1000, MOST_JOBS, 1000 - MOST_JOBS)

    def test_suspects_are_nobodys_business(self):
        scene = Scene(stuck_for=0)
        assert scene.look(verdict(standing=Standing.SUSPECT)) == set()


class TestEnding:
    def test_an_alarm_ends_when_its_condition_is_gone_for_a_while(self):
        scene = Scene(stuck_for=0)
        scene.look(verdict())
        assert scene.look(seconds=CALM_SECONDS - 1) == {"stuck_jobs"}
        assert scene.look(seconds=1.5) == set()

    def test_a_flickering_condition_is_one_alarm_since_its_beginning(self):
        scene = Scene(stuck_for=0)
        scene.look(verdict(unchanged=30.0))
        since = scene.alarm("stuck_jobs").since
        for _ in range(5):
            assert scene.look(seconds=5) == {"stuck_jobs"}
            assert scene.look(verdict(unchanged=30.0), seconds=4) == {"stuck_jobs"}
        assert scene.alarm("stuck_jobs").since == since


class TestNotKnowing:
    def test_a_closed_gate_ends_no_alarm_and_begins_none(self):
        scene = Scene(stuck_for=0)
        scene.look(verdict())
        scene.board.gated(GateState(open=False, reasons=("oom",)))
        assert scene.look(seconds=60) == {"stuck_jobs"}
        scene.board.gated(GateState(open=True))
        assert scene.look(seconds=1) == {"stuck_jobs"}
        assert scene.look(seconds=CALM_SECONDS + 1) == set()

    def test_old_data_of_a_queue_ends_no_alarm(self):
        scene = Scene(stuck_for=0)
        scene.look(verdict())
        scene.clock.advance(60)
        scene.board.redis_answered("look", 0.001)
        assert scene.active() == {"stuck_jobs"}

    def test_redis_away_ends_no_alarm_about_queues(self):
        scene = Scene(stuck_for=0)
        scene.look(verdict())
        scene.board.redis_failed("look", "timeout", 5.0, "Redis did not answer in time")
        scene.clock.advance(60)
        assert scene.active() == {"stuck_jobs"}
        scene.clock.advance(20)
        assert scene.active() == {"stuck_jobs", "redis_away"}


class TestRedisAway:
    def test_it_is_told_after_a_while_and_with_the_reason(self, scene):
        scene.look()
        scene.board.redis_failed("look", "connection", 0.1, "127.0.0.1:6379 refuses connections")
        assert scene.active() == set()
        scene.clock.advance(14)
        assert scene.active() == set()
        scene.clock.advance(2)
        assert scene.active() == {"redis_away"}
        assert scene.alarm("redis_away").summary.endswith("127.0.0.1:6379 refuses connections")

    def test_it_is_told_even_if_redis_was_never_there(self):
        scene = Scene()
        scene.board = Board(clock=scene.clock)
        scene.active()
        scene.clock.advance(16)
        assert scene.active() == {"redis_away"}

    def test_it_ends_when_redis_answers(self, scene):
        scene.look()
        scene.board.redis_failed("look", "timeout")
        scene.active()
        scene.clock.advance(20)
        assert scene.active() == {"redis_away"}
        assert scene.look(seconds=1) == {"redis_away"}
        assert scene.look(seconds=CALM_SECONDS) == set()

    def test_the_one_that_led_tells_and_the_standby_does_not(self):
        leader, standby = Scene(), Scene()
        leader.look()
        standby.board.follows(leader_seen=True, leader="other")
        standby.active()
        for scene in (leader, standby):
            scene.board.follows("lost", leader_seen=False)
            scene.board.redis_failed("elect", "timeout")
            scene.active()
            scene.clock.advance(20)
        assert leader.active() == {"redis_away"}
        assert standby.active() == set()


class TestBrake:
    def test_it_is_told_at_once_and_with_the_figures(self, scene):
        brake = Brake(engaged=True, condemned=12, in_flight=20, detail="12 of 20 look stuck")
        assert scene.look(brake=brake) == {"brake_engaged"}
        assert scene.alarm("brake_engaged").evidence == {"condemned": 12, "in_flight": 20}
        assert scene.look(seconds=CALM_SECONDS + 1) == set()


class TestDeadLetters:
    def test_old_ones_are_no_alarm_and_new_ones_are(self, scene):
        assert scene.look(seen=replace(CALM, dead=900)) == set()
        event = Event(
            "dead_lettered", 0.0, "unstuck", "mail", "j7", "host:1:aaaaaaaa", reason="worker_gone", detail="rescue 4"
        )
        scene.board.happened(event)
        assert scene.look(seen=replace(CALM, dead=902)) == {"dead_letters"}
        alarm = scene.alarm("dead_letters")
        assert alarm.summary == "2 jobs of unstuck/mail became dead letters; there are 902 now"
        assert (alarm.value, [job["job"] for job in alarm.jobs], alarm.jobs_omitted) == (2, ["j7"], 1)

    def test_they_are_over_when_no_more_have_come_for_the_window(self, scene):
        scene.look(seen=replace(CALM, dead=1))
        scene.look(seen=replace(CALM, dead=2))
        assert scene.look(seen=replace(CALM, dead=2), seconds=599) == {"dead_letters"}
        scene.look(seen=replace(CALM, dead=2), seconds=2)
        assert scene.look(seen=replace(CALM, dead=2), seconds=CALM_SECONDS) == set()

    def test_a_retried_letter_is_no_new_one(self, scene):
        for dead in (5, 4, 3):
            assert scene.look(seen=replace(CALM, dead=dead)) == set()


class TestBacklogRising:
    @staticmethod
    def queue(waiting: int, done: int = 10):
        return replace(CALM, waiting=waiting, totals=Totals(completed=done))

    def test_a_backlog_that_rises_while_nothing_ends_is_told(self, scene):
        for minute in range(5):
            assert scene.look(seen=self.queue(20 + minute), seconds=60) == set()
        assert scene.look(seen=self.queue(30), seconds=60) == {"backlog_rising"}
        assert scene.alarm("backlog_rising").summary == (
            "30 jobs of unstuck/mail wait, 10 more than 300 s ago, and none has ended since"
        )

    def test_one_finished_job_begins_the_wait_anew(self, scene):
        scene.look(seen=self.queue(20))
        scene.look(seen=self.queue(50, done=11), seconds=299)
        assert scene.look(seen=self.queue(90, done=11), seconds=299) == set()

    def test_a_backlog_that_stands_still_or_is_small_is_none(self, scene):
        scene.look(seen=self.queue(50))
        assert scene.look(seen=self.queue(50), seconds=900) == set()
        scene.look(seen=self.queue(1))
        assert scene.look(seen=self.queue(9), seconds=900) == set()

    def test_an_idle_hour_before_counts_for_nothing(self, scene):
        scene.look(seen=self.queue(0))
        scene.look(seen=self.queue(0), seconds=3600)
        assert scene.look(seen=self.queue(40), seconds=1) == set()

    def test_a_system_without_a_throughput_and_a_paused_queue_are_left_alone(self, scene):
        for seen in (replace(CALM, totals=None), replace(CALM, paused=True)):
            scene.look(seen=replace(seen, waiting=20))
            assert scene.look(seen=replace(seen, waiting=50), seconds=900) == set()


def test_a_follower_tells_nothing_and_forgets():
    scene = Scene(stuck_for=0)
    scene.look(verdict())
    scene.board.follows("lost", leader_seen=True, leader="other")
    assert scene.watch.look(scene.board.view()) is None


def test_every_rule_of_the_settings_has_a_severity():
    from unstuck.config.settings import Webhook

    choices = Webhook.__annotations__["rules"]
    assert all(rule in str(choices) for rule in SEVERITIES)
