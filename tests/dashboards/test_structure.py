"""The shape of the dashboards: what Grafana must be able to read, and what a person must find in each of them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from dashboards.reading import FOLDER, ROOT, UIDS, load, panels, queries, selectors
from support.json_schema import faults
from unstuck_exporters import labels
from unstuck_exporters.prometheus import FAMILIES

BOARDS = load()
EVERY = [pytest.param(board, id=uid) for uid, board in BOARDS.items()]
SHARED = ROOT.parent / "shared" / "grafana" / "dashboard.jsonschema.json"
"""The schema of Grafana's own library, on machines that have it."""

TEXT, YES, COUNT, LIST, ANY = ({"type": kind} for kind in ("string", "boolean", "integer", "array", "object"))


def thing(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """A closed object."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }


def several(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


PROMETHEUS = thing({"type": {"enum": ["prometheus"]}, "uid": {"enum": ["${datasource}"]}})
PLACE = thing(
    {
        "h": {**COUNT, "minimum": 1},
        "w": {**COUNT, "minimum": 1},
        "x": {**COUNT, "minimum": 0},
        "y": {**COUNT, "minimum": 0},
    }
)
STEP = thing({"value": {"type": ["number", "null"]}, "color": TEXT})
THRESHOLDS = thing({"mode": {"enum": ["absolute"]}, "steps": several(STEP)})
LINK = thing(
    dict.fromkeys(("title", "icon", "tooltip"), TEXT)
    | {"type": {"enum": ["link", "dashboards"]}, "tags": several(TEXT)}
    | dict.fromkeys(("asDropdown", "targetBlank", "includeVars", "keepTime"), YES),
    {"url": TEXT, "placement": TEXT},
)
TARGET = thing(
    {"expr": {**TEXT, "minLength": 1}, "refId": {**TEXT, "minLength": 1}, "datasource": PROMETHEUS},
    {"legendFormat": TEXT, "format": {"enum": ["table", "heatmap"]}, "instant": YES, "range": YES},
)
OVERRIDE = thing(
    {
        "matcher": thing({"id": {"enum": ["byName"]}, "options": TEXT}),
        "properties": several({"type": "object", "required": ["id", "value"], "properties": {"id": TEXT}}),
    }
)
FIELDS = thing(
    {
        "defaults": thing(
            {"unit": {**TEXT, "minLength": 1}, "thresholds": THRESHOLDS},
            {
                **{name: {"type": "number"} for name in ("min", "max", "decimals")},
                "noValue": TEXT,
                "mappings": LIST,
                "color": ANY,
                "custom": ANY,
            },
        ),
        "overrides": several(OVERRIDE),
    }
)
PANEL = thing(
    {
        "type": {"enum": ["timeseries", "stat", "table", "state-timeline", "heatmap"]},
        "id": COUNT,
        "title": {**TEXT, "minLength": 1},
        "description": {**TEXT, "minLength": 1},
        "datasource": PROMETHEUS,
        "gridPos": PLACE,
        "targets": several(TARGET),
        "fieldConfig": FIELDS,
        "options": ANY,
    },
    {
        "transparent": YES,
        "links": several(LINK),
        "transformations": several(thing({"id": TEXT, "options": ANY})),
        "repeatDirection": TEXT,
    },
)
ROW = thing(
    {
        "type": {"enum": ["row"]},
        "id": COUNT,
        "title": TEXT,
        "collapsed": YES,
        "gridPos": PLACE,
        "panels": several(PANEL),
    }
)
VARIABLE = thing(
    {"type": {"enum": ["datasource", "query"]}, "name": TEXT, "label": TEXT, "query": TEXT},
    {
        **dict.fromkeys(("description", "definition", "allValue", "regex", "auto_min"), TEXT),
        **dict.fromkeys(("multi", "includeAll", "allowCustomValue", "skipUrlSync", "auto"), YES),
        "datasource": PROMETHEUS,
        "refresh": COUNT,
        "auto_count": COUNT,
        "sort": COUNT,
        "hide": COUNT,
    },
)
ANNOTATION = thing(
    {"name": TEXT, "enable": YES, "iconColor": TEXT, "datasource": PROMETHEUS, "expr": TEXT},
    {
        "hide": YES,
        "titleFormat": TEXT,
        "textFormat": TEXT,
        "step": TEXT,
        "builtIn": {"type": "number"},
        "placement": TEXT,
    },
)
DASHBOARD = thing(
    {
        **{name: {**TEXT, "minLength": 1} for name in ("uid", "title", "description", "timezone", "refresh")},
        "tags": several(TEXT), "editable": YES, "graphTooltip": COUNT, "schemaVersion": {**COUNT, "minimum": 39},
        "time": thing({"from": TEXT, "to": TEXT}), "templating": thing({"list": several(VARIABLE)}),
        "annotations": thing({"list": several(ANNOTATION)}), "links": several(LINK), "panels": LIST,
    },
    {"id": {"type": "null"}, "version": COUNT, "fiscalYearStartMonth": COUNT},
)  # fmt: skip


def own_schema(board: dict[str, Any]) -> Iterator[str]:
    """What of the classic schema our dashboards use, closed: a field that is not named here is a fault."""
    yield from faults(DASHBOARD, board)
    for index, panel in enumerate(board["panels"]):
        yield from faults(ROW if panel["type"] == "row" else PANEL, panel, f"$.panels[{index}]")


def library_schema(board: dict[str, Any]) -> Iterator[str]:
    """The same by the schema of Grafana's library, where it is at hand."""
    schema = json.loads(SHARED.read_text())
    # The schema says "an object" where its source says "anything": Grafana wants a text in the first, any value in the second.
    schema["definitions"]["MatcherConfig"]["properties"]["options"] = {}
    schema["definitions"]["DynamicConfigValue"]["properties"]["value"] = {}
    for error in jsonschema.Draft7Validator(schema).iter_errors(board):
        yield f"{list(error.absolute_path)}: {error.message[:300]}"


def positions(board: dict[str, Any]) -> Iterator[list[dict[str, int]]]:
    """The grid as it is seen with every folded row folded, and the inside of each folded row."""
    yield [one["gridPos"] for one in board["panels"]]
    for row in board["panels"]:
        if row["type"] == "row" and row["collapsed"]:
            yield [row["gridPos"], *(one["gridPos"] for one in row["panels"])]


def test_there_are_the_five_dashboards_under_their_fixed_uids():
    assert set(BOARDS) == set(UIDS)
    assert {path.stem for path in FOLDER.glob("*.json")} == {uid.removeprefix("unstuck-") for uid in UIDS}


def test_the_committed_files_are_what_the_code_builds(tmp_path):
    subprocess.run([sys.executable, ROOT / "grafana" / "build.py", tmp_path], check=True, timeout=120)
    for path in FOLDER.glob("*.json"):
        assert (tmp_path / path.name).read_text() == path.read_text(), "run `python grafana/build.py`"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in FOLDER.glob("*.json")}


