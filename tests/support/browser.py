"""Chromium through playwright. A policy violation, a console error or an exception in the page fails the test."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
TIMEOUT_S = 60_000  # milliseconds until a test gives up: a browser on a busy machine is slow
PICTURES = Path("build") / "screenshots"  # for people, if COUNTLESS_SCREENSHOTS is set
SIZES = {"phone": (390, 844), "tablet": (820, 1180), "wide": (1440, 900)}
_LOG_VIOLATIONS = "addEventListener('securitypolicyviolation', (e) => console.error('policy: ' + e.violatedDirective))"


class Window:
    """A tab, with the errors that its page reported."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.add_init_script(_LOG_VIOLATIONS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def expect_errors(self, *parts: str) -> None:
        """These errors were provoked: they must have been reported, and do not fail the test."""
        for part in parts:
            assert any(part in error for error in self.errors), (part, self.errors)
        self.errors = [text for text in self.errors if not any(part in text for part in parts)]

    def screenshot(self, name: str) -> None:
        if not os.environ.get("COUNTLESS_SCREENSHOTS"):
            return
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return width


def event(name: str, **data: object) -> str:
    """As the coordinator sends it to a page."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def hello(role: str, now: float) -> str:
    return event("hello", role=role, now=now, keepalive_s=4, version="1.2.3", started=now - 86_400)


@contextmanager
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium is not None, "the tests of the page need chromium (requirements/system.sh)"
    expect.set_options(timeout=TIMEOUT_S)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        try:
            yield launched
        finally:
            launched.close()


@contextmanager
def window(launched: Browser, **options: Any) -> Iterator[Window]:
    """A new tab with a storage of its own. Its page must have reported no errors when it is closed."""
    context = launched.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(TIMEOUT_S)
    opened = Window(context.new_page())
    try:
        yield opened
    finally:
        context.close()
    assert opened.errors == []
