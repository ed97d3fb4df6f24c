"""Every alert on both sides of `for` and of `keep_firing_for`, with the text that people will read. promtool judges."""

from pathlib import Path

import pytest

from support.alert_cases_agent import AGENT_CASES
from support.alert_cases_queues import QUEUE_CASES, SLO_CASES
from support.alert_story import AGENT, FINISHED, IDLE, QUEUE, RUNNING, STUCK, WAITING, Told, always, q
from support.promtool import Story, alerts, document, run

STORIES = [
    *(Story("rules", alert, case) for alert, case in {**AGENT_CASES, **QUEUE_CASES}.items()),
    *(Story("slo", alert, case) for alert, case in SLO_CASES.items()),
]


def fires(tmp_path: Path, alert: str, minute: int, labels: dict[str, str] | None, series: dict[str, str]) -> str:
    """What promtool has against the alert firing with these labels (None: not at all) in that minute."""
    told = {"severity": alerts("rules")[alert]["labels"]["severity"], **(labels or {})}
    inside = ", ".join(f'{name}="{value}"' for name, value in sorted({"alertname": alert, **told}.items()))
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'sum without (alertstate) (ALERTS{{alertname="{alert}", alertstate="firing"}})',
                "eval_time": f"{minute}m",
                "exp_samples": [] if labels is None else [{"labels": f"{{{inside}}}", "value": 1}],
            }
        ],
    }
    return run(document("rules", [test]), tmp_path)


def test_every_alert_has_its_story():
    assert set(alerts("rules", "slo")) == {story.alert for story in STORIES}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.alert)
def test_it_is_pending_then_firing_then_gone_exactly_when_its_rule_says_so(story: Story, tmp_path: Path):
    assert run(story.document(), tmp_path) == ""


def test_an_agent_that_no_target_knows_is_as_bad_as_one_that_is_down(tmp_path):
    series = {'up{job="node", instance="a:9100"}': "1x60"}
    assert fires(tmp_path, "UnstuckAgentDown", 10, {"job": "unstuck"}, series) == ""


def test_a_standby_that_is_down_is_no_downfall_of_all(tmp_path):
    series = {'up{job="unstuck", instance="a:1"}': "1x60", 'up{job="unstuck", instance="b:1"}': "0x60"}
    assert fires(tmp_path, "UnstuckAgentDown", 30, None, series) == ""


def test_an_agent_without_rights_that_observes_alone_needs_no_leader(tmp_path):
    series = {
        'unstuck_leader{job="unstuck", instance="a:1"}': "0x60",
        'unstuck_gate_open{job="unstuck", instance="a:1", source="default"}': "1x60",
    }
    assert fires(tmp_path, "UnstuckNoLeader", 30, None, series) == ""


def test_waiting_goes_on_when_another_agent_takes_the_lead(tmp_path):
    """The instance of the series changes in the middle of `for`."""
    mail = 'job="unstuck", backend="unstuck", queue="mail", reason="worker_gone"'
    series = {
        f'unstuck_stuck_jobs{{instance="a:1", {mail}}}': "1x6 stale",
        f'unstuck_stuck_jobs{{instance="b:1", {mail}}}': "_x6 1x60",
        'unstuck_reclaim_enabled{instance="a:1", job="unstuck", backend="unstuck", queue="mail"}': "1x6 stale",
        'unstuck_reclaim_enabled{instance="b:1", job="unstuck", backend="unstuck", queue="mail"}': "_x6 1x60",
    }
    assert fires(tmp_path, "UnstuckStuckJobsNotReclaimed", 15, QUEUE, series) == ""


def test_a_lost_scrape_does_not_begin_the_wait_anew(tmp_path):
    series = {STUCK: "1x8 stale 1x60", q("unstuck_reclaim_enabled"): "1x8 stale 1x60"}
    assert fires(tmp_path, "UnstuckStuckJobsNotReclaimed", 15, QUEUE, series) == ""


def test_stuck_jobs_that_vanish_with_the_agent_go_on_firing_for_a_while(tmp_path):
    """A failed scrape makes ages and counts vanish; the alert must not resolve by that."""
    series = {STUCK: "1x9 stale _x60", f"up{{{AGENT}}}": "1x9 0x60"}
    assert fires(tmp_path, "UnstuckStuckJobs", 15, QUEUE, series) == ""


class TestBacklogThatRises:
    """C83 and its kin, with and without a throughput that the queue system tells of."""

    def test_a_system_that_tells_no_throughput_is_judged_by_a_backlog_that_never_falls(self, tmp_path):
        series = {WAITING: "20+5x60", IDLE: "2x60"}
        assert fires(tmp_path, "UnstuckBacklogRising", 20, QUEUE, series) == ""
        assert fires(tmp_path, "UnstuckQueueNotDraining", 20, QUEUE, series) == ""

    def test_a_backlog_that_falls_now_and_then_is_worked_off(self, tmp_path):
        series = {WAITING: " ".join(f"{40 + n} {30 + n}" for n in range(40)), IDLE: "2x80"}
        assert fires(tmp_path, "UnstuckBacklogRising", 40, None, series) == ""
        assert fires(tmp_path, "UnstuckQueueNotDraining", 40, None, series) == ""

    def test_a_paused_queue_is_not_meant_to_drain(self, tmp_path):
        series = {WAITING: "20+5x60", IDLE: "2x60", q("unstuck_queue_paused"): "1x60"}
        assert fires(tmp_path, "UnstuckBacklogRising", 40, None, series) == ""
        assert fires(tmp_path, "UnstuckQueueNotDraining", 40, None, series) == ""

    def test_workers_that_take_nothing_after_redis_came_back_are_told_of(self, tmp_path):
        series = {WAITING: "3x60", IDLE: "4x60", RUNNING: "0x60", FINISHED: "100x60"}
        assert fires(tmp_path, "UnstuckQueueNotDraining", 16, QUEUE, series) == ""

    def test_a_small_rising_backlog_wakes_nobody(self, tmp_path):
        series = {WAITING: "0+0.1x60", FINISHED: "100x60"}
        assert fires(tmp_path, "UnstuckBacklogRising", 40, None, series) == ""


def test_one_old_dead_letter_does_not_stay_red_for_ever(tmp_path):
    series = {q("unstuck_dead_letter_jobs"): Told(0, 1, 1).values(20)}
    assert fires(tmp_path, "UnstuckDeadLettersGrowing", 20, QUEUE, series) == ""
    assert fires(tmp_path, "UnstuckDeadLettersGrowing", 120, None, series) == ""


def test_a_retried_dead_letter_is_no_growth(tmp_path):
    series = {q("unstuck_dead_letter_jobs"): "9-1x8 0x60"}
    assert fires(tmp_path, "UnstuckDeadLettersGrowing", 30, None, series) == ""


def test_a_redis_without_a_limit_is_never_nearly_full(tmp_path):
    source = 'job="unstuck", instance="a:1", source="default"'
    series = {
        f"unstuck_redis_memory_used_bytes{{{source}}}": always(1e12).values(60),
        f"unstuck_redis_memory_max_bytes{{{source}}}": always(0).values(60),
    }
    assert fires(tmp_path, "UnstuckRedisMemoryHigh", 60, None, series) == ""
