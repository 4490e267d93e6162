"""The table of a job's goals in a browser: sorted, filtered, grouped, and read on a phone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.without_server import open_page
from tests.support.many_goals import job_of
from tests.support.rendered import job_page

pytestmark = pytest.mark.web

JOB = job_of(20)


def shown(page: Page, selector: str = "th a:first-child") -> list[str]:
    """Return the texts of an element of all visible lines."""
    return page.locator(f"tbody.goals tr:not([hidden]) {selector}").all_inner_texts()


def heading(page: Page, name: str) -> Locator:
    return page.get_by_role("columnheader", name=name, exact=True)


def test_goals_are_sorted_filtered_and_grouped_and_the_address_keeps_the_choice(page: Page) -> None:
    open_page(page, job_page(JOB), "/jobs/j")
    assert shown(page) == [goal.id for goal in JOB.goals]
    page.get_by_role("button", name="accuracy", exact=True).press("Enter")
    by_accuracy = [goal.id for goal in sorted(JOB.goals, key=lambda goal: goal.accuracy or 0)]
    assert shown(page) == by_accuracy
    expect(heading(page, "accuracy")).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("button", name="accuracy", exact=True).click()
    expect(heading(page, "accuracy")).to_have_attribute("aria-sort", "descending")
    assert set(shown(page)[:2]) == set(by_accuracy[-2:])  # both have the same accuracy
    page.get_by_label("State").select_option("unmet")
    assert len(shown(page)) == sum(goal.state.value == "unmet" for goal in JOB.goals)
    page.get_by_label("Groups").select_option("hardware")
    groups = page.locator("tbody.goals:not([hidden]) .group")
    expect(groups).to_have_text(["jetson-agx-orin: 0 of 1 met", "raspberry-pi-5: 0 of 1 met"])
    page.get_by_label("Search").fill("agx")
    expect(page.locator("output[name=shown]")).to_have_text("1 of 20 goals")
    kept = shown(page)
    page.reload()
    assert shown(page) == kept
    expect(page.get_by_label("Search")).to_have_value("agx")
    page.get_by_label("Search").fill("")
    page.get_by_label("State").select_option("")
    page.get_by_label("Groups").select_option("")
    page.get_by_role("button", name="accuracy", exact=True).click()
    assert shown(page) == [goal.id for goal in JOB.goals]
    assert "?" not in page.url


def test_columns_can_be_chosen(page: Page) -> None:
    open_page(page, job_page(JOB), "/jobs/j")
    expect(heading(page, "memory")).to_have_count(0)
    page.get_by_text("Columns").click()
    page.get_by_label("memory").check()
    page.get_by_label("size").uncheck()
    expect(heading(page, "memory")).to_be_visible()
    expect(page.get_by_role("columnheader", name="size", exact=True)).to_have_count(0)
    page.reload()
    expect(heading(page, "memory")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_visible_on_a_phone(browser: Browser, screenshots: Path, scheme: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    open_page(page, job_page(JOB), "/jobs/j")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for part in ("td.use", ".state", "td:nth-child(4)", "td:nth-child(5)", "td:nth-child(6)"):
        box = page.locator(f"tbody.goals tr:first-child {part}").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    # The line is still a row of a table.
    assert page.get_by_role("row").count() >= 20
    page.close()


def test_without_scripts_the_goals_are_a_plain_table(browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    open_page(page, job_page(JOB), "/jobs/j")
    expect(page.locator("tbody.goals tr")).to_have_count(20)
    expect(page.locator("#arrange")).to_be_hidden()
    context.close()


def test_labels_in_the_tree_do_not_overlap(page: Page) -> None:
    names = ["classifier-jetson-agx-orin-50-percent", "MOBILE-WWWWWWWWWW", "a", "m" * 60]
    goals = [replace(goal, id=name) for goal, name in zip(JOB.goals, names, strict=False)]
    open_page(page, job_page(replace(JOB, goals=tuple(goals))), "/jobs/j")
    for node in page.locator("#tree svg a").all():
        name, figure = (part.bounding_box() for part in node.locator("text").all())
        assert name is not None
        assert figure is not None
        assert name["x"] + name["width"] < figure["x"]


def test_a_thousand_goals_fit_two_screens(page: Page) -> None:
    open_page(page, job_page(job_of(1_000)), "/jobs/j")
    assert len(shown(page)) == 1_000
    expect(page.get_by_text("1,000 of 1,000 goals")).to_be_visible()
    heights: Sequence[float] = page.evaluate("[document.documentElement.scrollHeight, innerHeight]")
    assert heights[0] <= 2 * heights[1]
