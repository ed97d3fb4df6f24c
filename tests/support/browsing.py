"""A real headless Chromium, driven by playwright; what it complains of and where it goes is written down."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, sync_playwright

from support.programs import chromium_program
from support.waiting import wait_until

ARGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of the system; playwright brings none of its own here."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium_program()), args=ARGS, timeout=120_000)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Visit:
    """A page that is open, with all that it has asked for and complained of."""

    page: Page
    asked: list[str] = field(default_factory=list)  # addresses
    complaints: list[str] = field(default_factory=list)  # errors and warnings of the console, uncaught exceptions
    dialogs: list[str] = field(default_factory=list)

    def requests(self, path: str) -> int:
        """How often this path was asked for so far."""
        self.page.evaluate("0")  # what happened in the browser is only heard while something is asked of it
        return sum(path in url for url in self.asked)

    def text(self, selector: str) -> str:
        """The text of an element, as it is in the page."""
        return self.page.locator(selector).inner_text()

    def wait(self, condition: str, timeout: float = 60.0) -> None:
        """Wait for a condition in the page's own language, without a reload.

        Asked for from outside: playwright's own waiting evaluates text in the page, which its policy forbids.
        """
        wait_until(lambda: self.page.evaluate(condition), timeout, f"the page fulfils {condition}")


@contextlib.contextmanager
def visiting(browser: Browser, url: str, **options: Any) -> Iterator[Visit]:
    """Open an address in a window of its own."""
    context = browser.new_context(**{"viewport": DESKTOP, **options})
    context.set_default_timeout(60_000)
    page = context.new_page()
    visit = Visit(page)

    def heard(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            visit.complaints.append(message.text)

    def asked(dialog: Dialog) -> None:
        visit.dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("request", lambda request: visit.asked.append(request.url))
    page.on("console", heard)
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    page.on("dialog", asked)
    try:
        page.goto(url)
        yield visit
    finally:
        context.close()
