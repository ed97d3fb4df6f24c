"""Every query of every panel, asked of a real Prometheus that watched real agents through a scenario: each has an answer.

The scenario is played once: load, a worker killed and its job rescued, the leader killed, Redis restarted.
"""

import math
from collections.abc import Iterator

import pytest

from dashboards.reading import UIDS, filled, load, panels, queries
from dashboards.scenario import Scenario

BOARDS = load()
EVERY = [pytest.param(BOARDS[uid], id=uid) for uid in UIDS]
STEP_SECONDS = 1.0

# The scenario itself takes a minute on an idle machine, and several where others work too.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    played = Scenario(tmp_path_factory.mktemp("scenario"))
    try:
        played.play()
        yield played
    finally:
        played.close()


@pytest.mark.parametrize("board", EVERY)
def test_every_query_of_every_panel_has_an_answer_and_it_is_a_number(scenario, board):
    faults = []
    for query in queries(board):
        series = scenario.ask_range(query.filled, STEP_SECONDS)
        values = [float(value) for one in series for _, value in one["values"]]
        if not values:
            faults.append(f"no answer: {query}")
        elif not all(math.isfinite(value) for value in values):
            faults.append(f"not a number: {query}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("board", EVERY)
def test_the_table_and_the_numbers_of_now_have_an_answer_at_the_end(scenario, board):
    late = {"Empty in", "Delay of a rescue", "Failures"}  # a dash where nothing was completed, rescued or ended lately
    for panel in panels(board):
        if panel["type"] in ("stat", "table") and panel["title"] not in late:
            for target in panel["targets"]:
                assert scenario.ask(filled(target["expr"])), f"{panel['title']}: {target['expr']}"


def test_every_mark_is_there(scenario):
    for mark in BOARDS["unstuck-overview"]["annotations"]["list"]:
        assert scenario.ask_range(filled(mark["expr"]), STEP_SECONDS), mark["name"]


def test_a_stuck_job_and_its_rescue_can_be_seen(scenario):
    asked = {query.panel: query for query in queries(BOARDS["unstuck-reclaims"])}

    def most(panel: str) -> float:
        series = scenario.ask_range(asked[panel].filled, STEP_SECONDS)
        return max(float(value) for one in series for _, value in one["values"])

    assert most("Stuck") >= 1
    assert most("Rescues in 1 h") >= 1
    assert most("Stuck for") > 0


def test_the_variables_find_both_agents_and_every_queue(scenario):
    found = {label: scenario.values(label) for label in ("job", "instance", "backend", "queue")}
    assert found["job"] == {"unstuck"}
    assert len(found["instance"]) == 2
    assert found["backend"] == {"unstuck", "rq"}
    assert found["queue"] >= {"mail", "thumbnails", "newsletter", "reports"}
