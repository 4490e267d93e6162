"""The network of a package on the page of its goal, in a real browser."""

from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from mistify.jobs.details import GoalDetails
from tests.browser.test_accessibility import faults
from tests.browser.without_server import open_page
from tests.support.many_goals import job_of
from tests.support.network_graphs import network_graph
from tests.support.rendered import goal_page

pytestmark = pytest.mark.web

JOB = job_of(1)
GOAL = JOB.goals[0]
PATH = f"/jobs/j/goals/{GOAL.id}"

#: Two hundred operators.
LARGE = network_graph(49)

#: The distances between the lanes of each row and those of the row below, in pixels.
GAPS = """() => {
  const boxes = [...document.querySelectorAll('.lanes')].map((each) => each.getBoundingClientRect());
  return boxes.slice(1).map((box, index) => Math.abs(box.top - boxes[index].bottom));
}"""


def shown(page: Page, graph: Any = LARGE) -> None:
    open_page(page, goal_page(JOB, GOAL, GoalDetails(None, (), 0, graph)), PATH)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1600])
def test_a_network_of_two_hundred_operators_is_readable(
    browser: Browser, tmp_path: Any, width: int, scheme: Any
) -> None:
    """Its picture is for looking at: `--basetemp DIR` says where it is."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    shown(page)
    rows = page.locator(".network tbody tr")
    expect(rows).to_have_count(len(LARGE.nodes))
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # The lines of the lanes have no gaps, and the page has no screens of rows.
    assert max(page.evaluate(GAPS)) < 0.6
    network = page.locator("#network").bounding_box()
    assert network is not None
    assert network["height"] < 2 * 900
    name, figure = (rows.nth(3).locator(part).bounding_box() for part in ("th", "td >> nth=0"))
    assert name is not None
    assert figure is not None
    assert name["width"] <= 0.65 * width
    page.locator("#network").screenshot(path=tmp_path / f"network-{scheme}-{width}.png")
    context.close()


def test_a_keyboard_folds_the_network_and_follows_the_error(page: Page) -> None:
    shown(page)
    page.locator("#network summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".network")).to_be_hidden()
    page.keyboard.press("Enter")
    expect(page.locator(".network")).to_be_visible()
    page.keyboard.press("Tab")
    worst = page.locator("#network p a").first
    expect(worst).to_be_focused()
    page.keyboard.press("Enter")
    number = worst.get_attribute("href")
    assert number is not None
    row = page.locator(number)
    expect(row).to_be_in_viewport()
    expect(row.locator(".missed")).to_have_count(1)


def test_rows_name_what_they_read_unless_it_is_the_row_above(page: Page) -> None:
    shown(page, network_graph(1))
    kinds = page.locator(".network tbody th").all_inner_texts()
    assert " ".join(kinds[6].split()) == "6 block_1_add ADD of 2, 5"
    assert " ".join(kinds[5].split()) == "5 block_1_projection CONV_2D"
    assert " ".join(kinds[-1].split()) == "8 DEQUANTIZE → scores"


def test_a_package_without_known_operators_says_why(page: Page) -> None:
    shown(page, None)
    expect(page.get_by_text("The operators of this package are not known")).to_be_visible()
    expect(page.locator(".network")).to_have_count(0)


def test_unmeasured_errors_leave_no_column(page: Page) -> None:
    nodes = tuple(replace(node, error=None) for node in LARGE.nodes)
    shown(page, replace(LARGE, nodes=nodes, examples=0))
    expect(page.get_by_role("columnheader", name="Error")).to_have_count(0)
    expect(page.locator(".strip")).to_have_count(0)
