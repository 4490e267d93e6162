"""Chromium, driven by Playwright, and a server for it with the workers of a job."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.support.servers import web_server

#: A machine may be busy, in milliseconds.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or Playwright's own where there is none."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server without a token."""
    with web_server(tmp_path_factory.mktemp("web") / "store") as address:
        yield address


class Watched:
    """What a page has said on its console that it should not."""

    def __init__(self, page: Page) -> None:
        self.complaints: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new page; whatever it complains of fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    watched = Watched(opened)
    yield opened
    context.close()
    assert watched.complaints == []


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Where screenshots go: `MISTIFY_SCREENSHOTS` names the directory of the docs to update theirs."""
    directory = Path(os.environ.get("MISTIFY_SCREENSHOTS") or tmp_path)
    directory.mkdir(exist_ok=True)
    return directory
