"""The shipped Alertmanager configuration: valid, routed by severity, and one fault makes one page."""

import re
import subprocess
from typing import Any

import pytest
import yaml

from support.programs import program
from support.promtool import ALERTS, alerts

CONFIG = ALERTS / "alertmanager.yml"
RECEIVERS = {"critical": "unstuck-pager", "warning": "unstuck-chat", "info": "unstuck-log"}
EVERY = alerts("rules", "slo")


def amtool(*args: Any) -> str:
    done = subprocess.run(
        [program("amtool", package="prometheus-alertmanager"), *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules() -> list[dict[str, Any]]:
    return list(yaml.safe_load(CONFIG.read_text())["inhibit_rules"])


def matches(matchers: list[str], labels: dict[str, str]) -> bool:
    for text in matchers:
        name, op, value = re.fullmatch(r'(\w+)(=~|!~|!=|=)"([^"]*)"', text).groups()
        same = re.fullmatch(value, labels.get(name, "")) if "~" in op else labels.get(name, "") == value
        if bool(same) == op.startswith("!"):
            return False
    return True


def mutes(source: str, target: str) -> bool:
    """Whether an alert mutes another one of the same job and queue."""
    return any(
        matches(rule["source_matchers"], {"alertname": source})
        and matches(rule["target_matchers"], {"alertname": target})
        for rule in rules()
        if not matches(rule["source_matchers"], {"alertname": target})
    )


def test_amtool_takes_the_configuration():
    assert "SUCCESS" in amtool("check-config", CONFIG)


@pytest.mark.parametrize("severity", RECEIVERS)
def test_an_alert_goes_to_the_receiver_of_its_severity(severity):
    name = next(name for name, rule in EVERY.items() if rule["labels"]["severity"] == severity)
    told = amtool("config", "routes", "test", f"--config.file={CONFIG}", f"alertname={name}", f"severity={severity}")
    assert told.split() == [RECEIVERS[severity]]


def test_alerts_of_others_are_left_to_the_default():
    told = amtool("config", "routes", "test", f"--config.file={CONFIG}", "alertname=HostDown", "severity=critical")
    assert told.split() == ["unstuck-chat"]


def test_every_receiver_is_a_webhook_and_is_used():
    told = yaml.safe_load(CONFIG.read_text())
    assert {receiver["name"] for receiver in told["receivers"]} == set(RECEIVERS.values())
    assert all(receiver["webhook_configs"] for receiver in told["receivers"])


def test_every_matcher_names_alerts_that_exist():
    for rule in rules():
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            for name in re.search(r'"([^"]*)"', matcher)[1].split("|"):
                assert any(re.fullmatch(name, known) for known in EVERY), name


@pytest.mark.parametrize("source", ["UnstuckAgentDown", "UnstuckRedisDown"])
def test_an_agent_or_a_redis_that_is_down_mutes_all_that_follows_from_it(source):
    spared = {"UnstuckAgentDown", "UnstuckRedisDown", "UnstuckStandbyDown"} if "Redis" in source else {source}
    assert {name for name in EVERY if not mutes(source, name)} == spared


def test_without_a_leader_stuck_jobs_are_no_second_page():
    assert mutes("UnstuckNoLeader", "UnstuckStuckJobsNotReclaimed")
    assert not mutes("UnstuckNoLeader", "UnstuckQueueHasNoWorkers")


def test_an_evicting_redis_does_not_mute_locks_without_expiry():
    assert not mutes("UnstuckRedisEvicting", "UnstuckLocksWithoutExpiry")


def test_no_two_alerts_mute_each_other():
    assert [(a, b) for a in EVERY for b in EVERY if a < b and mutes(a, b) and mutes(b, a)] == []


def test_a_queue_mutes_only_itself():
    for rule in rules():
        about_queues = not any("Down" in text or "Leader" in text or "Gate" in text for text in rule["source_matchers"])
        assert rule["equal"] == (["job", "backend", "queue"] if about_queues else ["job"])
