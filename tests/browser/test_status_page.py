"""The status page in a real Chromium: what a person sees, without ever loading it again."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from support.browsing import PHONE, Visit, chromium, visiting
from support.crowds import configure, fill, hostile_board, living_board, queue, stuck, suspect
from support.waiting import wait_until
from support.web import serving
from unstuck.clock import ManualClock
from unstuck.config.passwords import PasswordHash
from unstuck.model import Event, GateState
from unstuck_exporters.board import Board
from unstuck_exporters.web.access import Access
from unstuck_exporters.web.app import App
from unstuck_exporters.web.server import HttpServer


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def board() -> Board:
    made = living_board()
    made.looked("unstuck", [queue("mail", waiting=40), queue("reports")])
    for name in ("mail", "reports"):
        configure(made, name)
    return made


@pytest.fixture
def server(board: Board) -> Iterator[HttpServer]:
    with serving(App(board)) as running:
        yield running


def headline_becomes(visit: Visit, text: str) -> None:
    wait_until(lambda: visit.text("#headline") == text, 60, f"the headline is {text!r}")


def shows(visit: Visit, text: str, within: str = "main") -> None:
    wait_until(lambda: text in visit.text(within), 60, f"{within} shows {text!r}")


def test_a_rescue_appears_without_a_reload(browser, board, server):
    board.judged("unstuck", "mail", [stuck("j-17", "mail")])
    with visiting(browser, server.url) as visit:
        headline_becomes(visit, "1 stuck job in 1 queue")
        shows(visit, "job j-17", "#findings")
        shows(visit, "worker_gone: the worker's connection has been gone for 3.1 s", "#findings")
        assert "Will be put back" in visit.text("#findings")
        board.judged("unstuck", "mail", [])
        board.happened(Event("requeued", time.time(), "unstuck", "mail", "j-17", detail="rescue 1"))
        headline_becomes(visit, "Nothing is stuck")
        shows(visit, "put back", "#events")
        assert "job j-17 in mail rescue 1" in visit.text("#events")
        assert visit.page.locator("#strip svg").get_attribute("aria-label").startswith("1 rescue and 0 other")
        assert visit.asked.count(f"{server.url}/") == 1
        assert visit.complaints == []


def test_the_page_asks_nobody_but_the_agent_and_complains_of_nothing(browser, board, server):
    with visiting(browser, server.url) as visit:
        headline_becomes(visit, "Nothing is stuck")
        wait_until(lambda: visit.requests("/api/v1/status") >= 3, 60, "it has asked three times")
        assert {url for url in visit.asked if not url.startswith(f"{server.url}/")} == set()
        assert visit.complaints == []


def test_hostile_names_are_shown_as_text(browser):
    with serving(App(hostile_board())) as server, visiting(browser, server.url) as visit:
        headline_becomes(visit, "1 stuck job in 1 queue")
        shows(visit, "<script>alert(1)</script>", "#findings")
        shows(visit, "<img src=x onerror=alert(1)>", "#cards")
        shows(visit, "<script>alert(1)</script>", "#events")
        shows(visit, "<script>alert(1)</script>", "#notices")
        everything = visit.text("body")
        assert "\u202e" not in everything
        assert "\x1b" not in everything
        assert r"\u202egnp.\u001b[31m" in everything
        assert visit.page.locator("main img, main script, main a[href^=javascript]").count() == 0
        assert (visit.dialogs, visit.complaints) == ([], [])
        visit.page.locator("#filter").fill("<script>")
        assert visit.page.locator("#cards > li").count() == 1


def test_500_queues_stay_usable(browser, board):
    fill(board, 500)
    configure(board, "queue-321")
    board.judged("unstuck", "queue-321", [stuck("j-1", "queue-321")])
    with serving(App(board)) as server, visiting(browser, server.url) as visit:
        headline_becomes(visit, "1 stuck job in 1 queue")
        cards = visit.page.locator("#cards > li")
        wait_until(lambda: cards.count() == 48, 60, "the first cards are there")
        assert cards.first.locator("h3").inner_text() == "queue-321"
        visit.page.locator("#more-queues").click()
        wait_until(lambda: cards.count() == 96, 60, "more cards are there")
        visit.page.locator("#filter").fill("queue-49")
        wait_until(lambda: cards.count() == 10, 60, "the filtered ones are there")
        assert visit.text("#queue-count") == "10 of 502"
        visit.page.locator("#filter").fill("nobody")
        assert visit.text("#queues-none") == "No queue has such a name."
        visit.page.locator("#filter").fill("")
        visit.page.locator("#sort").select_option("waiting")
        assert cards.first.locator("h3").inner_text() == "mail"
        wait_until(lambda: visit.page.locator("#cards svg.spark").count() == 48, 60, "each has its sparkline")
        assert visit.complaints == []


def test_a_redis_that_is_away_is_said_first_and_old_data_is_marked_as_old(browser):
    clock = ManualClock(time.time())
    board = living_board(clock)
    board.looked("unstuck", [queue("mail", waiting=41)])
    with serving(App(board)) as server, visiting(browser, server.url) as visit:
        headline_becomes(visit, "Nothing is stuck")
        board.redis_failed("look", "connection", 0.1, "Redis refused the connection")
        headline_becomes(visit, "Redis is away")
        shows(visit, "Redis is away: Redis refused the connection", "#notices")
        clock.advance(40)
        shows(visit, "1 queue has no fresh data", "#notices")
        shows(visit, "as seen", "#cards")
        assert "41" in visit.text("#cards"), "what was seen last stays, marked as old"
        assert "old" in visit.page.locator("#cards article").get_attribute("class")
        assert visit.text("#trouble-none") == "Unknown while nothing is seen."
        assert "40 s old" in visit.text("#fresh")


def test_an_agent_that_falls_silent_is_said_first_and_what_was_seen_stays(browser, board):
    with serving(App(board)) as server, visiting(browser, server.url) as visit:
        headline_becomes(visit, "Nothing is stuck")
        shows(visit, "mail", "#cards")
        server.stop()
        headline_becomes(visit, "The agent does not answer")
        shows(visit, "The agent has not answered since", "#notices")
        assert visit.text("#subline").startswith("What you see is from ")
        assert "mail" in visit.text("#cards")


def test_gate_brake_and_leader_are_told_at_the_top(browser, board, server):
    board.gated(GateState(open=False, reasons=("watching", "young"), opens_in=12.0))
    board.judged("unstuck", "mail", [suspect("j-2", "mail")])
    with visiting(browser, server.url) as visit:
        headline_becomes(visit, "Nothing is proven stuck")
        shows(visit, "closed: watching has just begun, Redis is just up, opens in 12 s", "#facts")
        shows(visit, "Only watched: the gate is closed", "#findings")
        board.follows("lost", leader="other-host:1")
        headline_becomes(visit, "This agent stands by")
        assert "other-host:1" in visit.text("#facts")


def test_a_password_is_asked_for_once_and_the_page_lives_on(browser, board):
    app = App(board, Access({"ada": PasswordHash.of("secret")}))
    login = {"username": "ada", "password": "secret"}
    with serving(app) as server, visiting(browser, server.url, http_credentials=login) as visit:
        headline_becomes(visit, "Nothing is stuck")


def test_the_keyboard_reaches_everything_and_shows_where_it_is(browser, board, server):
    with visiting(browser, server.url) as visit:
        headline_becomes(visit, "Nothing is stuck")
        visit.page.keyboard.press("Tab")
        focused = "document.activeElement"
        assert visit.page.evaluate(f"{focused}.className") == "skip"
        assert visit.page.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"
        assert visit.page.evaluate(f"{focused}.getBoundingClientRect().left >= 0")
        reached = []
        for _ in range(5):
            visit.page.keyboard.press("Tab")
            reached.append(visit.page.evaluate(f"{focused}.id || {focused}.tagName"))
            assert visit.page.evaluate(f"getComputedStyle({focused}).outlineWidth") == "3px"
        assert reached[:3] == ["filter", "sort", "only-rescues"]
        visit.page.locator("#filter").focus()
        visit.page.keyboard.type("rep")
        wait_until(lambda: visit.page.locator("#cards > li").count() == 1, 60, "the filter has filtered")


def test_on_a_phone_nothing_is_wider_than_the_screen(browser):
    with (
        serving(App(hostile_board())) as server,
        visiting(browser, server.url, viewport=PHONE, is_mobile=True, has_touch=True) as visit,
    ):
        headline_becomes(visit, "1 stuck job in 1 queue")
        shows(visit, "alert(1)", "#cards")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        small = visit.page.evaluate(
            "[...document.querySelectorAll('button,select,input[type=search],summary')]"
            ".filter((e) => e.offsetParent && e.getBoundingClientRect().height < 22).map((e) => e.outerHTML)"
        )
        assert small == []
