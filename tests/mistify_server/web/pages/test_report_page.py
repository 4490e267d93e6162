"""The report page of a job: self-contained, with escaped user input and complete results."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Target
from mistify.config.task import TaskConfig
from mistify.costs.formats import AxisFormat
from mistify.jobs.job import Goal, GoalState, Job, JobState, PackageFile, Source
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.report import hardware_named
from mistify.parsing.quantities import PLAIN
from mistify_server.web.assets import plotly_script
from mistify_server.web.pages.goal_table import Figure, goal_table
from mistify_server.web.pages.report_page import report_page
from mistify_server.web.pages.task_tables import TaskRow, TaskTable, task_table
from tests.support.many_goals import job_of
from tests.support.stored import digits_job

EVIL = "</script><img src=x onerror=alert(1)>\"'&amp;"


class Parsed(HTMLParser):
    """A parsed page: its tags, the content of its scripts by type, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, list[str]] = {}
        self.text = ""
        self._inside: tuple[str, str] = ("", "")
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = (tag, dict(attrs).get("type") or "")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ("", "")

    def handle_data(self, data: str) -> None:
        tag, kind = self._inside
        if tag == "script":
            self.scripts.setdefault(kind, []).append(data)
        elif tag != "style":
            self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return digits_job(tmp_path)


def test_the_page_loads_nothing_and_allows_only_its_own_scripts(job: Job) -> None:
    page = Parsed(report_page(job))
    addresses = [
        str(value)
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset", "data")
    ]
    assert addresses
    assert all(address.startswith(("#", "data:image/svg+xml;base64,")) for address in addresses)
    (policy,) = (attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes)
    directives = dict(part.strip().split(" ", 1) for part in str(policy).split(";"))
    assert directives["default-src"] == "'none'"
    (packed,) = page.scripts["text/plain"]
    plotly = gzip.decompress(base64.b64decode(packed))
    assert plotly == plotly_script().read_bytes()
    digests = [hashlib.sha256(script).digest() for script in (*map(str.encode, page.scripts[""]), plotly)]
    assert directives["script-src"].split() == [
        f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests
    ]


def test_user_input_is_shown_as_text(job: Job) -> None:
    half, *others = job.goals
    children = [replace(goal, parent=EVIL) if goal.parent == half.id else goal for goal in others]
    evil = replace(half, id=EVIL, note=EVIL, warning=EVIL, choice=EVIL, precision_choice=EVIL, algorithm=EVIL)
    hostile = replace(job, goals=(evil, *children), reason=EVIL, spent={EVIL: 1.0}, id=EVIL)
    page, plain = Parsed(report_page(hostile)), Parsed(report_page(job))
    assert page.words.count(EVIL) > 8
    assert [tag for tag, _ in page.tags].count("img") == [tag for tag, _ in plain.tags].count("img") == 1
    assert page.scripts[""] == plain.scripts[""]
    (plots,) = page.scripts["application/json"]
    met = next(trace for trace in json.loads(plots)[0]["traces"] if trace["name"] == "met")
    assert met["customdata"][0] == EVIL
    assert "<" not in met["text"][0]


def test_a_goal_shows_its_results_and_reasons(job: Job) -> None:
    page = Parsed(report_page(job, lambda: datetime(2026, 1, 2, 3, 4, tzinfo=UTC)))
    for words in (
        "As of 2026-01-02 03:04 UTC",
        "4 of 5 goals met in 6 min.",
        "Submitted 2026-11-25 04:23 UTC",
        "small unmet int8 195K ≤ 195K 16.9K 19KB 7.97us 5.53us 98.1% (-0.8) ≥ 99.9%",
        "accuracy 0.9805 below 0.9990 on the test data",
        "board met (predicted) float32 221K 18.3K 79.5KB 166us on raspberry-pi ≤ 176us - 96.4% (-2.5)",
        "board is judged by the latency on raspberry-pi",
        "Precision: float32, at which the limits leave 40% of the source",
        "0.50x 117K 9.63K 43.2KB 5.88us 11.7us 96.7% (-2.2)",
    ):
        assert re.sub(r"\s", "", words) in re.sub(r"\s", "", page.text), words
    goals = {attributes["id"] for _, attributes in page.tags if attributes.get("class") == "goal"}
    nodes = {attributes["href"] for tag, attributes in page.tags if tag == "a"} - {
        "#goals",
        "#tree",
        "#trade-offs",
    }
    assert {f"#{goal}" for goal in goals} == nodes == {f"#goal-{goal.id}" for goal in job.goals}


def test_a_goal_that_devices_can_adapt_says_so(job: Job) -> None:
    words = "Devices adapt it to their data without labels from a shift of 1.5, and restore it below 1."
    assert words not in Parsed(report_page(job)).words
    first, *others = job.goals
    first = replace(first, files=(*first.files, PackageFile("adaptation.json", 10, "0" * 64)))
    assert Parsed(report_page(replace(job, goals=(first, *others)))).words.count(words) == 1


