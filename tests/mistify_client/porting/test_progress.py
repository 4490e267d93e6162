import io
from dataclasses import replace
from itertools import product

import pytest
from rich.console import Console

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal, GoalState, Job, JobEvent, JobState, ProgressUpdate, Source
from mistify.jobs.package_spec import PackageSpec
from mistify_client.porting.log import show_log
from mistify_client.porting.progress import (
    SOURCE,
    BarDisplay,
    LineDisplay,
    activity_shown,
    display,
    once_for_equal_goals,
    source_behind,
)

MODEL = Source({"flops": 1000.0, "params": 100.0}, 0.8)


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=200, color_system=None)


@pytest.mark.parametrize(("limited", "shown_energy"), [({}, False), ({"energy_mj@host": 1.0}, True)])
def test_energies_are_shown_only_if_a_goal_limits_them(limited, shown_energy):
    """They follow the other costs, and would make each line twice as long."""
    out = console(terminal=False)
    source = Source({"flops": 1000.0, "energy_mj@host": 2.0}, 0.8)
    costs = {"flops": 480.0, "energy_mj@host": 0.8}
    goal = Goal("half", 0, PackageSpec(limited), state=GoalState.MET, achieved=costs, accuracy=0.75)
    with display(out) as shown:
        shown.update("half", ProgressUpdate("adapting", 1, 2, costs, 0.78), source)
        shown.ended(goal, source)
    progress, ended = out.file.getvalue().splitlines()
    assert "energy" not in progress
    assert ("energy" in ended) == shown_energy
    assert "multiply-adds 48%" in progress
    assert "multiply-adds 48%" in ended


@pytest.mark.parametrize(
    ("precision", "shown_size"),
    [
        (Quantization.NONE, "size 60%"),
        (Quantization.FLOAT16, "size in float16 40%"),
        (Quantization.INT8_QAT, "size in int8 20%"),
    ],
)
def test_a_package_has_the_size_of_its_precision(precision, shown_size):
    """A limit of half the source's size would else look exceeded."""
    costs = {"size_bytes": 600.0, "size_bytes@float16": 400.0, "size_bytes@int8": 200.0}
    spec = PackageSpec({}, quantization=QuantizationConfig(precision=precision))
    out = console(terminal=False)
    with display(out) as shown:
        goal = Goal("half", 0, spec, state=GoalState.MET, achieved=costs, accuracy=0.75)
        shown.ended(goal, Source({"size_bytes": 1000.0}, 0.8))
    assert out.file.getvalue() == f"half: met, accuracy 75.0%, {shown_size}\n"


def test_terminals_that_cannot_move_their_cursor_get_lines(monkeypatch):
    """Bars would never be drawn there."""
    monkeypatch.setenv("TERM", "dumb")
    out = console(terminal=True)
    with display(out) as shown:
        shown.update("half", ProgressUpdate("adapting", 1, 2, {"flops": 700.0}, 0.78), MODEL)
    assert out.file.getvalue().startswith("half: adapting")


def test_progress_is_printed_as_lines_without_a_terminal():
    out = console(terminal=False)
    with display(out) as shown:
        assert isinstance(shown, LineDisplay)
        shown.update(SOURCE, ProgressUpdate("loading", 0, 0), None)
        for step in range(1, 201):
            shown.update("half", ProgressUpdate("adapting", step, 200, {"flops": 700.0}, 0.78), MODEL)
        shown.update("half", ProgressUpdate("attempt 1 of 3 failed: out of memory", 0, 0), MODEL)
        shown.update("half", ProgressUpdate("starting", 0, 0), MODEL)
        shown.update("half", ProgressUpdate("packaging", 0, 1), MODEL)
        shown.ended(
            Goal("half", 0, PackageSpec({}), state=GoalState.MET, achieved={"flops": 480.0}, accuracy=0.75),
            MODEL,
        )
        shown.ended(Goal("tenth", 0, PackageSpec({}), state=GoalState.FAILED, reason="no room [1]"), MODEL)
    lines = out.file.getvalue().splitlines()
    assert lines[0] == "source: loading"
    assert lines[1] == "half: adapting 1/200, accuracy 78.0%, multiply-adds 70%"
    assert len([line for line in lines if "adapting" in line]) == 11
    assert not any("starting" in line for line in lines)
    assert lines[-4:] == [
        "half: attempt 1 of 3 failed: out of memory",
        "half: packaging",
        "half: met, accuracy 75.0%, multiply-adds 48%",
        "tenth: failed, no room [1]",
    ]


