"""The JSON of the HTTP side: the document of `inspect`, the agent's part, events by cursor, histories."""

import gzip
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.boards import full_board
from support.crowds import configure, fill, living_board, queue, stuck, suspect
from support.json_schema import faults
from support.web import ask, serving
from unstuck.clock import ManualClock
from unstuck.model import Event, GateState, Lease, Mode, Reason, Standing, Verdict
from unstuck_exporters.board import Board, Brake, Promises
from unstuck_exporters.web.app import App
from unstuck_exporters.web.server import HttpServer

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMA = json.loads((DOCS / "status.schema.json").read_text())
INSPECT = json.loads((DOCS / "inspect.schema.json").read_text())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def board(clock: ManualClock) -> Board:
    return living_board(clock)


@pytest.fixture
def server(board: Board) -> Iterator[HttpServer]:
    with serving(App(board)) as running:
        yield running


def status(server: HttpServer) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ask(server, "/api/v1/status")[2])
    assert list(faults(SCHEMA["properties"]["status"], document)) == []
    shape = {name: part for name, part in document.items() if name != "agent"}
    assert list(faults(INSPECT, shape)) == []
    return document


def events(server: HttpServer, query: str = "") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ask(server, f"/api/v1/events{query}")[2])
    assert list(faults(SCHEMA["properties"]["events"], document)) == []
    return document


def outlook(server: HttpServer, job: str) -> tuple[str, float | None]:
    (one,) = [one for one in status(server)["agent"]["outlook"] if one["job"] == job]
    return one["held_by"], one["within_seconds"]


def test_the_schema_of_the_status_is_that_of_inspect_with_an_agents_part_beside_it():
    (mine,) = [SCHEMA["properties"]["status"]]
    assert mine["properties"]["queues"] == INSPECT["properties"]["queues"]
    assert mine["properties"]["findings"] == INSPECT["properties"]["findings"]
    assert mine["properties"]["redis"] == INSPECT["properties"]["redis"]
    assert set(mine["properties"]) == {*INSPECT["properties"], "agent"}


def test_the_status_has_the_shape_of_inspect_and_the_agents_part(server, board):
    board.looked("unstuck", [queue("mail", waiting=40)])
    configure(board, "mail")
    board.judged("unstuck", "mail", [stuck("j1", "mail"), suspect("j2", "mail")])
    document = status(server)
    (row,) = document["queues"]
    assert (row["waiting"], row["stuck"], row["suspect"], row["mode"]) == (40, 1, 1, "reclaim")
    first, second = document["findings"]
    assert (first["job"], first["verdict"], first["reason"]) == ("j1", "stuck", "worker_gone")
    assert first["would"] == "be put back into its queue (rescue 1 of 3)"
    assert (second["job"], second["verdict"]) == ("j2", "suspect")
    agent = document["agent"]
    assert (agent["role"], agent["epoch"], agent["redis"]["up"]) == ("leader", 7, True)
    assert agent["gate"] == {"open": True, "reasons": [], "opens_in_seconds": 0.0}


def test_a_board_with_everything_on_it_fits_the_schema(clock):
    board = full_board(clock)
    board.judged("unstuck", "mail", [stuck("j1", "mail")])
    with serving(App(board)) as server:
        document = status(server)
        assert document["agent"]["brakes"][0]["detail"] == "12 of 20 look stuck"
        assert document["queues"][0]["brake"] == "12 of 20 look stuck"
        assert document["agent"]["duties"][0]["duty"] == "sweep"


def test_the_status_of_an_agent_that_has_seen_nothing_is_whole(clock):
    with serving(App(Board(clock=clock))) as server:
        document = status(server)
        assert (document["queues"], document["findings"], document["redis"]["version"]) == ([], [], None)
        assert document["agent"]["ages"]["redis_answered_seconds"] is None
        assert ask(server, "/")[0] == 200
        assert ask(server, "/readyz")[0] == 503
        assert b"unstuck_redis_up" in ask(server, "/metrics")[2]


def test_old_data_is_not_in_the_status_and_is_said_to_be_old(server, board, clock):
    board.looked("unstuck", [queue("mail")])
    clock.advance(16)
    document = status(server)
    assert (document["queues"], document["findings"], document["redis"]["used_memory_bytes"]) == ([], [], None)
    agent = document["agent"]
    assert agent["queues_not_fresh"] == [{"backend": "unstuck", "queue": "mail", "error": ""}]
    assert (agent["redis"]["up"], agent["ages"]["newest_look_seconds"]) == (False, 16.0)


def test_a_queue_that_cannot_be_read_says_so_in_its_row_and_as_a_finding(server, board):
    board.looked("unstuck", [queue("mail")])
    board.looked("unstuck", [queue("mail", error="mail:pending is a string")])
    document = status(server)
    assert document["queues"][0]["error"] == "mail:pending is a string"
    assert document["findings"][0]["reason"] == "unreadable"


@pytest.mark.parametrize(
    ("verdict", "seconds"),
    [
        (stuck("j", "mail", since=0.0), 4.0),
        (stuck("j", "mail", since=1.5), 2.5),
        (stuck("j", "mail", confirmed=True), 2.0),
        (suspect("j", "mail", unchanged=17.0), 13.0 + 2.0 + 4.0),
        (suspect("j", "mail", reason=Reason.WORKER_GONE), 2.0 + 2.0 + 4.0),
        (suspect("j", "mail", reason=Reason.WORKER_DEAD), 10.0 + 2.0 + 4.0),
        (suspect("j", "mail", reason=None), None),
    ],
)
def test_a_finding_says_when_it_will_be_acted_upon_at_the_latest(server, board, verdict, seconds):
    board.looked("unstuck", [queue("mail")])
    configure(board, "mail")
    board.judged("unstuck", "mail", [verdict])
    assert json.loads(ask(server, "/api/v1/status")[2])["agent"]["outlook"][0]["within_seconds"] == seconds


