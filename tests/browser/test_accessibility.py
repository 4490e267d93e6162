"""axe-core finds no fault in a page, in light colours on a phone and in dark ones on a screen."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from mistify.jobs.details import GoalDetails
from mistify.jobs.job import JobEvent, JobState, ProgressUpdate
from mistify_server.web.pages.report_page import report_page
from tests.browser.without_server import open_page
from tests.support.many_goals import job_of
from tests.support.rendered import goal_page, job_page

pytestmark = pytest.mark.web

JOB = job_of(20, ("class", "box"))
RUNNING = replace(JOB, state=JobState.RUNNING)
TUNING = JobEvent(1, 1, "goal-1", ProgressUpdate("tuning", 2, 9, job_share=0.2, seconds_left=90.0))


def goal(page: Page) -> None:
    shown = JOB.goals[0]
    open_page(page, goal_page(JOB, shown, GoalDetails(None, (), 0)), f"/jobs/j/goals/{shown.id}")


#: Pages that need no server.
PAGES: dict[str, Callable[[Page], None]] = {
    "job": lambda page: open_page(page, job_page(JOB), "/jobs/j"),
    "large job": lambda page: open_page(page, job_page(job_of(60)), "/jobs/j"),
    "running job": lambda page: open_page(page, job_page(RUNNING, events=[TUNING]), "/jobs/j"),
    "goal": goal,
    "report": lambda page: open_page(page, report_page(JOB), "/report"),
    "large report": lambda page: open_page(page, report_page(job_of(60)), "/report"),
}


def faults(page: Page) -> list[tuple[str, str]]:
    """Return the rules that a page breaks, with the first element that breaks it."""
    violations = Axe().run(page).response["violations"]
    return [(violation["id"], violation["nodes"][0]["html"]) for violation in violations]


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1600)])
def test_pages_are_accessible(browser: Browser, url: str, scheme: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    found = {}
    for name, opened in PAGES.items():
        opened(page)
        found[name] = faults(page)
    page.unroute_all()
    for path in ("", "submit", "compare", "fleet", "login"):
        page.goto(url + path)
        found[path or "jobs"] = faults(page)
    context.close()
    assert {name: broken for name, broken in found.items() if broken} == {}


def test_faults_are_found(page: Page) -> None:
    open_page(page, job_page(JOB).replace("<h1>", "<input><h1>"), "/jobs/j")
    assert [rule for rule, _ in faults(page)] == ["label"]
