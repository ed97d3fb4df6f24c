"""The status page for everybody: what a checker of accessibility looks for, written out; in light and in dark."""

import itertools
from collections.abc import Iterator

import pytest

from support.browsing import Visit, chromium, visiting
from support.crowds import configure, living_board, queue, stuck, suspect
from support.waiting import wait_until
from support.web import serving
from unstuck.model import Event
from unstuck_exporters.board import Board, Brake
from unstuck_exporters.web.app import App

UNNAMED = """
[...document.querySelectorAll('input,select,button,a,summary,[role=img]')].filter((e) => {
  const label = e.id && document.querySelector(`label[for="${e.id}"]`);
  return !(e.getAttribute('aria-label') || e.textContent.trim() || label?.textContent.trim());
}).map((e) => e.outerHTML)
"""
DANGLING = """
[...document.querySelectorAll('[aria-labelledby],[for]')].map((e) => e.getAttribute('aria-labelledby') ?? e.htmlFor)
  .filter((id) => !document.getElementById(id))
"""
TWICE = """
[...document.querySelectorAll('[id]')].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i)
"""
HEADINGS = "[...document.querySelectorAll('h1,h2,h3,h4')].map((e) => Number(e.tagName[1]))"
PALE = """
(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const [r, g, b, a] = parse(getComputedStyle(e).backgroundColor);
      if (a === undefined || a > 0.99) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const pale = [];
  let texts = 0;
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !e.checkVisibility() || e.closest('noscript,script,style')) continue;
    texts += 1;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) pale.push(`${ratio.toFixed(2)} ${e.outerHTML.slice(0, 120)}`);
  }
  return { pale, texts };
})()
"""


def rich_board() -> Board:
    """A board with something of everything: each colour of the page is in use."""
    board = living_board()
    board.expects("audit", 0.0)
    names = ("mail", "thumbnails", "paused", "well")
    board.looked("unstuck", [queue(name, paused=name == "paused", dead=3, quarantined=1) for name in names])
    board.looked("rq", [queue("broken", "rq", error=""), queue("other", "rq")])
    board.looked("rq", [queue("broken", "rq", error="a key has the wrong type")])
    for name in names:
        configure(board, name)
    board.judged("unstuck", "mail", [stuck("j1", "mail"), suspect("j2", "mail")])
    board.judged("unstuck", "thumbnails", [suspect("j3", "thumbnails")])
    board.braked("unstuck", "mail", Brake(engaged=True, condemned=12, in_flight=20, detail="12 of 20 look stuck"))
    now = board.view().wall
    kinds = ("requeued", "dead_lettered", "stuck", "suspected", "cleared", "gate_closed", "brake_engaged", "lost_race")
    board.happened(Event(kind, now, "unstuck", "mail", "j1", detail="why") for kind in kinds)
    return board


@pytest.fixture(scope="module", params=["light", "dark"])
def visit(request: pytest.FixtureRequest) -> Iterator[Visit]:
    with (
        serving(App(rich_board())) as server,
        chromium() as browser,
        visiting(browser, server.url, color_scheme=request.param) as visit,
    ):
        wait_until(lambda: visit.page.locator("#events > li").count() == 8, 60, "the page is complete")
        visit.page.locator("summary").click()
        yield visit


def test_every_control_and_picture_has_a_name(visit):
    assert visit.page.evaluate(UNNAMED) == []


def test_what_points_at_another_element_finds_it_and_no_id_is_there_twice(visit):
    assert visit.page.evaluate(DANGLING) == []
    assert visit.page.evaluate(TWICE) == []


def test_there_is_one_top_heading_and_no_level_is_left_out(visit):
    levels = visit.page.evaluate(HEADINGS)
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_the_page_has_its_landmarks_a_language_and_a_title_that_says_how_things_are(visit):
    for landmark in ("header", "main", "footer"):
        assert visit.page.locator(f"body > {landmark}").count() == 1
    assert visit.page.locator("main > section[aria-labelledby]").count() == 4
    assert visit.page.evaluate("document.documentElement.lang") == "en"
    assert visit.page.title() == "! 1 stuck job in 1 queue – unstuck"


def test_news_is_announced_politely_and_alarms_at_once(visit):
    assert visit.page.locator("[role=status][aria-live=polite] h1").count() == 1
    assert visit.page.locator("[role=alert]#notices .notice").count() >= 1
    assert visit.page.evaluate("document.querySelector('#fresh').closest('[aria-live],[role=status]')") is None


def test_every_text_stands_out_from_its_ground(visit):
    seen = visit.page.evaluate(PALE)
    assert seen["pale"] == []
    assert seen["texts"] > 80


def test_no_state_is_told_by_colour_alone(visit):
    assert visit.text("#mark") == "!"
    tags = visit.page.locator(".tag")
    assert all(tags.nth(i).inner_text().strip() for i in range(tags.count()))


def test_the_ground_is_dark_for_those_who_want_it_dark(visit):
    dark = visit.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    ground = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == ("rgb(15, 19, 24)" if dark else "rgb(244, 246, 248)")
    assert visit.complaints == []