@pytest.mark.parametrize("board", EVERY)
def test_a_dashboard_is_of_the_classic_schema(board):
    assert list(own_schema(board)) == []
    if SHARED.exists():
        assert list(library_schema(board)) == []


@pytest.mark.parametrize("board", EVERY)
def test_a_dashboard_is_as_it_is_provisioned_and_nobody_edits_it_in_place(board):
    assert board.get("id") is None
    assert "__inputs" not in board
    assert board["editable"] is False
    assert board["refresh"] == "30s"
    assert board["timezone"] == "browser"
    assert board["tags"] == ["unstuck"]
    assert board["title"].startswith("unstuck / ")
    assert board["description"].endswith("?"), "it says which question it answers"


@pytest.mark.parametrize("board", EVERY)
def test_ids_are_unique_also_inside_folded_rows(board):
    ids = [one["id"] for one in board["panels"]] + [
        one["id"] for row in board["panels"] if row["type"] == "row" for one in row["panels"]
    ]
    assert len(ids) == len(set(ids))
    assert min(ids) > 0


@pytest.mark.parametrize("board", EVERY)
def test_every_line_fills_the_24_columns_and_nothing_overlaps(board):
    for seen in positions(board):
        taken: set[tuple[int, int]] = set()
        for place in seen:
            cells = {
                (x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])
            }  # fmt: skip
            assert not cells & taken, place
            taken |= cells
        lines = {y for _, y in taken}
        assert lines == set(range(min(lines), max(lines) + 1)), "there is no empty line"
        assert taken == {(x, y) for x in range(24) for y in lines}


@pytest.mark.parametrize("board", EVERY)
def test_panels_are_told_apart_by_their_titles_and_begin_with_the_numbers_of_now(board):
    titles = [one["title"] for one in panels(board)]
    assert len(titles) == len(set(titles))
    assert board["panels"][0]["title"] == "Now"
    assert board["panels"][1]["type"] == "stat"


