"""The rules of mixtool, pint and promtool's linter that apply, and that every rule speaks of metrics that exist."""

import functools
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import promql_parser as promql
import pytest
import yaml

from support.programs import promtool_program
from support.promtool import ALERTS, alerts, groups, rules
from unstuck_exporters import labels
from unstuck_exporters.prometheus import FAMILIES
from unstuck_exporters.rules import TEMPLATES, rendered, thresholds

FILES = ("rules", "slo")
FAMILY = {family.name: family for family in FAMILIES}
RECORDS = {rule["record"]: rule for rule in rules(*FILES) if "record" in rule}
EVERY = [pytest.param(rule, id=rule.get("alert") or rule["record"]) for rule in rules(*FILES)]
ALERTING = [pytest.param(rule, id=name) for name, rule in alerts(*FILES).items()]
COUNTING = {"rate", "increase", "resets"}
"""Functions under which a counter may stand; changes of gauges have functions of their own."""
GAUGING = {"delta", "deriv", "changes", "last_over_time", "max_over_time", "min_over_time", "avg_over_time"}
SCRAPE_SECONDS = 60
TARGET_LABELS = {"job", "instance", "pod"}


def nodes(expr: promql.Expr, *above: promql.Expr) -> Iterator[tuple[promql.Expr, tuple[promql.Expr, ...]]]:
    """Every node with the nodes above it."""
    yield expr, above
    for child in children(expr):
        yield from nodes(child, *above, expr)


def children(expr: promql.Expr) -> list[Any]:
    match expr:
        case promql.BinaryExpr():
            return [expr.lhs, expr.rhs]
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return [expr.expr]
        case promql.Call():
            return list(expr.args)
        case promql.MatrixSelector():
            return [expr.vector_selector] if hasattr(expr, "vector_selector") else [expr.vs]
    return []


def parsed(rule: dict[str, Any]) -> promql.Expr:
    return _parsed(rule["expr"])


@functools.cache
def _parsed(text: str) -> promql.Expr:
    return promql.parse(text)


def selectors(rule: dict[str, Any]) -> list[tuple[Any, tuple[promql.Expr, ...]]]:
    return [(node, above) for node, above in nodes(parsed(rule)) if isinstance(node, promql.VectorSelector)]


def family_of(name: str) -> str | None:
    """The family of a sample's name."""
    for suffix in ("", "_bucket", "_count", "_sum"):
        if name.endswith(suffix) and (family := FAMILY.get(name.removesuffix(suffix) if suffix else name)):
            return family.name if not suffix or family.kind == "histogram" else None
    return None


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_files_are_made_from_the_templates_and_the_thresholds(name):
    assert (ALERTS / f"{name}.yml").read_text() == rendered(name), "run `make alerts`"


