"""Parts of pages that need no server: the plan in the editor, and long names on a phone."""

import pytest
from playwright.sync_api import Page, expect
from pydantic import TypeAdapter

from mistify.config.data.metric import Metric, OutputScore
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import BranchFigures, Goal, GoalState, Job, JobState, Source
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.plan import Interval, Plan, PlannedBatch, PlannedEdge
from mistify_server.web.rendering import render
from tests.browser.without_server import open_page
from tests.support.rendered import goal_page

pytestmark = pytest.mark.web


@pytest.mark.parametrize(
    ("metric", "score"),
    [
        ("accuracy", "70.1 % (60.0 to 80.0)"),
        ("mse", "0.7012 (0.6 to 0.8)"),
        ("mae", "0.7012 (0.6 to 0.8)"),
        ("pinball_error", "0.7012 (0.6 to 0.8)"),
    ],
)
def test_a_plan_shows_accuracies_as_percentages_and_errors_as_numbers(
    page: Page, metric: str, score: str
) -> None:
    open_page(page, render("submit.html", path="/submit", in_session=False, example=""), "/submit")
    interval = Interval(0.70123, 0.6, 0.8)
    edge = PlannedEdge(("half",), None, {}, "morphnet", "", {}, interval, (), steps=1, seconds=1.0)
    batch = PlannedBatch("digits-resnet", Metric(metric), {}, None, 1, 1.0, (edge,), 1.0, evidence="")
    plan = Plan((batch,))
    page.evaluate("plan => showPlan(plan)", TypeAdapter(Plan).dump_python(plan, mode="json"))
    expect(page.locator("#answer td").nth(3)).to_have_text(score)


def test_long_names_on_the_page_of_a_goal_fit_the_width_of_a_phone(page: Page) -> None:
    name = "the_output_" * 9
    goal = Goal(
        "half",
        0,
        PackageSpec({}),
        state=GoalState.MET,
        achieved={f"latency_ms@{name}": 1.0},
        accuracy=0.5,
        output_scores=(OutputScore(name, Metric.MEAN_IOU, 0.5), OutputScore("b", Metric.MSE, 0.5)),
        branch_figures=(BranchFigures(1.0, {}, {}, 0.5),),
    )
    page.set_viewport_size({"width": 360, "height": 740})
    job = Job("j", JobState.DONE, (goal,), 0, (Source({}),))
    open_page(page, goal_page(job, goal, GoalDetails(None, (), 5)), "/jobs/j/goals/half")
    expect(page.locator("td", has_text=name)).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