@pytest.mark.parametrize("board", EVERY)
def test_every_panel_has_thresholds_that_mean_something(board):
    for panel in panels(board):
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert steps[0]["value"] is None, panel["title"]
        assert len(steps) >= 2, panel["title"]
        values = [step["value"] for step in steps[1:]]
        assert values == sorted(set(values)), panel["title"]


@pytest.mark.parametrize("board", EVERY)
def test_the_variables_are_data_source_job_instance_backend_and_queue(board):
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance", "backend", "queue"]
    for name in ("job", "instance", "backend", "queue"):
        assert variables[name]["query"].startswith("label_values(")
        assert variables[name]["query"].endswith(f", {name})")


@pytest.mark.parametrize("board", EVERY)
def test_rescues_leader_changes_and_restarts_are_marked(board):
    marks = [one["name"] for one in board["annotations"]["list"]]
    assert marks == ["Rescues", "Leader changes", "Agent restarts", "Redis restarts"]
    assert all(one["enable"] for one in board["annotations"]["list"])


@pytest.mark.parametrize("board", EVERY)
def test_a_dashboard_leads_to_all_others_with_variables_and_time(board):
    (link,) = [one for one in board["links"] if one["type"] == "dashboards"]
    assert link["tags"] == board["tags"]
    assert link["asDropdown"]
    assert link["includeVars"]
    assert link["keepTime"]


def test_links_between_dashboards_lead_to_one_that_exists():
    named = set(re.findall(r"/d/([a-z-]+)", json.dumps(list(BOARDS.values()))))
    assert len(named) >= 3
    assert named <= set(UIDS)


def test_the_table_of_queues_leads_to_the_dashboard_of_the_queue():
    (table,) = [one for one in panels(BOARDS["unstuck-overview"]) if one["type"] == "table"]
    (link,) = [
        value
        for override in table["fieldConfig"]["overrides"]
        for value in override["properties"]
        if value["id"] == "links"
    ]
    assert "/d/unstuck-queue?" in link["value"][0]["url"]
    assert "var-queue=${__data.fields.queue}" in link["value"][0]["url"]


def test_the_alerts_lead_to_dashboards_and_variables_that_exist():
    variables = {one["name"] for one in BOARDS["unstuck-queue"]["templating"]["list"]}
    urls = re.findall(r"dashboard_url: (.*)", (ROOT / "alerts" / "rules.yml").read_text())
    assert urls
    for url in urls:
        assert re.search(r"/d/([a-z-]+)", url)[1] in BOARDS, url
        assert set(re.findall(r"var-(\w+)=", url)) <= variables, url


@pytest.mark.parametrize("board", EVERY)
def test_queries_speak_of_families_and_label_values_that_exist(board):
    families = {family.name: family for family in FAMILIES}
    values = {
        "state": {*labels.JOB_STATES, *labels.WORKER_STATES},
        "cause": set(labels.GATE_CAUSES),
    }
    texts = [str(query.text) for query in queries(board)] + [one["expr"] for one in board["annotations"]["list"]]
    for text in texts:
        for selector, _ in selectors(text):
            if selector.name in ("up", "ALERTS"):
                continue
            family = families.get(selector.name) or families[re.sub(r"_(bucket|count)$", "", selector.name)]
            for matcher in selector.matchers.matchers:
                assert matcher.name in {"job", "instance", *family.labels}, text
                if matcher.name in values:
                    assert set(matcher.value.split("|")) <= values[matcher.name], text


def test_every_family_of_the_exporter_is_on_a_dashboard():
    """Or it is known why not."""
    elsewhere = {
        "unstuck_reclaim_dry_run",  # the same per queue: unstuck_reclaim_enabled
        "unstuck_queue_oldest_job_timestamp_seconds",  # unstuck_queue_latency_seconds, which is 0 and not absent when empty
        "unstuck_redis_keyspace_hit_ratio",  # computed from the two counters, over the range that is looked at
        "unstuck_cache_hit_ratio",  # as above
        "unstuck_queue_prefetched_jobs",  # a part of the running jobs that few systems show
    }
    asked = [query.text for board in BOARDS.values() for query in queries(board)]
    asked += [one["expr"] for one in BOARDS["unstuck-agent"]["annotations"]["list"]]
    named = {re.sub(r"_(bucket|count)$", "", selector.name) for text in asked for selector, _ in selectors(text)}
    assert {family.name for family in FAMILIES} - named == elsewhere


def test_grafana_is_provisioned_with_a_prometheus_and_the_folder_of_the_dashboards():
    provisioning = ROOT / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "unstuck.yml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "unstuck.yml").read_text())["providers"]
    assert provider["type"] == "file"
    assert provider["allowUiUpdates"] is False
