"""Chromium, driven by Playwright, and a server with real workers."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.support.servers import web_server

#: Timeout in milliseconds, generous because the machine may be busy.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Debian's Chromium, or Playwright's own if there is none."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a server without a token."""
    with web_server(tmp_path_factory.mktemp("web") / "store") as address:
        yield address


class Watched:
    """Collects unexpected console messages of a page."""

    def __init__(self, page: Page) -> None:
        self.complaints: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Open a new page; console errors fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    watched = Watched(opened)
    yield opened
    context.close()
    assert watched.complaints == []


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Return the directory for screenshots; `MISTIFY_SCREENSHOTS` can set it to that of the docs."""
    directory = Path(os.environ.get("MISTIFY_SCREENSHOTS") or tmp_path)
    directory.mkdir(exist_ok=True)
    return directory