def test_limits_are_shown_where_they_are_evaluated() -> None:
    rate = AxisFormat("1/frames_per_s", "frames", PLAIN)
    source = Source({"flops": 100.0}, 0.9, formats=(rate,), tuned_accuracy=0.9)
    host = Goal(
        "host",
        0,
        PackageSpec(
            {"latency_ms@host": 1.0, "1/frames_per_s": 0.1},
            targets=(Target("", Metric.ACCURACY, 0.8), Target("mask", Metric.MEAN_IOU, 0.7)),
        ),
        state=GoalState.UNMET,
        achieved={"latency_ms@host": 0.5, "1/frames_per_s": 0.05},
        measured={"latency_ms@host": 2.0},
        accuracy=0.85,
        output_scores=(OutputScore("mask", Metric.MEAN_IOU, 0.6),),
    )
    table = goal_table(Job("j", JobState.DONE, (host, Goal("waiting", 0, PackageSpec({}))), 0, (source,)))
    titles = [column.title for column in table.columns]
    assert titles[-3:] == ["predicted latency", "measured latency", "frames"]
    (batch,) = table.batches
    shown, waiting = batch.goals
    assert shown.package.figures[-3:] == [
        Figure("500us"),
        Figure("2ms", "≤ 1ms", True),
        Figure("20", "≥ 10"),
    ]
    assert shown.package.score == Figure("85.0% (-5.0)", "≥ 80.0%")
    (mask,) = shown.package.outputs
    assert (mask.name, mask.score) == ("mask, mean_iou", Figure("60.0%", "≥ 70.0%", True))
    assert {figure.reached for figure in waiting.package.figures} == {"-"}
    assert [(row.name, row.score.reached) for row in batch.source] == [
        ("source", "90.0%"),
        ("tuned", "90.0%"),
    ]
    assert batch.elsewhere == {}


def test_the_source_has_one_line_for_all_other_hardware() -> None:
    job = job_of(20)
    (batch,) = goal_table(job).batches
    assert [row.name for row in batch.source] == ["source", "tuned"]
    named = {name for goal in job.goals if (name := hardware_named(goal))}
    assert batch.elsewhere.keys() == named
    words = Parsed(report_page(job)).words
    assert f"Its latency on {len(named)} other machines" in words
    assert all(f"on {name}" in words for name in named)


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING, JobState.FAILED, JobState.CANCELLED])
def test_a_job_without_packages_needs_no_plots(state: JobState) -> None:
    waiting = Goal(
        "waiting",
        0,
        PackageSpec({"flops": 1.0}),
        algorithm="morphnet",
        warning="accuracy is likely to be missed",
    )
    html = report_page(Job("j", state, (waiting,), 0, reason="the disk is full"))
    assert len(html) < 30_000
    assert "accuracy is likely to be missed" in html
    assert "the disk is full" in html
    assert report_page(Job("j", state, (), 0)).startswith("<!doctype html>")


def test_many_goals_can_be_filtered(job: Job) -> None:
    goals = tuple(replace(job.goals[n % 5], id=f"g{n}", parent=None) for n in range(1_000))
    page = Parsed(report_page(replace(job, goals=goals)))
    assert sum(attributes.get("class") == "goal" for _, attributes in page.tags) == 1_000
    options = [attributes["value"] for tag, attributes in page.tags if tag == "option"]
    assert options == ["", "met", "unmet"]
    assert "met, 800" in page.words


def test_the_task_of_a_goal_is_said_as_text(job: Job) -> None:
    first, *others = job.goals
    task = TaskConfig(classes=("cat", EVIL))
    of_task = replace(first, spec=replace(first.spec, task=task))
    page = Parsed(report_page(replace(job, goals=(of_task, *others))))
    assert f"For the task classes cat, {EVIL} alone." in page.words
    assert not any(attributes.get("onerror") for _, attributes in page.tags)
    assert "For the task" not in Parsed(report_page(job)).words


def test_tasks_are_shown_by_limits(job: Job) -> None:
    first = job.goals[0]

    def goal(number: int, limit: float, task: TaskConfig | None, **changes: Any) -> Goal:
        spec = PackageSpec({"flops": limit}, task=task)
        return replace(first, id=f"g{number}", spec=spec, parent=None, branch_figures=(), **changes)

    odd, even = TaskConfig(properties=("has", "odd")), TaskConfig(properties=("has", "even"))
    goals = (
        goal(0, 1e6, odd, accuracy=0.9),
        goal(1, 2e6, odd, accuracy=None, state=GoalState.WAITING),
        goal(2, 1e6, even, accuracy=0.8, state=GoalState.UNMET),
        goal(3, 1e6, None),
    )
    table = task_table(replace(job, goals=goals))
    assert table == TaskTable(
        ["multiply-adds ≤ 1M", "multiply-adds ≤ 2M"],
        [TaskRow("has, odd", [[goals[0]], [goals[1]]]), TaskRow("has, even", [[goals[2]], []])],
    )
    text = re.sub(r"\s", "", Parsed(report_page(replace(job, goals=goals))).text)
    assert "Taskmultiply-adds≤1Mmultiply-adds≤2Mhas,odd90.0%," in text
    assert "waitinghas,even80.0%," in text
    assert task_table(replace(job, goals=(*goals[:2], goals[3]))) is None


def test_limits_of_tasks_are_the_same_at_any_precision() -> None:
    tasks = [TaskConfig(properties=(name,)) for name in ("odd", "even")]
    specs = [
        PackageSpec({axis: 2048.0}, task=task)
        for axis, task in zip(("memory_bytes", "memory_bytes@int8"), tasks, strict=True)
    ]
    goals = tuple(Goal(str(number), 0, spec) for number, spec in enumerate(specs))
    table = task_table(Job("j", JobState.DONE, goals, 0))
    assert table is not None
    assert len(table.columns) == 1
