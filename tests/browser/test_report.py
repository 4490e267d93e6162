"""The report of a job opened from a file: it is self-contained, and user input is escaped."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from mistify.jobs.job import Job
from mistify.jobs.report import report
from mistify.jobs.tradeoffs import trade_offs
from mistify_server.web.pages.report_page import report_page
from tests.support.many_goals import job_of
from tests.support.stored import digits_job

pytestmark = [pytest.mark.web, pytest.mark.timeout(300)]

EVIL = "</script><img src=x onerror=document.title=1><b>bold</b>&lt;"

#: Opens the report of a job, and returns the list of addresses requested from then on.
Open = Callable[[Job], list[str]]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return digits_job(tmp_path)


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> Open:
    def open_report(job: Job) -> list[str]:
        (tmp_path / "report.html").write_text(report_page(job))
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "report.html").as_uri())
        return requests

    return open_report


def test_plots_are_drawn_without_loading_other_files(
    page: Page, opened: Open, job: Job, tmp_path: Path, screenshots: Path
) -> None:
    requests = opened(job)
    plots = page.locator(".plot")
    expect(plots.locator(".points path.point").first).to_be_visible()
    for place, trade_off in enumerate(trade_offs(report(job))):
        drawn = plots.nth(place)
        expect(drawn.locator(".xtitle")).to_have_text(trade_off.title)
        # The source is a point as well.
        expect(drawn.locator("path.point")).to_have_count(len(trade_off.points) + 1)
        expect(drawn.locator(".xy2 path.js-line")).to_have_count(len(trade_off.limits))
    expect(plots).to_have_count(4)
    page.screenshot(path=screenshots / "report.png", full_page=True)
    assert requests == [(tmp_path / "report.html").as_uri()]


def test_points_and_nodes_lead_to_their_goals(page: Page, opened: Open, job: Job) -> None:
    opened(job)
    point = page.locator(".plot .points path.point").first
    expect(point).to_be_visible()
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(".hoverlayer text").first).to_contain_text("half")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(".goal:target")).to_have_id("goal-half")
    page.get_by_role("link", name="board").click()
    expect(page.locator(".goal:target")).to_contain_text("raspberry-pi")


def test_markup_in_a_goal_is_shown_as_text(page: Page, opened: Open, job: Job) -> None:
    half, *others = job.goals
    requests = opened(replace(job, goals=(replace(half, id=EVIL, note=EVIL, choice=EVIL), *others)))
    evil = page.locator(".goal").first
    expect(evil.locator("th")).to_have_text(EVIL)
    expect(evil.locator("img, b, script")).to_have_count(0)
    point = page.locator(".plot .points path.point").first
    expect(point).to_be_visible()
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    expect(page.locator(".hoverlayer text").first).to_contain_text(EVIL)
    expect(page.locator(".hoverlayer text tspan[style*=bold]")).to_have_count(0)
    point.click(force=True)
    expect(page.locator(".goal:target th")).to_have_text(EVIL)
    assert page.title() != "1"
    assert len(requests) == 1


def test_foreign_scripts_do_not_run(browser: Browser, job: Job, tmp_path: Path) -> None:
    # Chromium logs the refusal on the console, so console errors are ignored.
    page = browser.new_page()
    (tmp_path / "report.html").write_text(report_page(job))
    page.goto((tmp_path / "report.html").as_uri())
    page.evaluate("""() => {
      const note = (event) => { window.refused = event.effectiveDirective; };
      document.addEventListener("securitypolicyviolation", note);
      const script = document.createElement("script");
      script.textContent = "document.title = 1";
      document.head.append(script);
    }""")
    page.wait_for_function("window.refused === 'script-src-elem'")
    assert page.title() == f"{job.id} - Mistify"
    page.close()


def test_many_goals_can_be_filtered(page: Page, opened: Open, job: Job) -> None:
    goals = tuple(
        replace(job.goals[n % 5], id=f"device-{n:04}", parent=f"device-{n // 2:04}" if n else None)
        for n in range(300)
    )
    opened(replace(job, goals=goals))
    shown = page.locator(".goal:not([hidden])")
    expect(shown).to_have_count(300)
    page.get_by_label("State").select_option("unmet")
    expect(shown).to_have_count(60)
    page.get_by_label("Search").fill("device-001")
    # Two of these ten, and four adapted from one of them.
    expect(shown).to_have_count(6)
    expect(page.locator("output")).to_have_text("6 shown")
    # A link to a hidden goal shows it.
    page.evaluate("location.hash = 'goal-device-0250'")
    expect(page.locator("#goal-device-0250")).to_be_in_viewport()
    expect(shown).to_have_count(300)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_fits_the_width_of_a_phone(
    browser: Browser, job: Job, tmp_path: Path, scheme: str
) -> None:
    (tmp_path / "report.html").write_text(report_page(job))
    page = browser.new_page(viewport={"width": 360, "height": 740}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto((tmp_path / "report.html").as_uri())
    expect(page.locator(".plot .main-svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_twenty_goals_with_two_outputs_are_three_screens(browser: Browser, tmp_path: Path) -> None:
    """All limits, scores and reasons are shown; how a goal was made is a click away, also without scripts."""
    (tmp_path / "report.html").write_text(report_page(job_of(20, ("class", "box"))))
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    expect(page.locator(".plot .main-svg").first).to_be_visible()
    page.screenshot(path=tmp_path / "report.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollHeight") <= 3 * 900
    expect(page.locator(".goal .limit:visible")).to_have_count(20)
    first = page.locator(".goal").first
    made = first.get_by_text("thread")
    expect(made).to_be_hidden()
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(made).to_be_visible()
    context.close()


def test_twenty_goals_are_readable_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    """The limited figure and the score of each goal come first, and are seen without scrolling sideways."""
    job = job_of(20, ("class", "box"))
    (tmp_path / "report.html").write_text(report_page(job))
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    for goal in page.locator(".goal").all():
        for figure in (goal.locator(".limit"), goal.locator(".number").last, goal.locator(".state")):
            box = figure.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
    first = page.locator(".goal").first
    expect(first.locator("[data-title='accuracy']")).to_contain_text("75.0%")
    box = first.bounding_box()
    assert box is not None
    assert box["y"] <= 844  # on the first screen
    goals = page.locator("#goals").bounding_box()
    assert goals is not None
    assert goals["height"] <= 6 * 844
    # Each goal is still a row of a table.
    assert page.get_by_role("row").count() >= 20
    context.close()


def test_the_table_is_shown_without_scripts(browser: Browser, job: Job, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(report_page(job))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    expect(page.locator(".goal")).to_have_count(len(job.goals))
    expect(page.locator("#plots")).to_have_text("Plots need JavaScript and a browser from 2023 or later.")
    context.close()
