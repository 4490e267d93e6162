"""The table of a job's goals: a line a goal, the tightest limit first, and each note once."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from mistify.config.data.dataset import DatasetConfig
from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Target
from mistify.costs.formats import AxisFormat
from mistify.jobs.job import Goal, GoalState, Job, JobEvent, JobState, ProgressUpdate, Source
from mistify.jobs.package_spec import PackageSpec
from mistify.parsing.quantities import PLAIN
from mistify_server.store.plans import BatchInputs
from mistify_server.web.pages.goal_notes import Note, numbered_notes
from mistify_server.web.pages.job_table import Cell, GoalLine, JobTable, job_table
from mistify_server.web.pages.limit_use import limit_uses
from mistify_server.web.pages.progress import SubjectProgress, progress_of
from tests.support.many_goals import job_of
from tests.support.rendered import job_page

EVIL = "</script><img src=x onerror=alert(1)>\"'&amp;"


class Rows(HTMLParser):
    """The rows of a page's first table, as lists of texts, and the ids of all its elements, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.kinds: list[list[str]] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._inside = 0
        self._done = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        if self._done:
            return
        self._inside += tag == "table"
        if tag == "tr":
            self.rows.append([])
            self.kinds.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            scope = dict(attrs).get("scope")
            self.kinds[-1].append(f"{tag} {scope}" if scope else tag)

    def handle_endtag(self, tag: str) -> None:
        self._done |= tag == "table"

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._inside and not self._done and self.rows and self.rows[-1]:
            self.rows[-1][-1] = " ".join(f"{self.rows[-1][-1]} {data}".split())


def cells(table: JobTable, line: GoalLine) -> dict[str, Cell]:
    return {heading.key: cell for heading, cell in zip(table.headings, line.cells, strict=True)}


def test_twenty_goals_are_twenty_lines_below_the_source() -> None:
    page = Rows(job_page(job_of(20)))
    heading, source, tuned, *goals = page.rows
    assert heading[:7] == ["Goal", "State", "Reached of its limit", "accuracy", "size", "latency", "hardware"]
    assert source[:7] == ["source", "", "", "93.0%", "350KB", "1ms measured", "this server"]
    assert tuned[:4] == ["tuned source", "", "", "95.0%"]
    assert len(goals) == 20
    assert {len(row) for row in page.rows} == {len(heading)}
    assert goals[0][1:7] == [
        "met", "388us of 400us latency", "75.0% (-20.0)", "67.9KB", "388us predicted", "2080"
    ]  # fmt: skip
    assert {kinds[0] for kinds in page.kinds[1:]} == {"th row"}
    assert set(page.kinds[0]) == {"th col"}


def test_the_limit_closest_to_being_exceeded_is_first() -> None:
    rate = AxisFormat("1/frames_per_s", "frames", PLAIN)
    goal = Goal(
        "g",
        0,
        PackageSpec({"flops": 100.0, "latency_ms@host": 2.0, "1/frames_per_s": 0.1}),
        achieved={"flops": 50.0, "latency_ms@host": 1.0, "1/frames_per_s": 0.05},
        measured={"latency_ms@host": 3.0},
    )
    latency, flops, frames = limit_uses(goal, (rate,))
    assert (latency.axis, latency.reached, latency.limit, latency.is_exceeded, latency.bar) == (
        "latency", "3ms", "2ms", True, 100.0
    )  # fmt: skip
    assert (flops.reached, flops.is_exceeded, flops.bar) == ("50", False, 50.0)
    assert (frames.axis, frames.reached, frames.limit, frames.bar) == ("frames", "20", "at least 10", 50.0)
    waiting = limit_uses(replace(goal, achieved={}, measured={}), (rate,))
    assert [(use.reached, use.share, use.bar) for use in waiting] == [("", None, 0.0)] * 3


def test_a_missed_target_is_beside_the_score() -> None:
    goal = Goal("g", 0, PackageSpec({}, targets=(Target("", Metric.ACCURACY, 0.9),)), accuracy=0.8)
    table = job_table(Job("j", JobState.DONE, (goal,), 0, (Source({}, tuned_accuracy=0.85),)))
    assert cells(table, table.goals[0])["score"] == Cell("80.0% (-5.0)", "≥ 90.0%", 0.8, missed=True)