def test_a_finding_says_what_holds_the_reclaim_back(server, board):
    board.looked("unstuck", [queue("mail")])
    configure(board, "mail", mode=Mode.OBSERVE)
    board.judged("unstuck", "mail", [stuck("j", "mail")])
    assert outlook(server, "j") == ("dry_run", None)
    configure(board, "mail")
    board.braked("unstuck", "mail", Brake(engaged=True, condemned=12, in_flight=20, detail="12 of 20"))
    assert outlook(server, "j") == ("brake", None)
    board.gated(GateState(open=False, reasons=("watching",), opens_in=3.0))
    assert outlook(server, "j") == ("gate_closed", None)
    late = stuck("late", "mail", reason=Reason.DEADLINE_PASSED)
    board.judged("unstuck", "mail", [late])
    assert outlook(server, "late") == ("alert_only", None)
    board.configured("unstuck", "mail", mode=Mode.RECLAIM, promises=Promises(deadline_reclaims=True))
    assert outlook(server, "late") == ("gate_closed", None)


def test_a_status_in_which_nothing_has_happened_is_not_sent_again(server, board, clock):
    board.looked("unstuck", [queue("mail")])
    _, headers, _ = ask(server, "/api/v1/status")
    clock.advance(1.5)
    again, unchanged, body = ask(server, "/api/v1/status", headers={"If-None-Match": headers["ETag"]})
    assert (again, unchanged["ETag"], body) == (304, headers["ETag"], b"")
    board.looked("unstuck", [queue("mail", waiting=4)])
    assert ask(server, "/api/v1/status", headers={"If-None-Match": headers["ETag"]})[0] == 200


def test_a_large_status_is_compressed_for_those_who_ask(server, board):
    fill(board, 50)
    _, headers, body = ask(server, "/api/v1/status", headers={"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(body))["queues"]) == 50


def test_a_status_of_ten_thousand_stuck_jobs_stays_small_and_counts_them_all(server, board):
    board.looked("unstuck", [queue("mail")])
    lease = Lease("j", token="1")
    many = [Verdict("unstuck", "mail", lease, Standing.STUCK, Reason.WORKER_DEAD, detail="gone") for _ in range(10_000)]
    board.judged("unstuck", "mail", many)
    document = status(server)
    assert document["queues"][0]["stuck"] == 10_000
    assert len(document["findings"]) == len(document["agent"]["outlook"]) == 500


def test_a_name_that_is_no_text_breaks_no_document(clock):
    board = living_board(clock)
    board.looked("rq", [queue("bad\udcff", "rq")])
    board.happened(Event("stuck", clock.wall(), "rq", "bad\udcff"))
    with serving(App(board)) as server:
        paths = ("/", "/metrics", "/api/v1/status", "/api/v1/events", "/api/v1/history?queue=rq/bad%FF")
        assert [ask(server, path)[0] for path in paths] == [200] * 5


def test_events_come_once_to_who_asks_with_the_cursor_of_the_answer_before(server, board):
    board.happened([Event("stuck", 1.0, "unstuck", "mail", "j1"), Event("requeued", 2.0, "unstuck", "mail", "j1")])
    first = events(server)
    assert [(one["number"], one["kind"]) for one in first["events"]] == [(1, "stuck"), (2, "requeued")]
    assert events(server, f"?since={first['cursor']}")["events"] == []
    board.happened(Event("cleared", 3.0, "unstuck", "mail", "j2", evidence={"threshold_s": 30.0}))
    then = events(server, f"?since={first['cursor']}")
    assert (then["continues"], [one["number"] for one in then["events"]]) == (True, [3])
    assert then["cursor"] == status(server)["agent"]["cursor"]


def test_a_cursor_of_another_start_gives_everything_and_says_so(server, board):
    board.happened(Event("stuck", 1.0))
    for cursor in ("123-1", "nonsense", "-", "1700000000000-²"):
        answer = events(server, f"?since={urllib.parse.quote(cursor)}")
        assert (answer["continues"], len(answer["events"])) == (False, 1)


def test_events_that_are_gone_or_beyond_the_limit_are_counted_as_missed(server, board):
    start = events(server)["cursor"]
    board.happened(Event("stuck", float(i)) for i in range(700))
    answer = events(server, f"?since={start}")
    assert (len(answer["events"]), answer["missed"], answer["events"][-1]["number"]) == (500, 200, 700)
    short = events(server, f"?since={start}&limit=2")
    assert ([one["number"] for one in short["events"]], short["missed"]) == ([699, 700], 698)
    assert ask(server, "/api/v1/events?limit=many")[0] == 400


def test_the_history_of_chosen_queues_is_given_since_a_time(server, board, clock):
    for waiting in range(5):
        board.looked("unstuck", [queue("a/b c", waiting=waiting), queue("other")])
        clock.advance(15)
    name = urllib.parse.quote("unstuck/a/b c", safe="")
    document = json.loads(ask(server, f"/api/v1/history?queue={name}&queue=rq/nobody")[2])
    assert list(faults(SCHEMA["properties"]["history"], document)) == []
    known, unknown = document["queues"]
    assert (known["backend"], known["queue"], unknown["points"]) == ("unstuck", "a/b c", [])
    assert [point[1] for point in known["points"]] == [0, 1, 2, 3, 4]
    since = known["points"][2][0]
    later = json.loads(ask(server, f"/api/v1/history?queue={name}&since={since}")[2])
    assert [point[1] for point in later["queues"][0]["points"]] == [3, 4]
    assert ask(server, "/api/v1/history?since=yesterday")[0] == 400
