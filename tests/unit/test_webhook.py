"""Webhooks against real receivers: what is sent when, and receivers that are slow, hang, refuse or are not there."""

import threading
import time
from pathlib import Path

import pytest

from support.boards import server, snapshot, verdict
from support.hooks import receiving
from support.ports import free_port
from support.waiting import wait_until
from unstuck.clock import ManualClock, SystemClock
from unstuck.config.settings import Alarms, Webhook
from unstuck.config.units import HookUrl, Seconds
from unstuck.errors import ConfigurationError
from unstuck.model import GateState
from unstuck_exporters import delivery
from unstuck_exporters.board import Board
from unstuck_exporters.delivery import MOST_WAITING, Outcome, Receiver, Target, post
from unstuck_exporters.messages import signature
from unstuck_exporters.webhook import MOST_ALARMS, Notifier, targets, trial


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(delivery, "LONGEST_PAUSE_SECONDS", 0.1)


def hook(url: str, **more) -> Webhook:
    more = {
        name: Seconds(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
        for name, value in more.items()
    }
    return Webhook(url=HookUrl(url), **{"group_interval": Seconds(0), "timeout": Seconds(2), **more})


class Scene:
    """An agent's board, and a notifier that looks at it."""

    def __init__(self, *hooks: Webhook, **alarms: float) -> None:
        self.clock = ManualClock()
        self.board = Board(version="1.2", clock=self.clock)
        self.board.leads(1)
        self.board.gated(GateState(open=True))
        self.notifier = Notifier(Alarms(**{"stuck_for": Seconds(0), **alarms}), hooks, self.board, self.clock)

    def look(self, *stuck: str, seconds: float = 1.0, queues: tuple[str, ...] = ("mail",)) -> None:
        self.clock.advance(seconds)
        self.board.redis_answered("look", 0.001)
        self.board.saw_server(server(self.clock))
        self.board.looked("unstuck", [snapshot(queue) for queue in queues])
        for queue in queues:
            self.board.judged("unstuck", queue, [verdict(job, queue=queue) for job in stuck])
        self.notifier.look()

    def metric(self, name: str, receiver: str = "json-1") -> int:
        ledger = self.board.view().agent
        if name == "suppressed":
            return {cause: n for (who, cause), n in ledger.suppressions.items() if who == receiver}  # type: ignore[return-value]
        if name == "waiting":
            return ledger.notifications_waiting[receiver]
        return {"sent": ledger.notifications, "failed": ledger.notification_failures}[name][receiver,]


@pytest.fixture
def hooks():
    with receiving() as hooks:
        yield hooks


class TestCourse:
    def test_an_alarm_is_told_once_and_its_end_once(self, hooks):
        scene = Scene(hook(hooks.url))
        for _ in range(5):
            scene.look("j1")
        scene.look()
        for _ in range(5):
            scene.look(seconds=11)
        fires, ends = (one.json() for one in hooks.wait(2))
        assert [(one["status"], one["alarms"][0]["rule"]) for one in (fires, ends)] == [
            ("firing", "stuck_jobs"),
            ("resolved", "stuck_jobs"),
        ]
        assert fires["alarms"][0]["jobs"][0]["job"] == "j1"
        wait_until(lambda: scene.metric("waiting") == 0)
        assert (len(hooks.posts), scene.metric("sent"), scene.metric("failed")) == (2, 2, 0)

    def test_what_goes_on_is_told_again_after_the_repeat_interval(self, hooks):
        scene = Scene(hook(hooks.url, repeat_interval=3600))
        scene.look("j1")
        scene.look("j1", seconds=3599)
        scene.look("j1", seconds=1)
        told = [one.json()["alarms"][0]["repeat"] for one in hooks.wait(2)]
        assert told == [0, 1]

    def test_endings_are_left_out_where_nobody_wants_them(self, hooks):
        scene = Scene(hook(hooks.url, send_resolved=False))
        scene.look("j1")
        scene.look(seconds=30)
        scene.look(seconds=30)
        scene.look("j1", seconds=30)
        assert [one.json()["status"] for one in hooks.wait(2)] == ["firing", "firing"]

    def test_a_hundred_queues_are_two_messages_and_not_a_hundred(self, hooks):
        scene = Scene(hook(hooks.url))
        queues = tuple(f"q{n}" for n in range(100))
        scene.look("j1", queues=queues)
        scene.look("j1", queues=queues)
        scene.look("j1", queues=queues)
        told = [len(one.json()["alarms"]) for one in hooks.wait(2)]
        assert told == [MOST_ALARMS, 100 - MOST_ALARMS]

    def test_what_comes_within_the_group_interval_waits_and_is_put_together(self, hooks):
        scene = Scene(hook(hooks.url, group_interval=30))
        scene.look("j1", queues=("a",))
        scene.look("j1", queues=("a", "b"), seconds=10)
        scene.look("j1", queues=("a", "b", "c"), seconds=10)
        scene.look("j1", queues=("a", "b", "c"), seconds=10)
        told = [sorted(alarm["queue"] for alarm in one.json()["alarms"]) for one in hooks.wait(2)]
        assert told == [["a"], ["b", "c"]]

    def test_a_receiver_hears_only_of_the_rules_it_asked_for(self, hooks):
        scene = Scene(hook(hooks.url, rules=("redis_away",)), redis_away_for=Seconds(0))
        scene.look("j1")
        scene.board.redis_failed("look", "timeout", detail="Redis did not answer in time")
        scene.notifier.look()
        (told,) = hooks.wait(1)
        assert [alarm["rule"] for alarm in told.json()["alarms"]] == ["redis_away"]

    def test_alertmanager_is_told_every_minute_at_its_own_path(self, hooks):
        scene = Scene(hook(hooks.url, format="alertmanager", repeat_interval=86400, send_resolved=False))
        scene.look("j1")
        scene.look("j1", seconds=59)
        scene.look("j1", seconds=1)
        scene.look(seconds=1)
        scene.look(seconds=11)
        told = hooks.wait(3)
        assert {one.path for one in told} == {"/api/v2/alerts"}
        ends = told[-1].json()[0]
        assert ends["endsAt"] < told[0].json()[0]["endsAt"]

    def test_a_former_leader_forgets_in_silence(self, hooks):
        scene = Scene(hook(hooks.url))
        scene.look("j1")
        hooks.wait(1)
        scene.board.follows("lost", leader_seen=True)
        scene.look(seconds=60)
        scene.board.leads(2)
        scene.look("j1")
        assert [one.json()["status"] for one in hooks.wait(2)] == ["firing", "firing"]


class TestTrouble:
    def test_a_transient_failure_is_tried_again_with_the_same_id_until_it_works(self, hooks):
        hooks.behaviours = [500, "cut", (429, {"Retry-After": "0"}), 503, 204]
        scene = Scene(hook(hooks.url))
        scene.look("j1")
        told = hooks.wait(5)
        assert len({one.headers["webhook-id"] for one in told}) == 1
        assert len({one.body for one in told}) == 1
        wait_until(lambda: scene.metric("waiting") == 0)
        assert (scene.metric("sent"), scene.metric("failed")) == (5, 4)

    @pytest.mark.parametrize("status", [301, 400, 401, 404, 410])
    def test_a_permanent_failure_is_not_tried_again(self, hooks, status):
        hooks.behaviours = [(status, {"Location": "/elsewhere"}), 200]
        scene = Scene(hook(hooks.url))
        scene.look("j1")
        wait_until(lambda: scene.metric("suppressed") == {"permanent": 1})
        scene.look("j1")
        wait_until(lambda: scene.metric("waiting") == 0)
        assert (len(hooks.posts), scene.metric("failed")) == (1, 1)

    def test_retry_after_is_heeded(self, hooks):
        hooks.behaviours = [(503, {"Retry-After": "1"}), 200]
        scene = Scene(hook(hooks.url))
        scene.look("j1")
        first, second = hooks.wait(2)
        assert second.at - first.at >= 1.0

    def test_a_receiver_that_is_not_there_is_given_up_after_a_while(self):
        scene = Scene(hook(f"http://127.0.0.1:{free_port()}", give_up_after=5))
        scene.look("j1")

        def given_up() -> bool:
            scene.clock.advance(1)
            return scene.metric("suppressed") == {"expired": 1}

        wait_until(given_up, 30)
        assert scene.metric("failed") >= 1

    @pytest.mark.parametrize("behaviour", ["hang", "drip"])
    def test_a_receiver_that_hangs_delays_no_pass_and_no_other_receiver(self, hooks, behaviour):
        with receiving(behaviour) as hanging:
            scene = Scene(hook(hanging.url, timeout=1), hook(hooks.url))
            begun = time.monotonic()
            for n in range(50):
                scene.look(f"j{n}", seconds=4 * 3600)
            assert time.monotonic() - begun < 20  # a hanging one would hold a pass for a second each
            hooks.wait(1)
            assert len(hanging.wait(1)) == 1

    def test_a_full_queue_refuses_and_the_alarm_comes_later(self, hooks):
        hooks.behaviours = ["hang"]
        scene = Scene(hook(hooks.url, repeat_interval=1, timeout=30))
        for _ in range(MOST_WAITING + 5):
            scene.look("j1")
        assert scene.metric("waiting") == MOST_WAITING
        assert scene.metric("suppressed") == {"queue_full": 5}

    def test_a_mistake_of_ours_ends_no_thread(self):
        def broken(target, message, now) -> Outcome:
            calls.append(message)
            raise RuntimeError("a bug")

        calls: list[object] = []
        board = Board(clock=ManualClock())
        receiver = Receiver(Target("x", "http://x", "json", 1, 60), board, SystemClock(), send=broken)
        receiver.offer(trial(1.0, agent="1"))
        receiver.offer(trial(1.0, agent="1"))
        wait_until(lambda: len(calls) == 2)
        receiver.close()

    def test_closing_does_not_wait_for_a_receiver_that_hangs(self, hooks):
        hooks.behaviours = ["hang"]
        scene = Scene(hook(hooks.url, timeout=30))
        scene.look("j1")
        hooks.wait(1)
        begun = time.monotonic()
        scene.notifier.close(patience=0.1)
        assert time.monotonic() - begun < 5

    def test_what_waits_is_still_delivered_at_the_end_if_it_can_be(self, hooks):
        scene = Scene(hook(hooks.url))
        scene.look("j1")
        scene.notifier.close(patience=30)
        assert len(hooks.posts) == 1


class TestSecrets:
    def test_a_message_is_signed_with_the_secret_as_it_is_in_the_file_now(self, hooks, tmp_path: Path):
        file = tmp_path / "secret"
        file.write_text("first\n")
        scene = Scene(hook(hooks.url, secret_file=str(file), repeat_interval=1))
        scene.look("j1")
        hooks.wait(1)
        file.write_text("second\n")
        scene.look("j1")
        for one, secret in zip(hooks.wait(2), (b"first", b"second"), strict=True):
            at = int(one.headers["webhook-timestamp"])
            assert one.headers["webhook-signature"] == signature(secret, one.headers["webhook-id"], at, one.body)

    def test_a_secret_that_cannot_be_read_is_a_fault_of_the_configuration(self, tmp_path: Path):
        with pytest.raises(ConfigurationError, match=r"webhooks\[0\].secret_file"):
            targets([hook("http://x", secret_file=str(tmp_path / "none"))])

    def test_a_secret_that_vanishes_later_costs_the_message_and_no_thread(self, hooks, tmp_path: Path):
        file = tmp_path / "secret"
        file.write_text("x")
        scene = Scene(hook(hooks.url, secret_file=str(file)))
        file.unlink()
        scene.look("j1")
        wait_until(lambda: scene.metric("suppressed") == {"permanent": 1})
        assert hooks.posts == []

    def test_the_address_stands_in_no_log_and_no_metric(self, hooks, caplog):
        hooks.behaviours = [404]
        scene = Scene(hook(f"{hooks.url}/T0/s3cret"))
        with caplog.at_level("DEBUG"):
            scene.look("j1")
            wait_until(lambda: hooks.posts and scene.metric("waiting") == 0)
        told = [str(record.__dict__) for record in caplog.records if record.name.startswith("unstuck")]
        assert told
        assert not any("s3cret" in line for line in told)

    def test_two_receivers_of_one_name_are_a_fault_of_the_configuration(self):
        with pytest.raises(ConfigurationError, match="is there twice"):
            targets([hook("http://x", name="pager"), hook("http://y", name="pager")])


def test_without_receivers_there_is_no_thread_and_requests_is_not_loaded(processes):
    code = (
        "import sys, threading\n"
        "from unstuck.agent import Agent\n"
        "from unstuck.config import load\n"
        "Agent(load())\n"
        "assert 'requests' not in sys.modules\n"
        "assert threading.active_count() == 1\n"
    )
    assert processes.python("-c", code).wait(60) == 0


def test_a_certificate_that_is_not_trusted_is_permanent(monkeypatch):
    import requests

    def refuse(*args, **options):
        raise requests.exceptions.SSLError("CERTIFICATE_VERIFY_FAILED")

    monkeypatch.setattr(requests, "post", refuse)
    outcome = post(Target("x", "https://x", "json", 1, 60), trial(1.0, agent="1"), 1.0)
    assert (outcome.ok, outcome.permanent) == (False, True)


def test_delivery_threads_are_named_after_their_receiver(hooks):
    scene = Scene(hook(hooks.url, name="pager"))
    scene.look("j1")
    hooks.wait(1)
    assert any(thread.name == "unstuck-webhook-pager" for thread in threading.enumerate())
