"""A real browser without a window, for the tests of pages; where there is none, they are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
WIDE, PHONE = (1440, 900), (390, 844)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium: the system's, or the one that playwright brings."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        try:
            opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"no Chromium: {error}")
        yield opened
        opened.close()


class Tab:
    """A page that is open, with what it said and what it asked the network for."""

    def __init__(self, browser: Any, size: tuple[int, int] = WIDE, scheme: str = "light", **options: Any) -> None:
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce", **options
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, url: str) -> Any:
        """Open an address, and wait until the page is built."""
        self.page.goto(url)
        self.page.wait_for_function("() => document.documentElement.dataset.ready", timeout=120_000)
        return self.page
