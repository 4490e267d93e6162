"""Every page of a server with jobs, tokens and a fleet: accessible, usable by keyboard, and at any width."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from mistify_server.store.directory import open_store
from tests.browser.every_page import PATHS
from tests.browser.test_accessibility import faults
from tests.support.filled_store import fill
from tests.support.served import served

pytestmark = [pytest.mark.web, pytest.mark.timeout(600)]

PHRASE = "correct horse battery staple"

#: Pages on which axe-core takes minutes, and which have more of the same than others.
LARGE = ("thousand", "report of a thousand")

#: Elements that a keyboard must reach, as far as they are shown.
CONTROLS = "a[href], button:enabled, input:enabled, select, textarea, summary, [tabindex='0']"

#: Texts and controls that are cut off at the right, although nothing scrolls to them.
CUT_OFF = """() => {
  const scrolls = (element) => element.closest('.scroll, .editor, pre, .notes, .plot, .unseen, .skip, svg');
  return [...document.querySelectorAll('main *, header *')]
    .filter((each) => !scrolls(each) && each.checkVisibility() && each.getBoundingClientRect().width > 0)
    .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map((each) => each.outerHTML.slice(0, 120));
}"""

#: The controls that are shown, numbered in `data-control`; radio buttons and closed details hide theirs.
NUMBERED = """(controls) => {
  const shown = [...document.querySelectorAll(controls)].filter((each) => each.checkVisibility());
  shown.forEach((each, index) => { each.dataset.control = index; });
  return shown.length;
}"""

#: The number of the element with the focus, and whether a reader sees that it has it.
FOCUSED = """() => {
  const element = document.activeElement;
  const style = getComputedStyle(element);
  const node = element.querySelector?.('.node');
  const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  return [element.dataset.control ?? null, outlined || Boolean(node), element.outerHTML.slice(0, 120)];
}"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a server that needs a token, with a filled store."""
    directory = tmp_path_factory.mktemp("filled")
    with open_store(directory) as store:
        fill(store)
    with served(directory, PHRASE) as url:
        yield url


def opened(browser: Browser, url: str, width: int, **options: Any) -> Page:
    """Return a page of this width whose browser has logged in."""
    page = browser.new_context(viewport={"width": width, "height": 900}, **options).new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{url}login")
    page.get_by_label("token").fill(PHRASE)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(url)
    return page


@pytest.mark.parametrize(
    ("scheme", "width", "checked"),
    [("light", 390, True), ("dark", 1600, True), ("dark", 390, False), ("light", 1600, False)],
)
def test_every_page_is_accessible_and_fits_its_window(
    browser: Browser, filled: str, tmp_path: Path, *, scheme: Any, width: int, checked: bool
) -> None:
    """Its pictures are for looking at: `--basetemp DIR` says where they are.

    Two of four combinations have each width and each scheme once, which is enough for axe-core.
    """
    page = opened(browser, filled, width, color_scheme=scheme)
    violations, cut = {}, {}
    for name, path in PATHS.items():
        page.goto(filled + path)
        violations[name] = faults(page) if checked and name not in LARGE else []
        cut[name] = page.evaluate(CUT_OFF)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        picture = tmp_path / f"{name.replace(' ', '-')}-{scheme}-{width}.png"
        page.screenshot(path=picture, full_page=name not in LARGE)
    page.context.close()
    assert {name: broken for name, broken in violations.items() if broken} == {}
    assert {name: elements for name, elements in cut.items() if elements} == {}


def test_nothing_is_lost_at_twice_the_size(browser: Browser, filled: str) -> None:
    """A browser that enlarges a page to 200 % shows it in a window of half the width."""
    page = opened(browser, filled, 640, device_scale_factor=2)
    cut = {}
    for name, path in PATHS.items():
        page.goto(filled + path)
        cut[name] = page.evaluate(CUT_OFF)
    page.context.close()
    assert {name: elements for name, elements in cut.items() if elements} == {}


@pytest.mark.parametrize("name", [name for name in PATHS if name not in LARGE])
def test_a_keyboard_reaches_every_control_and_the_focus_is_visible(
    browser: Browser, filled: str, name: str
) -> None:
    page = opened(browser, filled, 1600)
    page.goto(filled + PATHS[name])
    count = page.evaluate(NUMBERED, CONTROLS)
    reached, hidden = set(), []
    for _ in range(count + 20):
        page.keyboard.press("Tab")
        number, visible, html = page.evaluate(FOCUSED)
        if number is not None:
            reached.add(int(number))
            hidden += [] if visible else [html]
    missing = [
        page.locator(f"[data-control='{number}']").first.evaluate("each => each.outerHTML.slice(0, 120)")
        for number in sorted(set(range(count)) - reached)
    ]
    page.context.close()
    assert (missing, hidden) == ([], [])


def test_what_is_cut_off_is_found(browser: Browser, filled: str) -> None:
    page = opened(browser, filled, 390)
    assert page.evaluate(CUT_OFF) == []
    page.evaluate("document.querySelector('h1').style.minWidth = '500px'")
    cut = page.evaluate(CUT_OFF)
    page.context.close()
    assert [element for element in cut if element.startswith("<h1")]