def test_errors_are_sorted_from_worst_to_best_like_shares() -> None:
    goals = [Goal(str(error), 0, PackageSpec({}), metric=Metric.MSE, accuracy=error) for error in (0.5, 0.1)]
    table = job_table(Job("j", JobState.DONE, tuple(goals), 0))
    orders = [cells(table, line)["score"].order for line in table.goals]
    assert orders[0] is not None
    assert orders[1] is not None
    assert orders[0] < orders[1]


def test_latency_is_compared_with_the_source_on_the_same_hardware() -> None:
    source = Source({"latency_ms@host": 8.0, "latency_ms@pi": 30.0}, measured={"latency_ms@host": 10.0})
    here = Goal(
        "here", 0, PackageSpec({}), achieved={"latency_ms@host": 4.0}, measured={"latency_ms@host": 2.0}
    )
    there = Goal("there", 0, PackageSpec({"latency_ms@pi": 12.0}), achieved={"latency_ms@pi": 10.0})
    other = replace(here, id="of another batch", batch=1)
    table = job_table(Job("j", JobState.DONE, (here, there, other), 0, (source,)))
    shown = [cells(table, line) for line in table.goals]
    assert [each["latency"].text for each in shown] == ["2ms", "10ms", "2ms"]
    assert [each["latency"].aside for each in shown] == ["measured", "predicted", "measured"]
    assert [each["hardware"].text for each in shown] == ["this server", "pi", "this server"]
    assert [each["speedup"].text for each in shown] == ["5.0x", "3.0x", "-"]


def test_outputs_and_other_axes_are_columns_to_choose() -> None:
    table = job_table(job_of(3, ("digit", "style")))
    hidden = {heading.key: heading.title for heading in table.headings if not heading.shown}
    assert {"flops", "params", "memory_bytes", "precision", "algorithm"} <= hidden.keys()
    assert hidden["digit.accuracy"] == "digit, accuracy"
    assert cells(table, table.goals[0])["digit.accuracy"].text == "70.0%"
    one = job_table(job_of(3, ("digit",)))
    assert not any(heading.key.startswith("digit") for heading in one.headings)


@pytest.mark.parametrize("batches", [1, 2])
def test_each_source_has_its_lines_before_and_after_tuning(batches: int) -> None:
    sources = tuple(
        Source(
            {}, 0.9, number, f"model-{number}", tuned_accuracy=0.95,
            output_scores=(OutputScore("a", Metric.ACCURACY, 0.1),),
        )
        for number in range(batches)
    )  # fmt: skip
    table = job_table(Job("j", JobState.DONE, (Goal("g", 0, PackageSpec({})),), 0, sources))
    names = [line.name for line in table.sources]
    one = ["source", "tuned source"]
    two = [f"{name} model-{number}" for number in range(2) for name in one]
    assert names == (one if batches == 1 else two)
    assert {len(line.cells) for line in table.sources} == {len(table.headings)}


def test_goals_of_several_models_name_theirs_and_are_grouped_by_it() -> None:
    first, second = job_of(2).goals
    (source,) = job_of(2).sources
    sources = (source, replace(source, batch=1, model=f"upload:{'0' * 64}/keyword-spotter.keras"))
    job = replace(job_of(2), goals=(first, replace(second, batch=1)), sources=sources)
    table = job_table(job)
    models = [cells(table, line)["model"].text for line in table.goals]
    assert models == ["digits-resnet", "keyword-spotter.keras"]
    assert '<option value="model">' in job_page(job)
    assert '<option value="model">' not in job_page(job_of(2))
    assert "model" not in {heading.key for heading in job_table(job_of(2)).headings}


