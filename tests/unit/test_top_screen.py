"""What `top` shows: lines that fit, hostile names as escapes, trouble first, and at little cost."""

from typing import Any

import pytest
from rich.cells import cell_len

from support.crowds import EVIL, breathe, configure, fill, hostile_board, living_board, queue, stuck, suspect
from unstuck.choosing import Choice
from unstuck.clock import ManualClock
from unstuck.model import Event
from unstuck.top.choices import SORTS, Choices
from unstuck.top.keyboard import keys
from unstuck.top.screen import lines, rows
from unstuck.top.sources import Seen, narrowed_to
from unstuck_exporters.board import Board
from unstuck_exporters.web.document import (
    Parts,
    agent_part,
    events_document,
    present_part,
    shown_queues,
    status_document,
)


def seen_on(board: Board) -> Seen:
    view = board.view()
    ledgers = shown_queues(view)
    agent = {**agent_part(view, ledgers), **present_part(view)}
    doc = {**status_document(view, ledgers, Parts()), "agent": agent}
    return Seen(doc, "http://127.0.0.1:9797", 100.0, tuple(events_document(view, "", 100)["events"]))


def told(seen: Seen, choices: Choices | None = None, width: int = 80, height: int = 24, **more: Any) -> list[str]:
    return [line.plain for line in lines(seen, choices or Choices(), width, height, **{"now": seen.at, **more})]


@pytest.fixture
def board() -> Board:
    made = living_board(ManualClock())
    made.looked("unstuck", [queue("mail", waiting=40), queue("reports", waiting=7), queue("zeta", waiting=90)])
    made.looked("rq", [queue("default", "rq", waiting=5, oldest_waiting=300.0)])
    configure(made, "mail")
    made.judged("unstuck", "mail", [stuck("j-17", "mail")])
    made.judged("unstuck", "reports", [suspect("j-18", "reports")])
    made.happened(Event("requeued", 1_700_000_000.0, "unstuck", "mail", "j-9", detail="rescue 1"))
    return made


def test_the_first_line_says_whether_anything_is_wrong(board):
    assert told(seen_on(board))[0] == "! 1 stuck job in 1 of 4 queues, 1 suspect"
    board.judged("unstuck", "mail", [])
    assert told(seen_on(board))[0].startswith("? Nothing is proven stuck")
    board.judged("unstuck", "reports", [])
    assert told(seen_on(board))[0].startswith("✓ Nothing is stuck")


def test_stuck_jobs_say_when_they_are_put_back_and_rescues_are_told(board):
    text = "\n".join(told(seen_on(board)))
    assert "stuck    unstuck/mail j-17  3 s  put back within 4 s  worker_gone" in text
    assert "suspect  unstuck/reports j-18  17 s  held back: mode is observe" in text
    assert "put back       unstuck/mail j-9  rescue 1" in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (120, 5), (20, 8)])
def test_the_screen_has_exactly_the_size_of_the_terminal(width, height):
    board = hostile_board()
    fill(board, 100)
    made = told(seen_on(board), width=width, height=height)
    assert len(made) == height
    assert max(map(cell_len, made)) <= max(40, width)


def test_hostile_names_are_shown_as_escapes(board):
    text = "\n".join(told(seen_on(hostile_board()), width=400, height=40))
    assert r"\u202egnp.\x1b[31m" in text
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    choices = Choices()
    for key in keys("/" + EVIL):
        choices.press(key)
    assert all(sign.isprintable() for line in told(seen_on(board), choices) for sign in line)


def test_trouble_comes_first_and_every_order_can_be_chosen_and_turned(board):
    doc, choices = seen_on(board).doc, Choices()
    orders = {}
    for _ in SORTS:
        orders[choices.sort] = [one["queue"] for one in rows(doc, choices)]
        choices.press("s")
    assert choices.sort == "trouble"
    assert orders["trouble"] == ["mail", "reports", "zeta", "default"]
    assert orders["waiting"] == ["zeta", "mail", "reports", "default"]
    assert orders["oldest"][0] == "default"
    assert orders["name"] == ["default", "mail", "reports", "zeta"]
    choices.press("r")
    assert [one["queue"] for one in rows(doc, choices)] == orders["trouble"][::-1]


