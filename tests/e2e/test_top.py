"""`unstuck top` as a person meets it: in a terminal, at an agent, straight at Redis, through a pipe."""

import signal
import time
from pathlib import Path

import pytest

from support.cli import run_cli
from support.crowds import EVIL, configure, hostile_board, living_board, queue, stuck
from support.ports import free_port
from support.terminal import terminal
from support.web import serving
from unstuck.config.passwords import PasswordHash
from unstuck.model import Event
from unstuck_exporters.board import Board
from unstuck_exporters.web.access import Access
from unstuck_exporters.web.app import App


@pytest.fixture
def board() -> Board:
    made = living_board()
    made.looked("unstuck", [queue("mail", waiting=40), queue("reports")])
    made.looked("rq", [queue("default", "rq")])
    configure(made, "mail")
    made.judged("unstuck", "mail", [stuck("j-17", "mail")])
    return made


def test_at_a_terminal_it_lives_obeys_keys_and_gives_the_terminal_back(board):
    with serving(App(board)) as server, terminal(["top", "--url", server.url, "--interval", "200ms"]) as shown:
        before = shown.settings()
        screen = shown.shows("1 stuck job in 1 of 3 queues")
        assert "put back within" in screen
        assert len(screen.splitlines()) <= 24
        shown.press("s")
        shown.shows("s sort: waiting")
        shown.press("/rq\r")
        shown.shows("filter “rq”")
        shown.press("\x1b")
        shown.press("?")
        shown.shows("this help; any key closes it")
        shown.press(" ")
        board.judged("unstuck", "mail", [])
        board.happened(Event("requeued", time.time(), "unstuck", "mail", "j-17", detail="rescue 1"))
        assert "put back" in shown.shows("Nothing is stuck")
        shown.resize(120, 30)
        shown.shows("backlog lately")
        server.stop()
        shown.shows("no agent answers")
        shown.press("q")
        assert shown.ends() == 0
        assert shown.settings() == before
        assert "\x1b[?1049l" in shown.read(), "the screen before it is back"


def test_hostile_names_reach_no_terminal_raw():
    with serving(App(hostile_board())) as server, terminal(["top", "--url", server.url], 200, 40) as shown:
        shown.shows(r"\u202egnp.\x1b[31m")
        assert EVIL[-20:] not in shown.read()
        assert "\u202e" not in shown.read()
        shown.process.send_signal(signal.SIGTERM)
        assert shown.ends() == 0
        assert "\x1b[?1049l" in shown.read()


def test_once_prints_one_screen_without_colours_or_keys_into_a_pipe(board):
    with serving(App(board)) as server:
        ran = run_cli("top", "--url", server.url, "--once", "--sort", "name", "--queue", "unstuck/*")
    assert ran.code == 0, ran.stderr
    assert ran.stdout.startswith("! 1 stuck job in 1 of 2 queues")
    assert "\x1b" not in ran.stdout
    assert "default" not in ran.stdout
    assert not ran.stdout.endswith("\n\n"), "it does not fill the height of a terminal"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_without_an_address_it_asks_where_the_agents_settings_say_that_it_listens(board, tmp_path: Path, host: str):
    with serving(App(board)) as server:
        port = server.url.rpartition(":")[2]
        (tmp_path / "c.yaml").write_text(f"http: {{listen: '{host}:{port}'}}")
        ran = run_cli("top", "--config", tmp_path / "c.yaml", "--once")
    assert ran.code == 0, ran.stderr
    assert ran.stdout.startswith("! 1 stuck job in 1 of 3 queues")


def test_a_password_is_read_from_a_file(board, tmp_path: Path):
    (tmp_path / "secret").write_text("pä:ss\n")
    with serving(App(board, Access({"ada": PasswordHash.of("pä:ss")}))) as server:
        refused = run_cli("top", "--url", server.url, "--once")
        assert (refused.code, "--password-file" in refused.stderr) == (3, True)
        let_in = run_cli(
            "top", "--url", server.url, "--once", "--user", "ada", "--password-file", str(tmp_path / "secret")
        )
    assert let_in.code == 0, let_in.stderr


def test_an_agent_that_is_not_there_is_named_with_what_to_do():
    ran = run_cli("top", "--url", f"http://127.0.0.1:{free_port()}", "--once")
    assert ran.code == 3
    assert "no agent answers at http://127.0.0.1:" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert run_cli("top", "--url", "ftp://x", "--once").code == 2
    assert run_cli("top", "--url", "http://127.0.0.1:1", "--redis", "redis://127.0.0.1:1", "--once").code == 2
    assert run_cli("top", "--redis", f"redis://127.0.0.1:{free_port()}", "--once").code == 3


def test_straight_at_redis_it_only_reads(redis_url, redis_client):
    redis_client.sadd("unstuck:queues", "mail")
    redis_client.lpush("unstuck:{mail}:pending", "a", "b")
    before = sorted(redis_client.keys())
    with terminal(["top", "--redis", redis_url, "--interval", "200ms"]) as shown:
        shown.shows("mail")
        redis_client.lpush("unstuck:{mail}:pending", "c")
        shown.shows("3 waiting")
        shown.press("q")
        assert shown.ends() == 0
    assert sorted(redis_client.keys()) == before
