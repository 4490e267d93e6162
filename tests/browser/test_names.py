"""Jobs are named, found and renamed in a browser."""

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.web

CONFIG = """[{"id": "half", "model": "digits-resnet",
  "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
  "adaptation_goal": {"FLOP": "0.5x"}}]"""


def test_a_job_is_named_found_and_renamed(page: Page, url: str) -> None:
    page.goto(f"{url}submit")
    page.get_by_label("Config").fill(CONFIG)
    page.get_by_label("Name").fill("50 % & more")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("50 % & more")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.once("dialog", lambda dialog: dialog.accept("half the size"))
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("half the size")
    page.goto(url)
    for text, count in (("SIZE", 1), ("more", 0)):
        page.get_by_role("searchbox").fill(text)
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_text("half the size")).to_have_count(count)


def test_buttons_do_not_wait_for_the_plots(page: Page, url: str) -> None:
    page.goto(f"{url}submit")
    page.get_by_label("Config").fill(CONFIG)
    page.route("**/plotly.js*", lambda route: None)  # never answered
    page.get_by_role("button", name="Submit").click()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".title .state")).to_have_text("cancelled")
    page.unroute_all()
