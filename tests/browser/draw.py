"""The pictures of docs/status.md, made anew: the status page in Chromium, and `top` from the same made-up half hour.

.venv/bin/python tests/browser/draw.py
"""

import io
import re
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("watchdog", "exporters", "tests")]

from playwright.sync_api import Browser  # noqa: E402 — the paths come first
from rich.console import Console  # noqa: E402
from rich.terminal_theme import MONOKAI  # noqa: E402

from support.browsing import PHONE, chromium, visiting  # noqa: E402
from support.story import go_on, story  # noqa: E402
from support.web import serving  # noqa: E402
from unstuck.top.choices import Choices  # noqa: E402
from unstuck.top.screen import lines  # noqa: E402
from unstuck.top.sources import AgentSource  # noqa: E402
from unstuck_exporters.web.app import App  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
COMPLETE = "document.querySelectorAll('.card .line').length === 6 && document.querySelectorAll('#events li').length > 9"
PAGES = {
    "status": {"viewport": {"width": 1200, "height": 1330}},
    "status-dark": {"viewport": {"width": 1200, "height": 1330}, "color_scheme": "dark"},
    "status-phone": {"viewport": {**PHONE, "height": 1500}, "device_scale_factor": 1.5},
}


def draw_top(browser: Browser, url: str) -> None:
    source, choices = AgentSource(url), Choices()
    seen = source.read()
    source.close()
    out = Console(width=90, height=26, record=True, file=io.StringIO(), force_terminal=True)
    for line in lines(seen, choices, 90, 26, now=seen.at):
        out.print(line, end="\n", overflow="crop")
    picture = re.sub(r"@font-face \{[^}]*\}", "", out.export_svg(title="unstuck top", theme=MONOKAI))
    picture = picture.replace("Fira Code", "DejaVu Sans Mono").replace("<svg ", '<svg width="1100" ', 1)
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    page = context.new_page()
    page.set_content(f"<style>body {{ margin: 0 }}</style>{picture}")
    page.locator("svg").screenshot(path=PICTURES / "top.png")
    context.close()


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    board, clock = story(time.time())
    done = threading.Event()

    def live() -> None:
        while not done.wait(0.5):
            go_on(board, clock, 0.5)

    threading.Thread(target=live, daemon=True).start()
    with serving(App(board)) as server, chromium() as browser:
        for name, options in PAGES.items():
            with visiting(browser, server.url, **options) as visit:
                visit.wait(COMPLETE)
                visit.page.screenshot(path=PICTURES / f"{name}.png")
        draw_top(browser, server.url)
    done.set()


if __name__ == "__main__":
    main()
