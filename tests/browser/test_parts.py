"""Parts of pages that need no server: the plan in the editor, and long names on a phone."""

import json

import pytest
from playwright.sync_api import Page, expect
from pydantic import TypeAdapter

from mistify.config.data.dataset import DatasetConfig
from mistify.config.data.metric import Metric, OutputScore
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import BranchFigures, Goal, GoalState, Job, JobState, Source
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.plan import Interval, Plan, PlannedBatch, PlannedEdge, PlannedPreparation
from mistify_server.store.plans import BatchInputs
from mistify_server.web.pages.goal_fields import limit_titles
from mistify_server.web.rendering import render
from tests.browser.test_accessibility import faults
from tests.browser.without_server import open_page
from tests.support.many_goals import job_of
from tests.support.rendered import goal_page

pytestmark = pytest.mark.web


SUBMIT = render(
    "submit.html", path="/submit", needs_token=False, in_session=False, caller=None, text='["example"]'
)


def show_plan(page: Page, plan: Plan) -> list[list[str]]:
    """Show a plan on the page, and return the cells of its rows."""
    open_page(page, SUBMIT, "/submit")
    page.evaluate("plan => showPlan(plan)", TypeAdapter(Plan).dump_python(plan, mode="json"))
    return [row.locator("td").all_inner_texts() for row in page.locator("#answer tbody tr").all()]


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
    interval = Interval(0.70123, 0.6, 0.8)
    edge = PlannedEdge(("half",), None, {}, "morphnet", "", {}, interval, (), steps=1, seconds=1.0)
    batch = PlannedBatch("digits-resnet", Metric(metric), {}, None, 1, 1.0, (edge,), 1.0, evidence="")
    source, half = show_plan(page, Plan((batch,)))
    assert (source[4], half[4]) == ("", score)


def test_a_plan_counts_the_time_of_the_source_and_of_preparations(page: Page) -> None:
    budget = {"flops": 390.0, "latency_ms@pi": 1.5, "latency_ms@host@int8": 1.0}
    costs = {"flops": 400.0, "latency_ms@pi": 2.0, "latency_ms@host@int8": 0.5, "params": 10.0}
    whole = {"flops": 800.0, "latency_ms@pi": 3.0, "latency_ms@host": 4.0}
    edge = PlannedEdge(
        ("half", "pi"), None, budget, "nested", "", costs, None, (), steps=1200, seconds=5.2, warning="slow"
    )
    batch = PlannedBatch(
        "digits-resnet",
        Metric.ACCURACY,
        whole,
        Interval(0.9, 0.8, 1.0),
        2400,
        35.7,
        (edge,),
        48.0,
        evidence="",
        preparations=(PlannedPreparation("nested", 600, 7.0),),
    )
    rows = show_plan(page, Plan((batch,)))
    assert rows == [
        ["source", "", "", "", "90.0 % (80.0 to 100.0)", "2,400", "36", ""],
        ["preparation of nested", "source", "nested", "", "", "600", "7", ""],
        [
            "half, pi",
            "source",
            "nested",
            "50 % of the multiply-adds (limit 49 %), 67 % of the latency on pi (limit 50 %), "
            "13 % of the latency (limit 25 %)",
            "",
            "1,200",
            "6",
            "slow",
        ],
    ]
    assert faults(page) == []


def test_a_draft_survives_a_reload(page: Page) -> None:
    open_page(page, SUBMIT, "/submit")
    config, again = page.get_by_label("Config"), page.get_by_role("button", name="Start over")
    expect(config).to_have_value('["example"]')
    expect(again).to_be_hidden()
    config.fill('["mine"]')
    page.reload()
    expect(config).to_have_value('["mine"]')
    again.click()
    expect(config).to_have_value('["example"]')
    expect(again).to_be_hidden()
    page.reload()
    expect(config).to_have_value('["example"]')


def test_a_text_too_large_to_keep_can_be_edited(page: Page) -> None:
    open_page(page, SUBMIT, "/submit")
    page.evaluate("config.value = 'x'.repeat(6_000_000) + '\\n'; config.dispatchEvent(new Event('input'))")
    expect(page.locator("#lines span")).to_have_count(2)
    expect(page.get_by_role("button", name="Start over")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Config")).to_have_value('["example"]')


def test_goals_are_put_into_the_config_by_their_fields(page: Page) -> None:
    """Where a job has several models, each goal names its own."""
    data = DatasetConfig(train="train.npz", test="test.npz")
    inputs = [BatchInputs(model, data, "auto", {"adapt_steps": 9}) for model in ("a'.keras", "b.keras")]
    html = render(
        "add.html",
        path="/jobs/j/add",
        needs_token=False,
        in_session=False,
        caller=None,
        text='["example"]',
        job=job_of(1),
        inputs=inputs,
        limits=limit_titles(),
        hardware=["raspberry-pi-5"],
    )
    open_page(page, html, "/jobs/j/add")
    page.get_by_label("Name").fill("watch")
    page.get_by_label("Value").fill("2ms")
    page.get_by_label("Limit").select_option("latency")
    page.get_by_label("Device").fill("raspberry-pi-5")
    page.get_by_role("button", name="Put it into the config").click()
    config = page.get_by_label("Config")
    first = {
        "id": "watch",
        "model": "a'.keras",
        "dataset": {"train": "train.npz", "test": "test.npz"},
        "algorithm": {"name": "auto", "config": {"adapt_steps": 9}},
        "hardware": "raspberry-pi-5",
        "adaptation_goal": {"latency": "2ms"},
    }
    assert json.loads(config.input_value()) == [first]
    expect(page.get_by_label("Name")).to_be_focused()
    page.get_by_label("Name").fill("phone")
    page.get_by_label("Device").fill("")
    page.locator("select[name=common]").select_option("b.keras, auto")
    page.locator("select[name=common]").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    second = {**first, "id": "phone", "model": "b.keras"}
    del second["hardware"]
    assert json.loads(config.input_value()) == [first, second]
    assert faults(page) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"train": "train.npz"}', '{"train": "NEW"}'),
        ('{"train": "data/train.npz", "test": "t.npz"}', '{"train": "NEW", "test": "t.npz"}'),
        ('["upload:0/train.npz", "train.npz.gz"]', '["NEW", "train.npz.gz"]'),
        ('["train.npz?x=1"]', '["NEW?x=1"]'),
        ('["a/train.npz", "b/train.npz"]', '"NEW"["a/train.npz", "b/train.npz"]'),
        ('["retrain.npz"]', '"NEW"["retrain.npz"]'),
    ],
)
def test_a_sent_file_is_named_in_the_config(page: Page, before: str, after: str) -> None:
    open_page(page, SUBMIT, "/submit")
    page.get_by_label("Config").fill(before)
    page.evaluate("config.setSelectionRange(0, 0); nameInConfig({name: 'train.npz'}, 'NEW')")
    expect(page.get_by_label("Config")).to_have_value(after)


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