def test_a_goal_of_another_batch_is_not_compared_with_the_source():
    half = Goal("half", 0, PackageSpec({}), state=GoalState.MET, achieved={"flops": 480.0}, accuracy=0.75)
    job = Job("j", JobState.DONE, (half, replace(half, id="other", batch=1)), 0, (MODEL,))
    adapting = ProgressUpdate("adapting", 1, 200, {"flops": 700.0}, 0.78)
    events = [
        JobEvent(number, number, goal, event)
        for number, (goal, event) in enumerate(product(("half", "other"), (adapting, GoalState.MET)))
    ]
    out = console(terminal=False)
    show_log(events, job, out)
    assert [line.partition(" ")[2].partition(" ")[2] for line in out.file.getvalue().splitlines()] == [
        "half: adapting 1/200, accuracy 78.0%, multiply-adds 70%",
        "half: met, accuracy 75.0%, multiply-adds 48%",
        "other: adapting 1/200, accuracy 78.0%",
        "other: met, accuracy 75.0%",
    ]
    out = console(terminal=False)
    larger = Source({"flops": 7_000.0}, batch=1)
    show_log(events, replace(job, sources=(MODEL, larger)), out)
    assert out.file.getvalue().splitlines()[2].endswith("accuracy 78.0%, multiply-adds 10%")
    assert out.file.getvalue().splitlines()[3].endswith("accuracy 75.0%, multiply-adds 7%")


def test_work_on_a_source_is_shown_only_if_there_is_a_single_batch():
    goal = Goal("half", 0, PackageSpec({}))
    one, two = {"half": goal}, {"half": goal, "other": replace(goal, batch=1)}
    assert source_behind(None, one, (MODEL,)) is MODEL
    assert source_behind(None, two, (MODEL,)) is None
    assert source_behind("other", two, (MODEL,)) is None


def test_concurrent_preparations_each_report_every_tenth():
    out = console(terminal=False)
    with display(out) as shown:
        for step in range(0, 400, 50):
            for algorithm in ("chamnet", "nested"):
                shown.update(SOURCE, ProgressUpdate(f"preparing {algorithm}", step, 4_000, loss=1.0), MODEL)
    assert out.file.getvalue().splitlines() == [
        "source: preparing chamnet 0/4000",
        "source: preparing nested 0/4000",
    ]


def test_equal_goals_report_their_common_progress_once():
    starting, adapting = ProgressUpdate("starting", 0, 0), ProgressUpdate("adapting", 1, 9, {"flops": 7.0})
    events = [
        JobEvent(1, 5, "a", starting),
        JobEvent(2, 5, "b", starting),
        JobEvent(3, 6, "c", starting),
        JobEvent(4, 6, "a", adapting),
        JobEvent(5, 6, "b", adapting),
        JobEvent(6, 6, "a", GoalState.MET),
        JobEvent(7, 6, "b", GoalState.MET),
    ]
    shown = once_for_equal_goals(events)
    assert [event.sequence for event in shown] == [1, 3, 4, 6, 7]


def test_stages_without_steps_leave_the_bar_of_a_goal():
    out = console(terminal=True)
    with display(out) as shown:
        assert isinstance(shown, BarDisplay)
        shown.update("half", ProgressUpdate("adapting", 75, 150), MODEL)
        shown.update("half", ProgressUpdate("tuning", 300, 300), MODEL)
        shown.update("half", ProgressUpdate("packaging", 0, 1), MODEL)
        (task,) = shown._bars.tasks
        assert (task.completed, task.total, task.fields["stage"]) == (300, 300, "packaging")


def test_the_bar_of_the_job_has_the_time_left():
    out = console(terminal=True)
    with display(out) as shown:
        assert isinstance(shown, BarDisplay)
        timed = ProgressUpdate("tuning the source", 1, 2, job_share=0.25, seconds_left=720.0)
        shown.update(SOURCE, timed, MODEL)
        shown.update("half", replace(timed, job_share=0.5, seconds_left=40.0), MODEL)
        shown._bars.refresh()
        assert [(task.description, task.completed) for task in shown._bars.tasks] == [
            ("whole job", 0.5),
            ("half", 1),
        ]
        shown.ended(Goal("half", 0, PackageSpec({}), state=GoalState.MET), MODEL)
        assert len(shown._bars.tasks) == 1
    assert "about 40 s left" in out.file.getvalue()


@pytest.mark.parametrize("name", ["half", "a[red]b"])
def test_progress_is_shown_as_bars_on_a_terminal(name):
    out = console(terminal=True)
    with display(out) as shown:
        assert isinstance(shown, BarDisplay)
        bars = shown._bars
        shown.update(SOURCE, ProgressUpdate("tuning source", 1, 2), None)
        assert [task.total for task in bars.tasks] == [2]
        shown.update(name, ProgressUpdate("adapting", 75, 150, {"flops": 700.0}, 0.78), MODEL)
        shown.update("third", ProgressUpdate("adapting", 0, 0), MODEL)
        assert [(task.completed, task.total) for task in bars.tasks] == [(75, 150), (0, None)]
        bars.refresh()
        shown.ended(Goal(name, 0, PackageSpec({}), state=GoalState.MET, accuracy=0.75), MODEL)
        assert len(bars.tasks) == 1
    text = out.file.getvalue()
    assert "adapting 75/150" in text
    assert f"{name}: met, accuracy 75.0%" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_an_activity_is_shown_on_a_terminal_only_and_its_lines_anywhere(terminal):
    out = console(terminal)
    with activity_shown(out, "planning") as show_line:
        show_line("sending model.keras")
    text = out.file.getvalue()
    assert ("planning" in text) == terminal
    assert "sending model.keras" in text
    if not terminal:
        assert text == "sending model.keras\n"
