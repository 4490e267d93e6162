"""The documentation site in a browser: diagrams, search, and no external resources."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.paths import REPOSITORY

pytest.importorskip("mkdocs", reason="needs the extra docs")
pytestmark = pytest.mark.web


class Quiet(SimpleHTTPRequestHandler):
    """A request handler without logging."""

    def log_message(self, *_: object) -> None:
        """Do not log."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build the site, and return its URL."""
    directory = tmp_path_factory.mktemp("documentation") / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(directory)]
    done = subprocess.run(build, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory)))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture
def elsewhere(page: Page, site: str) -> Iterator[None]:
    """Fail if a page requests an external resource."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    yield
    assert [url for url in asked if not url.startswith((site, "blob:", "data:"))] == []
    assert asked


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
@pytest.mark.usefixtures("elsewhere")
def test_pages_fit_and_diagrams_are_drawn(
    page: Page, site: str, scheme: str, width: int, screenshots: Path
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for name, shown in {
        "index": "Ten minutes",
        "code-paths": "One goal, from the command to the package",
        "tutorials/operator": "A job from a laptop",
        "reference/settings": "dataset.preparation.*.image",
        "reference/client": "PortedModel",
    }.items():
        page.goto(f"{site}/{name}.html")
        expect(page.get_by_role("heading", name=shown).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        if name == "code-paths":
            expect(page.locator("div.mermaid")).to_have_count(2)
        page.screenshot(path=screenshots / f"site-{name.replace('/', '-')}-{scheme}-{width}.png")


@pytest.mark.usefixtures("elsewhere")
def test_a_setting_is_found_by_search(page: Page, site: str) -> None:
    page.goto(f"{site}/index.html")
    page.get_by_role("textbox", name="Search").click()
    # Text typed before the index is loaded is lost, as is text entered without key events.
    expect(page.locator(".md-search-result__meta")).to_have_text("Type to start searching")
    page.get_by_role("textbox", name="Search").press_sequentially("hysteresis")
    expect(page.locator(".md-search-result__item").filter(has_text="Settings").first).to_be_visible()


@pytest.mark.usefixtures("elsewhere")
def test_the_commands_of_a_console_are_copied_without_their_output(page: Page, site: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{site}/tutorials/engineer.html")
    page.locator(".highlight").filter(has_text="mistify plan goals.json").locator(
        "[data-clipboard-target]"
    ).click()
    expect(page.get_by_text("Copied to clipboard")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.split("\n")[0] == "mistify plan goals.json"
    assert "accuracy" not in copied
