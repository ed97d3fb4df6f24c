"""What a look at the agent costs: the status document at 500 queues, and a refresh of `unstuck top`.

.venv/bin/python bench/exporters/status.py [QUEUES]
"""

import gc
import io
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("watchdog", "exporters", "tests")]

from rich.console import Console  # noqa: E402 — the paths come first
from rich.live import Live  # noqa: E402
from rich.text import Text  # noqa: E402

from support.crowds import living_board, queue  # noqa: E402
from unstuck.clock import ManualClock  # noqa: E402
from unstuck.top.choices import Choices  # noqa: E402
from unstuck.top.screen import lines  # noqa: E402
from unstuck.top.sources import AgentSource  # noqa: E402
from unstuck_exporters.web.api import Api  # noqa: E402
from unstuck_exporters.web.app import App  # noqa: E402
from unstuck_exporters.web.server import HttpServer  # noqa: E402

RUNS = 60


def measured(name: str, work: Callable[[], object], before: Callable[[], object] = int) -> None:
    times = []
    for _ in range(RUNS):
        before()
        begun = time.thread_time()
        work()
        times.append(1000 * (time.thread_time() - begun))
    times.sort()
    print(f"{name:<24} best {times[0]:5.2f} ms   median {times[RUNS // 2]:5.2f} ms")


def main() -> None:
    queues = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    board = living_board(ManualClock(time.time()), queues)
    gc.freeze()
    api = Api(board)

    def look(share: int) -> None:
        """A look in which one queue of so many has changed."""
        changed = next(rounds)
        board.looked(
            "unstuck",
            [queue(f"queue-{i:03d}", waiting=i % 37 + (changed if i % share == 0 else 0)) for i in range(queues)],
        )
        time.sleep(0.15)  # a status is used again for a while

    rounds = itertools.count()
    measured("status, a tenth changed", lambda: api.status({}), lambda: look(10))
    measured("status, all changed", lambda: api.status({}), lambda: look(1))
    server = HttpServer(App(board), port=0)
    server.start()
    source = AgentSource(server.url)
    seen = source.read()
    source.close()
    server.stop()
    out = Console(width=80, height=24, file=io.StringIO(), force_terminal=True)
    choices = Choices()
    with Live(Text(""), console=out, screen=True, auto_refresh=False, redirect_stdout=False) as live:
        measured(
            "top, 80×24",
            lambda: live.update(Text("\n").join(lines(seen, choices, 80, 24, now=seen.at)), refresh=True),
        )
    measured("a million products / 10", lambda: [i * i for i in range(100_000)])


if __name__ == "__main__":
    main()