def test_identical_notes_are_listed_once() -> None:
    notes = numbered_notes(job_of(20).goals)
    assert [note.problem for note in notes] == [True, True, False]
    assert notes[2].subject == "16 goals"
    assert notes[2].text == (
        "is judged by the latency on its hardware predicted from its data sheet, without measurements there"
    )
    html = " ".join(job_page(job_of(20)).split())
    assert html.count("predicted from its data sheet") == 1
    page = Rows(html)
    marks = [set(row[0].split()[1:]) for row in page.rows[3:]]
    assert sum("3" in own for own in marks) == 16
    assert {"note-1", "note-2", "note-3"} <= set(page.ids)


def test_a_note_on_a_single_kind_of_hardware_names_it() -> None:
    spec = PackageSpec({"latency_ms@pi": 1.0})
    goals = [
        Goal(name, 0, spec, note="is judged by the latency on pi; cannot be trained", state=GoalState.MET)
        for name in ("a", "b")
    ]
    waiting = Goal("c", 0, spec, warning="accuracy is likely to be missed")
    assert numbered_notes([*goals, waiting]) == [
        Note("is judged by the latency on pi", False, ["a", "b"]),
        Note("cannot be trained", False, ["a", "b"]),
        Note("accuracy is likely to be missed", False, ["c"]),
    ]


def test_user_input_is_shown_as_text() -> None:
    job = job_of(2)
    evil = replace(job.goals[0], id=EVIL, note=EVIL, reason=EVIL, algorithm=EVIL)
    page, plain = Rows(job_page(replace(job, goals=(evil, job.goals[1]), id=EVIL))), Rows(job_page(job))
    assert page.tags.count("img") == plain.tags.count("img") == 1
    assert page.rows[3][0].startswith(EVIL)


def test_the_progress_of_a_running_job_has_the_time_left() -> None:
    job = job_of(10)
    waiting = tuple(replace(goal, state=GoalState.WAITING) for goal in job.goals[4:])
    running = replace(job, state=JobState.RUNNING, goals=(*job.goals[:4], *waiting))
    updates = [
        ProgressUpdate("tuning", 1, 9, job_share=0.2, seconds_left=999.0),
        ProgressUpdate("tuning", 2, 9, job_share=0.25, seconds_left=720.0),
        ProgressUpdate("of an older server", 3, 9),
    ]
    events = [JobEvent(number, number, "goal-7", update) for number, update in enumerate(updates, 1)]
    page = job_page(running, events=events)
    assert '4 of 10 goals finished<span id="left">, about 12 min left</span>' in page
    assert 'id="share" max="1" value="0.25"' in page
    assert 'max="9" value="3" aria-label="Steps of goal-7"' in page
    before = job_page(running)
    assert '4 of 10 goals finished<span id="left"></span>' in before
    assert 'id="share" max="1" value="0.4"' in before
    assert "goals finished" not in job_page(job, events=events)


def test_the_progress_of_a_goal_keeps_its_steps_in_stages_without_steps() -> None:
    stages = [
        (None, ProgressUpdate("tuning the source", 5, 9)),
        (None, ProgressUpdate("measuring the source", 0, 1)),
        ("phone", ProgressUpdate("starting", 0, 0)),
        ("phone", ProgressUpdate("tuning", 1_234, 5_678)),
        ("phone", ProgressUpdate("packaging", 0, 1)),
    ]
    events = [JobEvent(number, number, *stage) for number, stage in enumerate(stages, 1)]
    assert progress_of(events[:1]) == {"source": SubjectProgress("tuning the source, step 5 of 9", 5, 9)}
    assert progress_of(events[:3]) == {
        "source": SubjectProgress("measuring the source"),
        "phone": SubjectProgress("starting"),
    }
    tuning = SubjectProgress("tuning, step 1,234 of 5,678", 1_234, 5_678)
    assert progress_of(events[:4])["phone"] == tuning
    assert progress_of(events)["phone"] == replace(tuning, stage="packaging")


def test_the_top_names_model_data_and_algorithm() -> None:
    data = DatasetConfig(unlabelled="photos.npz", test="labelled.npz")
    page = Rows(job_page(job_of(2), inputs=[BatchInputs(EVIL, data, "auto")]))
    words = f"Model {EVIL}, test data labelled.npz, unlabelled data photos.npz, algorithm auto"
    assert words in " ".join(page.text.split())
    assert page.tags.count("img") == 1
