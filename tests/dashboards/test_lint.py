"""The rules of Grafana's dashboard-linter, as far as they speak of dashboards on Prometheus."""

import re

import promql_parser as promql
import pytest

from dashboards.reading import filled, load, nodes, panels, queries, selectors

BOARDS = load()
EVERY = [pytest.param(board, id=uid) for uid, board in BOARDS.items()]
COUNTING = {"rate", "irate", "increase"}
UNITS = {"none", "short", "percentunit", "s", "ops", "bytes"}
"""Those of Grafana's units that we use; all of them are in the linter's list."""


@pytest.mark.parametrize("board", EVERY)
class TestDashboard:
    def test_the_data_source_is_a_variable(self, board):
        (source,) = [one for one in board["templating"]["list"] if one["type"] == "datasource"]
        assert (source["name"], source["label"], source["query"]) == ("datasource", "Data source", "prometheus")

    @pytest.mark.parametrize("name", ["job", "instance"])
    def test_job_and_instance_are_variables_of_which_several_or_all_can_be_chosen(self, board, name):
        (variable,) = [one for one in board["templating"]["list"] if one["name"] == name]
        assert variable["type"] == "query"
        assert variable["label"] == name.capitalize()
        assert variable["datasource"]["uid"] == "${datasource}"
        assert variable["multi"]
        assert variable["includeAll"]
        assert variable["allValue"] == ".+"

    def test_variables_are_asked_for_again_when_the_time_range_changes(self, board):
        for variable in board["templating"]["list"]:
            assert variable["type"] != "query" or variable["refresh"] == 2, variable["name"]

    def test_the_queries_of_variables_are_valid(self, board):
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
                promql.parse(filled(selector))
                assert label == variable["name"]

    def test_it_cannot_be_edited_in_place(self, board):
        assert board["editable"] is False


@pytest.mark.parametrize("board", EVERY)
class TestPanels:
    def test_each_has_a_title_and_a_description_that_says_more(self, board):
        for panel in panels(board):
            assert panel["title"]
            assert len(panel["description"]) > len(panel["title"])
            assert panel["description"].endswith((".", "more.")), panel["title"]

    def test_each_asks_the_chosen_data_source(self, board):
        for panel in panels(board):
            assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
            for target in panel["targets"]:
                assert target["datasource"]["uid"] == "${datasource}", panel["title"]

    def test_each_has_a_unit_of_grafana(self, board):
        for panel in panels(board):
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
            for override in panel["fieldConfig"]["overrides"]:
                units = [one["value"] for one in override["properties"] if one["id"] == "unit"]
                assert set(units) <= UNITS, panel["title"]

    def test_each_asks_something_and_tells_its_queries_apart(self, board):
        for panel in panels(board):
            refs = [target["refId"] for target in panel["targets"]]
            assert refs, panel["title"]
            assert len(refs) == len(set(refs)), panel["title"]


@pytest.mark.parametrize("board", EVERY)
class TestQueries:
    def test_each_is_valid(self, board):
        for query in queries(board):
            assert query.text == query.text.strip(), query
            promql.parse(query.filled)

    def test_every_selector_is_narrowed_by_job_and_instance(self, board):
        for query in queries(board):
            for selector, _ in selectors(query.text):
                matchers = {one.name: str(one.value) for one in selector.matchers.matchers}
                assert matchers["job"] == ".+", query
                if selector.name != "ALERTS":  # alerts speak of all agents together, so they have no instance
                    assert matchers["instance"] == ".+", query
        assert 'job=~"$job"' in query.text

    def test_queries_about_queues_are_narrowed_by_backend_and_queue(self, board):
        for query in queries(board):
            for selector, _ in selectors(query.text):
                names = {one.name for one in selector.matchers.matchers}
                assert ("queue" in names) == ("backend" in names), query

    def test_counters_are_asked_for_their_growth(self, board):
        for query in queries(board):
            for selector, above in selectors(query.text):
                if selector.name.endswith(("_total", "_count", "_bucket")):
                    if selector.name == "unstuck_heartbeat_age_seconds_bucket":
                        continue  # a distribution of the moment, as docs/metrics.md says
                    assert isinstance(above[-1], promql.MatrixSelector), query
                    assert isinstance(above[-2], promql.Call), query
                    assert above[-2].func.name in COUNTING, query

    def test_only_counters_are_asked_for_their_growth(self, board):
        for query in queries(board):
            for selector, above in selectors(query.text):
                if len(above) >= 2 and isinstance(above[-2], promql.Call) and above[-2].func.name in COUNTING:
                    assert selector.name.endswith(("_total", "_count", "_bucket")), query

    def test_rates_use_the_interval_that_fits_the_scrapes(self, board):
        for query in queries(board):
            assert not re.search(r"\bi?rate\([^[]*\[(?!\$__rate_interval\])", query.text), query

    def test_windows_are_the_fitting_interval_or_an_hour_that_the_title_or_description_names(self, board):
        for panel in panels(board):
            for target in panel["targets"]:
                for window in re.findall(r"\[(.*?)\]", target["expr"]):
                    told = panel["title"] + panel["description"]
                    assert window == "$__rate_interval" or (window == "1h" and ("hour" in told or "1 h" in told)), panel

    def test_quantiles_keep_the_bounds_of_the_buckets_and_are_never_nan(self, board):
        for query in queries(board):
            for node, above in nodes(promql.parse(query.filled)):
                if isinstance(node, promql.Call) and node.func.name == "histogram_quantile":
                    assert "le" in node.args[1].modifier.labels, query
                    assert isinstance(above[-1], promql.BinaryExpr), f"{query}: needs `>= 0`, which drops NaN"
                    assert str(above[-1].op) == ">=", query

    def test_a_division_cannot_be_by_zero(self, board):
        for query in queries(board):
            for node, _ in nodes(promql.parse(query.filled)):
                if isinstance(node, promql.BinaryExpr) and str(node.op) == "/":
                    assert "> 0" in str(node.rhs), query

    def test_legends_name_labels_that_the_query_keeps(self, board):
        for query in queries(board):
            kept = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
            by = {label for group in re.findall(r"by \(([^)]*)\)", query.text) for label in group.split(", ")}
            assert kept <= by, query