def test_a_filter_is_typed_kept_and_cleared(board):
    seen, choices = seen_on(board), Choices()
    for key in keys("/unstuck/ zx\x7f\r"):
        choices.press(key)
    assert (choices.filter, choices.typing) == ("unstuck/ z", False)
    assert [one["queue"] for one in rows(seen.doc, choices)] == ["zeta"]
    assert "filter “unstuck/ z”" in told(seen, choices, width=140)[-1]
    assert not any("j-17" in line for line in told(seen, choices)[:20] if line.startswith("stuck"))
    choices.press("escape")
    assert len(rows(seen.doc, choices)) == 4


def test_500_queues_can_be_scrolled_to_the_last_one():
    board = living_board(ManualClock(), 500)
    seen, choices = seen_on(board), Choices(sort="name")
    assert "queue-000" in "\n".join(told(seen, choices))
    choices.press("page down")
    assert "queue-000" not in "\n".join(told(seen, choices))
    choices.press("end")
    assert "queue-499" in "\n".join(told(seen, choices))
    choices.press("home")
    assert "queue-000" in "\n".join(told(seen, choices))


def test_help_opens_and_any_key_closes_it(board):
    choices = Choices()
    assert choices.press("?")
    assert any("sort by the next column" in line for line in told(seen_on(board), choices))
    assert choices.press("x")
    assert not choices.help
    assert not choices.press("q")


def test_a_look_that_fails_is_said_first_with_the_age_of_what_is_shown(board):
    made = told(seen_on(board), trouble="no agent answers", now=130.0)
    assert made[0] == "! no agent answers"
    assert made[1] == "What you see is 30 s old. Asking again."
    assert "mail" in made[3]


def test_a_redis_that_is_away_and_a_follower_are_said_first(board):
    board.redis_failed("look", "connection", 0.1, "Redis refused the connection")
    assert told(seen_on(board))[0] == "! Redis is away: Redis refused the connection"
    breathe(board, ManualClock())
    board.follows("lost", leader="other:1")
    assert told(seen_on(board))[0].startswith("? This agent stands by: other:1 leads")


def test_only_the_chosen_queues_are_shown(board):
    seen = narrowed_to(seen_on(board), Choice.of(["unstuck"], ["rep*"]))
    assert [one["queue"] for one in seen.doc["queues"]] == ["reports"]
    assert [one["job"] for one in seen.doc["findings"]] == ["j-18"]
    assert seen.events == ()


def test_the_course_of_the_backlog_is_drawn_where_there_is_room(board):
    choices = Choices()
    for n, waiting in enumerate((0, 10, 40)):
        board.looked("unstuck", [queue("mail", waiting=waiting)])
        seen = seen_on(board)
        choices.sample(Seen(seen.doc, "", float(n + 1)))
    assert "▁▂█" in "\n".join(told(seen, choices, width=140)[3:4] + told(Seen(seen.doc, "", 3.0), choices, width=140))


@pytest.mark.parametrize(
    ("typed", "pressed"),
    [("q", ["q"]), ("\x1b[A\x1b[B", ["up", "down"]), ("\x1b", ["escape"]), ("\x1b[5~s", ["page up", "s"]), ("\r\x7f", ["enter", "backspace"]),
     ("\x1b[1;5Cs", ["s"]), ("\x1bOA", ["up"]), ("\x00\x01ä", ["ä"]), ("\x1b[", [])],
)  # fmt: skip
def test_what_is_typed_becomes_keys(typed, pressed):
    assert list(keys(typed)) == pressed
