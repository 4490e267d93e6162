"""An administrator makes tokens for others, who see who they are and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.test_accessibility import faults
from tests.support.servers import web_server
from tests.support.tokens import write_token

pytestmark = pytest.mark.web

PHRASE = "correct horse battery staple"


@pytest.fixture
def protected(tmp_path: Path) -> Iterator[str]:
    """Return the URL of a server with a token."""
    with web_server(tmp_path / "store", "--token-file", write_token(tmp_path / "token", PHRASE)) as url:
        yield url


def log_in(page: Page, url: str, token: str) -> None:
    page.goto(url)
    page.get_by_label("token").fill(token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()


def test_tokens_are_made_and_revoked_in_a_browser(browser: Browser, page: Page, protected: str) -> None:
    log_in(page, protected, PHRASE)
    page.get_by_role("link", name="Tokens").click()
    expect(page.get_by_text("No tokens besides the administrator's")).to_be_visible()
    page.get_by_label("Name").fill("ci")
    page.get_by_label("read", exact=True).check()
    page.get_by_label("Days until it expires").fill("30")
    page.get_by_label("Unfinished jobs").fill("3")
    page.get_by_role("button", name="Make the token").click()
    made = page.locator("#made code")
    expect(made).to_contain_text("mistify_")
    secret = made.inner_text()
    assert faults(page) == []
    page.reload()
    assert secret not in page.content()
    row = page.get_by_role("row").filter(has_text="ci")
    expect(row).to_contain_text("read")
    expect(row).to_contain_text("0 of 3")
    assert faults(page) == []
    asked = []
    page.once("dialog", lambda dialog: (asked.append(dialog.default_value), dialog.accept("5GB, 4, none")))
    page.get_by_role("button", name="Limits of ci").click()
    expect(row).to_contain_text("0B of 5GB")
    expect(row).to_contain_text("0 of 4")
    assert asked == ["none, 3, none"]

    context = browser.new_context()
    other = context.new_page()
    log_in(other, protected, secret)
    expect(other.locator("header")).to_contain_text("ci")
    expect(other.get_by_role("link", name="Tokens")).to_have_count(0)
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Revoke ci").click()
    expect(page.get_by_text("No tokens besides the administrator's")).to_be_visible()
    other.reload()
    expect(other.get_by_role("button", name="Log in")).to_be_visible()
    context.close()