@pytest.mark.parametrize("name", FILES)
def test_promtool_finds_nothing_to_complain_about(name):
    command = [promtool_program(), "check", "rules", "--lint=all", "--lint-fatal", ALERTS / f"{name}.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_threshold_is_used_and_explained_by_its_name():
    text = "".join((ALERTS / "templates" / f"{name}.yml").read_text() for name in TEMPLATES)
    used = set(re.findall(r"<([a-z][a-z0-9_]*)>", text)) | {"runbook_base"}
    assert used == set(thresholds())


def test_no_threshold_stands_in_the_templates_as_a_number():
    """Only 0 and 1, which ask for yes or no, and the burn rates of the Kubernetes mixin."""
    changed = {name: "7777" for name, value in thresholds().items() if re.fullmatch(r"\d+(\.\d+)?", value)}
    for rule in yaml.safe_load(rendered("rules", changed))["groups"][1:]:
        for alert in rule["rules"]:
            expr = re.sub(r"\[\w+\]|\"[^\"]*\"", "", alert["expr"])
            assert set(re.findall(r"(?<![\w:.])\d+(?:\.\d+)?(?![\w:])", expr)) <= {"0", "1", "7777"}, alert["alert"]


class TestNames:
    """mixtool."""

    @pytest.mark.parametrize("rule", ALERTING)
    def test_an_alert_is_named_in_camel_case_with_our_prefix(self, rule):
        name = rule["alert"]
        assert re.fullmatch(r"([A-Z]+[a-z0-9]+)+", name)
        assert name.startswith("Unstuck")
        assert len(name) <= 40

    @pytest.mark.parametrize("file", FILES)
    def test_a_group_has_a_short_name_and_at_most_twenty_rules(self, file):
        for group in groups(file):
            assert re.fullmatch(r"[a-z_]{1,40}", group["name"])
            assert len(group["rules"]) <= 20
            assert "interval" not in group

    @pytest.mark.parametrize("name", RECORDS)
    def test_a_recording_rule_is_named_level_metric_operations(self, name):
        level, metric, operations = name.split(":")
        assert level in {"job", "queue"}
        assert re.fullmatch(r"(sum|max|min|ratio_)?(rate\d+[mhd])?", operations)
        # `_total` goes with the rate; what became an age is no time stamp any more.
        assert not metric.endswith(("_total", "_timestamp_seconds"))

    def test_no_alert_and_no_record_is_there_twice(self):
        names = [rule.get("alert") or rule["record"] for rule in rules(*FILES)]
        assert len(names) == len(set(names))
        expressions = [rule["expr"] for rule in rules(*FILES)]
        assert len(expressions) == len(set(expressions))


@pytest.mark.parametrize("rule", ALERTING)
class TestAnnotations:
    """mixtool, and what kubernetes-mixin does by hand."""

    def test_the_severity_is_one_of_three(self, rule):
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}

    def test_no_label_holds_a_value_that_changes(self, rule):
        assert not any("{{" in str(value) for value in rule["labels"].values())

    def test_the_summary_is_one_plain_sentence(self, rule):
        summary = rule["annotations"]["summary"]
        assert re.fullmatch(r"[A-Z][^{}]*\.", summary)
        assert len(summary) <= 80

    def test_the_description_names_what_it_is_about(self, rule):
        description = rule["annotations"]["description"]
        assert "{{ $labels." in description
        assert description.endswith(".")

    def test_it_has_a_runbook_and_a_dashboard(self, rule):
        annotations = rule["annotations"]
        assert annotations["runbook_url"] == f"{thresholds()['runbook_base']}/{rule['alert']}.md"
        assert re.match(
            r"http://grafana:3000/d/unstuck-(overview|queue|reclaims|agent)(\?|$)", annotations["dashboard_url"]
        )

    def test_the_labels_that_its_texts_speak_of_are_there(self, rule):
        """pint, alerts/template: an aggregation may have taken them away."""
        spoken = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert spoken <= labels_of(parsed(rule))


def labels_of(expr: promql.Expr) -> set[str]:
    """The labels that a result can have, as far as aggregations and matching tell."""
    match expr:
        case promql.VectorSelector():
            if expr.name in RECORDS:
                return labels_of(parsed(RECORDS[expr.name]))
            if expr.name == "up":
                return set(TARGET_LABELS)
            family = FAMILY[family_of(expr.name or "") or ""]
            return {*family.labels, *TARGET_LABELS, *(("le",) if str(expr.name).endswith("_bucket") else ())}
        case promql.AggregateExpr():
            assert expr.modifier is not None, "an aggregation over everything loses all labels"
            assert expr.modifier.type == promql.AggModifierType.Without, "aggregate with `without`, not with `by`"
            return labels_of(expr.expr) - set(expr.modifier.labels)
        case promql.BinaryExpr():
            sides = [labels_of(side) for side in (expr.lhs, expr.rhs) if not scalar(side)]
            if str(expr.op) == "or":
                return sides[0] & sides[1]
            return sides[0]
        case promql.Call() if expr.func.name == "absent":
            return {"job"}
        case promql.Call():
            return labels_of(expr.args[0]) if list(expr.args) else set()
    inner = children(expr)
    return labels_of(inner[0]) if inner else set()


def scalar(expr: promql.Expr) -> bool:
    if isinstance(expr, promql.Call):
        return expr.func.name == "time"
    if isinstance(expr, (promql.ParenExpr, promql.UnaryExpr)):
        return scalar(expr.expr)
    if isinstance(expr, promql.BinaryExpr):
        return scalar(expr.lhs) and scalar(expr.rhs)
    return isinstance(expr, promql.NumberLiteral)


