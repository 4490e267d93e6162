"""The page for another scenario in a real browser, with a supernet that a server has trained."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.test_accessibility import faults
from tests.end_to_end.test_property_tasks import COMMON, SPACE, write_data, write_network
from tests.support.servers import web_server

pytestmark = [pytest.mark.web, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a job with a supernet, and with two goals."""
    directory = tmp_path_factory.mktemp("scenarios")
    write_network(directory / "net.keras")
    write_data(directory / "train.npz", 600, 0)
    write_data(directory / "test.npz", 300, 1)
    (directory / "tasks.json").write_text(json.dumps(SPACE))
    algorithm = {"name": "nnfactory", "config": {"answer_steps": 16, "gate_steps": 16}}
    goals = {
        "defaults": {**COMMON, "algorithm": algorithm, "quantization": "none"},
        "goals": [
            {"id": "{task}", "tasks": ["dark-side", "bright-top"], "adaptation_goal": {"FLOP": "0.9x"}}
        ],
    }
    with (
        web_server(directory / "store", "--data-root", directory) as url,
        httpx.Client(base_url=url, timeout=400) as client,
    ):
        job = client.post("v1/jobs", content=json.dumps(goals)).json()["job"]["id"]
        client.get(f"v1/jobs/{job}/events")
        yield f"{url}jobs/{job}"


def test_a_network_for_another_task_is_made_and_downloaded(
    page: Page, address: str, screenshots: Path
) -> None:
    page.goto(address)
    expect(page.locator("#tasks tbody tr")).to_have_count(2)
    page.get_by_role("link", name="Another scenario").click()
    page.get_by_role("link", name="bright, side").click()
    expect(page.get_by_role("checkbox", name="side")).to_be_checked()
    page.get_by_label("multiply-adds").fill("0.6x")
    page.screenshot(path=screenshots / "scenarios.png", full_page=True)
    page.get_by_role("button", name="Make the network").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("bright-side-0.6x")
    # No reload: the page of the goal follows its events.
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the package").click(timeout=200_000)
    assert download.value.suggested_filename.endswith(".zip")
    page.goto(f"{address}/scenarios")
    row = page.locator("tr", has=page.get_by_role("link", name="bright, side", exact=True))
    expect(row.get_by_role("link", name="bright-side-0.6x")).to_be_visible()


def test_without_javascript_problems_are_shown_at_their_fields(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/scenarios")
    page.get_by_role("radio", name="dark").check()
    page.get_by_role("checkbox", name="left").check()
    page.get_by_label("multiply-adds").fill("0.7x")
    page.get_by_label("Device").fill("abacus")
    page.get_by_role("button", name="Make the network").click()
    device = page.get_by_label("Device")
    expect(device).to_have_attribute("aria-invalid", "true")
    expect(device).to_have_accessible_description(re.compile('got "abacus"'))
    expect(device).to_have_value("abacus")
    expect(page.get_by_role("checkbox", name="left")).to_be_checked()
    expect(page.get_by_label("multiply-adds")).to_have_value("0.7x")
    device.fill("")
    page.get_by_role("button", name="Make the network").click()
    assert urlsplit(page.url).path.endswith("/goals/dark-left-0.7x")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_the_width_of_a_phone(
    browser: Browser, address: str, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 740}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(f"{address}/scenarios")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert faults(page) == []
    page.close()
