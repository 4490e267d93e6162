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


def test_a_job_is_tagged_removed_and_restored(page: Page, url: str) -> None:
    page.goto(f"{url}submit")
    page.get_by_label("Config").fill(CONFIG)
    page.get_by_label("Tags").fill("team=vision  quick")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".tags")).to_have_text("team=vision quick ")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    # The page is loaded again, which would close a dialog.
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.once("dialog", lambda dialog: dialog.accept("team=vision slow"))
    page.get_by_role("button", name="Tags").click()
    expect(page.locator(".tags")).to_have_text("team=vision slow ")
    job = page.get_by_role("heading", level=1).inner_text()
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("status")).to_contain_text("This job is removed")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Remove")).to_have_count(1)
    page.get_by_role("link", name="slow").click()
    expect(page.get_by_role("link", name=job)).to_have_count(1)
    page.get_by_role("link", name=job).click()
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("status")).to_contain_text("This job is removed")
    page.goto(url)
    expect(page.get_by_role("link", name=job)).to_have_count(0)
    page.get_by_role("link", name="Removed jobs").click()
    page.get_by_role("button", name=f"Undo the removal of {job}").click()
    expect(page.get_by_text("No removed jobs.")).to_have_count(1)
    page.goto(f"{url}jobs/{job}")
    page.get_by_role("button", name="Remove").click()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Remove now").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    assert page.request.get(f"{url}v1/jobs/{job}").status == 404


def test_buttons_do_not_wait_for_the_plots(page: Page, url: str) -> None:
    page.goto(f"{url}submit")
    page.get_by_label("Config").fill(CONFIG)
    page.route("**/plotly.js*", lambda route: None)  # never answered
    page.get_by_role("button", name="Submit").click()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".title .state")).to_have_text("cancelled")
    page.unroute_all()