@pytest.mark.parametrize("rule", EVERY)
class TestExpressions:
    """pint, where it applies without a server."""

    def test_it_uses_only_metrics_and_records_that_exist(self, rule):
        for node, _ in selectors(rule):
            known = node.name == "up" or node.name in RECORDS or family_of(node.name) is not None
            assert known, f"{node.name} is neither in the catalogue nor recorded"

    def test_it_asks_for_labels_and_values_that_exist(self, rule):
        values = {
            "unstuck_queue_jobs": {"state": labels.JOB_STATES},
            "unstuck_queue_workers": {"state": labels.WORKER_STATES},
            "unstuck_leader_transitions_total": {"event": labels.LEADER_EVENTS},
        }
        for node, _ in selectors(rule):
            if node.name in RECORDS or node.name == "up":
                continue
            for matcher in node.matchers.matchers:
                if matcher.name in {"job", "le"}:
                    continue
                assert matcher.name in FAMILY[family_of(node.name)].labels
                known = values.get(node.name, {}).get(matcher.name)
                assert known is None or matcher.value in known

    def test_every_metric_is_picked_by_the_selector_of_the_agents(self, rule):
        for node, _ in selectors(rule):
            if node.name not in RECORDS:
                assert any((m.name, m.value) == ("job", "unstuck") for m in node.matchers.matchers)

    def test_a_counter_is_only_looked_at_through_its_growth(self, rule):
        for node, above in selectors(rule):
            family = FAMILY.get(family_of(node.name or "") or "")
            functions = {one.func.name for one in above if isinstance(one, promql.Call)}
            if family is None:
                continue
            if family.kind in {"counter", "histogram"}:
                assert functions & COUNTING
            else:
                assert not functions & COUNTING

    def test_a_window_is_at_least_four_scrapes_long_and_growth_twice_that(self, rule):
        for node, above in nodes(parsed(rule)):
            if isinstance(node, promql.MatrixSelector):
                seconds = node.range.total_seconds()
                function = next(one.func.name for one in reversed(above) if isinstance(one, promql.Call))
                assert function in COUNTING | GAUGING
                assert seconds >= (4 if function in COUNTING else 2) * SCRAPE_SECONDS

    def test_regular_expressions_are_not_used_where_a_word_would_do(self, rule):
        for node, _ in selectors(rule):
            for matcher in node.matchers.matchers:
                assert matcher.op in (promql.MatchOp.Equal, promql.MatchOp.NotEqual)

    def test_a_division_cannot_be_by_zero(self, rule):
        for node, _ in nodes(parsed(rule)):
            if isinstance(node, promql.BinaryExpr) and str(node.op) == "/":
                assert isinstance(node.rhs, promql.ParenExpr)
                assert str(node.rhs.expr.op) == ">"

    def test_both_sides_of_an_operator_have_the_same_labels(self, rule):
        for node, _ in nodes(parsed(rule)):
            if not isinstance(node, promql.BinaryExpr) or scalar(node.lhs) or scalar(node.rhs):
                continue
            left, right = labels_of(node.lhs), labels_of(node.rhs)
            if str(node.op) == "or":
                continue
            matching = node.modifier.matching if node.modifier else None
            ignored = set(matching.labels) if matching else set()
            assert left - ignored == right - ignored

    def test_nothing_fragile_is_in_it(self, rule):
        for node, _ in nodes(parsed(rule)):
            if isinstance(node, promql.AggregateExpr):
                assert str(node.op) in {"sum", "max", "min"}


@pytest.mark.parametrize("rule", ALERTING)
class TestAlertExpressions:
    """pint, alerts only."""

    def test_it_compares_with_something(self, rule):
        assert compares(parsed(rule)), "would fire whatever the value"

    def test_absence_is_believed_only_after_a_while(self, rule):
        if "absent(" in rule["expr"]:
            assert rule["for"] == "2m"

    def test_it_has_no_empty_wait(self, rule):
        assert rule.get("for") not in {"0s", "0m"}

    def test_what_fires_at_once_looks_back_over_a_window(self, rule):
        if "for" not in rule:
            assert "increase(" in rule["expr"]

    def test_what_depends_on_data_of_queues_outlives_a_scrape_that_fails(self, rule):
        """Stale data would resolve it in silence (C95)."""
        if rule["labels"]["severity"] == "critical" and "queue:" in rule["expr"] and "slo" not in rule["expr"]:
            assert "keep_firing_for" in rule or "rate1h" in rule["expr"] or "rate6h" in rule["expr"]


def compares(expr: promql.Expr) -> bool:
    if isinstance(expr, promql.BinaryExpr):
        if str(expr.op) in {"and", "unless"}:
            return compares(expr.lhs) or compares(expr.rhs)
        if str(expr.op) == "or":
            return compares(expr.lhs) and compares(expr.rhs)
        return str(expr.op) in {">", "<", ">=", "<=", "==", "!="}
    if isinstance(expr, promql.Call):
        return expr.func.name == "absent"
    return any(compares(child) for child in children(expr))
