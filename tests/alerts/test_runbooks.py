"""Every alert has a runbook and every runbook an alert; each names commands that exist."""

import re

import pytest

from support.promtool import ALERTS, alerts
from unstuck.cli import COMMANDS, main
from unstuck_exporters.prometheus import FAMILIES
from unstuck_exporters.rules import table

EVERY = alerts("rules", "slo")
PAGES = {page.stem: page.read_text() for page in (ALERTS / "runbooks").glob("*.md")}
DOCS = (ALERTS.parent / "docs" / "alerts.md").read_text()


def test_every_alert_has_a_runbook_and_every_runbook_an_alert():
    assert set(PAGES) == set(EVERY)


def test_the_table_of_alerts_is_made_from_the_rules():
    assert table() in DOCS, "run `make alerts`"


@pytest.mark.parametrize("alert", EVERY)
class TestRunbook:
    def test_it_has_the_four_sections_and_says_something_in_each(self, alert):
        title, *sections = re.split(r"^## ", PAGES[alert], flags=re.MULTILINE)
        assert title.startswith(f"# {alert}\n\n{EVERY[alert]['annotations']['summary']} ")
        assert f"Severity: {EVERY[alert]['labels']['severity']}." in title
        assert [section.split("\n")[0] for section in sections] == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
        assert all(len(section.split("\n", 1)[1].strip()) > 10 for section in sections)

    def test_it_names_the_command_to_run(self, alert):
        named = re.findall(r"`(?:\w+ \| )?unstuck ([a-z]+)", PAGES[alert])
        assert named
        assert set(named) <= set(COMMANDS) | {"brake"}

    def test_it_speaks_only_of_metrics_and_alerts_that_exist(self, alert):
        families = {family.name for family in FAMILIES}
        metrics = set(re.findall(r"\bunstuck_[a-z_]+", PAGES[alert]))
        assert metrics <= families
        assert set(re.findall(r"\bUnstuck[A-Z]\w+", PAGES[alert])) <= set(EVERY)


@pytest.fixture
def unstuck(capsys):
    def unstuck(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(args))
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return unstuck


class TestCommand:
    def test_rules_prints_the_files_as_they_are_shipped(self, unstuck):
        for args, name in (
            ((), "rules"),
            (("--slo",), "slo"),
            (("--alertmanager",), "alertmanager"),
            (("--thresholds",), "thresholds"),
            (("--runbook", "UnstuckRedisDown"), "runbooks/UnstuckRedisDown"),
        ):
            file = ALERTS / f"{name}{'.md' if 'runbooks' in name else '.yml'}"
            assert unstuck("rules", *args) == (0, file.read_text(), "")

    def test_a_threshold_can_be_set_on_the_way(self, unstuck):
        _, told, _ = unstuck("rules", "--set", "latency_seconds=61", "--set", 'selector=job="jobs-eu"')
        assert "age_seconds:max > 61\n" in told
        assert 'unstuck_leader{job="jobs-eu"}' in told

    @pytest.mark.parametrize(
        ("args", "told"),
        [
            (["--set", "latency_second=1"], "did you mean `latency_seconds`?"),
            (["--set", "latency_seconds=soon"], "write a number"),
            (["--set", "latency_seconds=-3"], "latency_seconds=-3 is not taken; write a number of 0 or more"),
            (["--set", "stuck_for=-5m"], "stuck_for=-5m is not taken; write a duration such as 5m"),
            (["--set", "stuck_for=5"], "write a duration such as 5m"),
            (["--set", "stuck_for"], "write --set NAME=VALUE"),
            (["--set", "grafana="], "is empty"),
            (["--slo", "--alertmanager"], "exclude each other"),
            (["--alertmanager", "--set", "stuck_jobs=1"], "--set changes rules only"),
            (["--runbook", "UnstuckRedisDwon"], "did you mean `UnstuckRedisDown`?"),
        ],
    )
    def test_a_wrong_call_says_what_would_be_right(self, args, told, unstuck):
        code, out, err = unstuck("rules", *args)
        assert (code, out) == (2, "")
        assert told in err
