"""The table of a job: its rows, its columns at every width, and its caption."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.task import TaskConfig
from mistify.costs.quantization import Quantization
from mistify.jobs.job import BranchFigures, GoalState, Source
from mistify.jobs.report import report
from mistify_client.porting.table import table
from tests.mistify_client.porting.shown_jobs import lines_of_table, plugged_in


@pytest.mark.parametrize("width", [80, 99, 100, 115, 200])
def test_the_table_shows_source_and_goals(service, width):
    lines = lines_of_table(measured(service.fake.job), width)
    assert max(map(len, lines)) <= width
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
    header = next(line for line in lines if "goal" in line).split()
    parent = ["parent"] if width >= 115 else []
    parent += ["algorithm"] if width >= 125 else []
    params = ["params"] if width >= 100 else []
    figures = ["multiply-adds", *params, "memory", "predicted", "measured", "accuracy", "met"]
    assert header == ["goal", *parent, *figures]
    count = ["100"] if width >= 100 else []
    source, tuned = (
        next(line for line in lines if line.startswith(name)) for name in ("source ", "- tuned ")
    )
    assert tuned.split() == ["-", "tuned", "78.0%"]
    assert source.split() == ["source", "1K", "(1.00)", *count, "4KB", "500us", "1.5ms", "80.0%"]
    half, tenth = (next(line for line in lines if line.startswith(f"{name} ")) for name in ("half", "tenth"))
    assert half.split()[-8 - len(count) :] == [
        *("480", "(0.48)", *count, "4KB", "500us", "1.25ms"),
        *("75.0%", "(-3.0)", "yes"),
    ]
    assert tenth.split()[-1] == "no"
    assert ("half" in tenth) == (width >= 115)


def test_each_of_several_outputs_has_its_own_row(service):
    half, tenth = service.fake.job.goals
    scores = OutputScore("class", Metric.ACCURACY, 0.75), OutputScore("boxes", Metric.MSE, 0.0123)
    job = replace(service.fake.job, goals=(replace(half, output_scores=scores), tenth))
    assert report(job)["goals"][0]["outputs"] == [
        {"output": "class", "metric": "accuracy", "value": 0.75},
        {"output": "boxes", "metric": "mse", "value": 0.0123},
    ]
    lines = lines_of_table(job, 80)
    first = next(number for number, line in enumerate(lines) if line.startswith("half "))
    assert lines[first + 1].split() == ["-", "class", "accuracy", "75.0%"]
    assert lines[first + 2].split() == ["-", "boxes", "mse", "0.0123"]
    job = replace(service.fake.job, goals=(replace(half, output_scores=scores[:1]), tenth))
    assert "class" not in "".join(lines_of_table(job, 80))


@pytest.mark.parametrize(
    ("spent", "caption"),
    [
        (
            {"tracing": 4.0, "training": 90.0, "saving": 0.49, "other": 1.0, "[/]": 4.51},
            "training 90%, [/] 5%, tracing 4%, other 1%",
        ),
        ({"failed": 2.0}, "failed 100%"),
    ],
)
def test_the_caption_lists_how_the_time_was_spent(service, spent, caption):
    *_, threads, last = lines_of_table(replace(service.fake.job, spent=spent), 100)
    assert threads.strip() == "latencies with 1 thread"
    assert last.strip() == f"where the time went: {caption}"


@pytest.mark.parametrize("spent", [{}, {"waiting": 0.0}])
def test_the_caption_omits_unknown_times(service, spent):
    assert table(replace(service.fake.job, spent=spent)).caption == "latencies with 1 thread"


def test_latencies_are_for_the_threads_of_the_goal(service):
    half, tenth = service.fake.job.goals
    own = {"latency_ms@host": 8.0, "latency_ms@host@4-threads": 3.0}
    spec = replace(half.spec, threads=4, budget={"latency_ms@host@4-threads": 3.5})
    half = replace(half, spec=spec, achieved={**half.achieved, **own}, measured=own)
    job = replace(service.fake.job, goals=(half, tenth))
    reported = report(job)["goals"][0]
    assert (reported["hardware"], reported["threads"]) == ("host", 4)
    assert reported["achieved"]["latency_ms"] == reported["achieved"]["measured_latency_ms"] == 3.0
    lines = lines_of_table(job, 135)
    assert "threads" in next(line for line in lines if "goal" in line).split()
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert rows["source"][-4:] == ["1", "500us", "-", "80.0%"]
    assert rows["half"][-5:] == ["4", "3ms", "3ms", "75.0%", "measured"]
    assert not any("latencies with" in line for line in lines)
    narrow = lines_of_table(job, 134)
    assert "threads" not in next(line for line in narrow if "goal" in line).split()
    assert any(line.strip() == "latencies with 1 thread (tenth), 4 threads (half)" for line in narrow)
    source = replace(job.sources[0], costs={**job.sources[0].costs, "latency_ms@host@4-threads": 2.0})
    lines = lines_of_table(replace(job, sources=(source,), goals=(half,)), 100)
    assert next(line for line in lines if line.startswith("source")).split()[-3] == "2ms"
    assert any(line.strip() == "latencies with 4 threads" for line in lines)


@pytest.mark.parametrize(("width", "named"), [(80, True), (200, True), (60, False)])
def test_the_latency_of_the_source_on_other_hardware_has_its_own_row(service, width, named):
    half, tenth = service.fake.job.goals
    spec = replace(half.spec, budget={"latency_ms@pi": 0.1})
    half = replace(half, spec=spec, achieved={"flops": 480.0, "latency_ms@pi": 0.092})
    known = service.fake.job.sources[0]
    source = replace(known, costs={**known.costs, "latency_ms@pi": 0.18})
    lines = lines_of_table(replace(service.fake.job, sources=(source,), goals=(half, tenth)), width)
    assert max(map(len, lines)) <= width
    rows = [line.split() for line in lines if line.strip()]
    assert any("hardware" in row for row in rows[:3]) is named
    if named:
        here, there, own = (
            next(row for row in rows if row[: len(name)] == name)
            for name in (["source"], ["-", "on", "pi"], ["half"])
        )
        assert "500us" in here
        assert there == ["-", "on", "pi", "pi", "180us"]
        assert own[own.index("pi") + 1] == "92us"
    else:
        assert not any(row[:2] == ["-", "on"] for row in rows)
    assert not any(row[:2] == ["-", "on"] for row in map(str.split, lines_of_table(service.fake.job, 80)))


def measured(job):
    """Return a job with its source and a goal with a measured package."""
    half, tenth = job.goals
    source = replace(job.sources[0], measured={"latency_ms@host": 1.5}, tuned_accuracy=0.78)
    return replace(job, sources=(source,), goals=(replace(half, measured={"latency_ms@host": 1.25}), tenth))


@pytest.mark.parametrize("width", [50, 60, 90, 120])
def test_ids_are_not_truncated_at_any_width(service, width):
    """They are only divided if they do not fit beside the accuracy."""
    name = "nano-at-half-of-the-multiply-adds-and-four-tenths-of-parameters"
    goal = replace(service.fake.job.goals[0], id=name)
    lines = lines_of_table(replace(service.fake.job, goals=(goal,)), width)
    assert max(map(len, lines)) <= width
    start = next(number for number, line in enumerate(lines) if line.startswith(name[:10]))
    assert "".join(line.split()[0] for line in lines[start:]).startswith(name)
    assert lines[start].startswith(name) == (width >= 90)
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_twenty_goals_take_a_line_each(service, width):
    half = service.fake.job.goals[0]
    names = [f"raspberry-pi-zero-at-{share}-percent" for share in range(5, 105, 5)]
    goals = tuple(replace(half, id=name) for name in names)
    lines = lines_of_table(replace(service.fake.job, goals=goals), width)
    assert [line.split()[0] for line in lines if line.startswith("raspberry")] == names
    assert len(lines) <= 20 + 8
    header = next(line for line in lines if "goal" in line).split()
    words = "goal parent algorithm multiply-adds params memory predicted measured accuracy met"
    assert {"goal", "accuracy", "met"} <= set(header) <= set(words.split())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
def test_a_narrow_table_omits_columns_and_truncates_no_numbers(service, width):
    half = service.fake.job.goals[0]
    scores = tuple(OutputScore(name, Metric.MEAN_IOU, 0.5) for name in ("left", "right"))
    goal = replace(
        half,
        spec=replace(half.spec, quantization=QuantizationConfig(precision=Quantization.INT8_QAT), threads=4),
        id="a-rather-long-identifier-of-a-goal",
        achieved={"flops": 123456789.0, "params": 23456789.0, "memory_bytes": 123456789.0},
        output_scores=scores,
    )
    job = replace(
        service.fake.job,
        goals=(goal, half),
        sources=(replace(service.fake.job.sources[0], tuned_accuracy=0.8),),
    )
    lines = lines_of_table(job, width)
    assert max(map(len, lines)) <= width
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
    text = "\n".join(lines)
    assert "75.0% (-5.0)" in text
    assert text.count("mean_iou 50.0%") == 2
    assert ("123M" in text) == (width >= 80)


def test_the_table_shows_the_metrics_that_goals_limit(service):
    console = Console(width=140, file=io.StringIO())
    console.print(table(plugged_in(service.fake.job), 140))
    lines = console.file.getvalue().splitlines()
    assert [name in lines[2] for name in ("energy", "speed", "carbon")] == [True, True, False]
    assert all(text in next(line for line in lines if "half" in line) for text in ("300uJ", "50fps"))
    assert all(text in next(line for line in lines if "source" in line) for text in ("2mJ", "10fps"))


def test_text_from_a_server_is_shown_without_markup(service):
    job = plugged_in(service.fake.job)
    energy, *others = job.sources[0].formats
    source = replace(job.sources[0], formats=(replace(energy, label="energy [mJ]"), *others))
    goals = tuple(replace(goal, algorithm="mine [/b]") for goal in job.goals)
    shown = "\n".join(lines_of_table(replace(job, sources=(source,), goals=goals), 150))
    assert "energy [mJ]" in shown
    assert "mine [/b]" in shown


def test_a_goal_of_another_batch_is_not_compared_with_the_source(service):
    half = service.fake.job.goals[0]
    branch = BranchFigures(1.0, half.achieved, {}, 0.75)
    other = replace(half, id="other", batch=1, branch_figures=(branch,))
    lines = lines_of_table(replace(service.fake.job, goals=(half, other)), 80)
    shown = {line.split()[0]: line for line in lines if line.startswith(("half ", "other ", "- 1.00x"))}
    assert "480 (0.48)" in shown["half"]
    assert "480" in shown["other"]
    assert "(0.48)" not in shown["other"] + shown["-"]


def test_the_source_of_each_batch_is_above_its_goals(service):
    half, tenth = service.fake.job.goals
    first = replace(service.fake.job.sources[0], model="small.keras", tuned_accuracy=0.9)
    second = Source({"flops": 1_200.0}, 0.7, batch=1, model="large.keras", tuned_accuracy=0.8)
    goals = replace(tenth, batch=1, achieved={"flops": 300.0}, accuracy=0.75), half
    job = replace(service.fake.job, goals=goals, sources=(first, second))
    rows = [line.split() for line in lines_of_table(job, 100) if line.startswith(("s", "-", "half", "tenth"))]
    assert [row[0] for row in rows] == ["source", "-", "half", "source", "-", "tenth"]
    assert ("1K" in rows[0], "(1.00)" in rows[0], "(1.00)" in rows[3]) == (True, True, True)
    assert rows[2][-3:-1] == ["75.0%", "(-15.0)"]
    assert "(0.25)" in rows[5]
    shown = "".join("".join(line.split()) for line in lines_of_table(job, 100))
    assert shown.count(".keras") == 2


def test_outputs_of_the_source_have_their_own_rows(service):
    def scores(*figures):
        named = zip(("kind", "age"), (Metric.ACCURACY, Metric.MAE), figures, strict=True)
        return tuple(OutputScore(name, metric, figure) for name, metric, figure in named)

    source = replace(
        service.fake.job.sources[0],
        tuned_accuracy=0.9,
        output_scores=scores(0.347, 12.0),
        tuned_output_scores=scores(0.5, 8.0),
    )
    lines = lines_of_table(replace(service.fake.job, sources=(source,)), 80)
    start = next(number for number, line in enumerate(lines) if line.startswith("source"))
    assert [line.split() for line in lines[start + 1 : start + 6]] == [
        ["-", "kind", "accuracy", "34.7%"],
        ["-", "age", "mae", "12"],
        ["-", "tuned", "90.0%"],
        ["-", "kind", "accuracy", "50.0%"],
        ["-", "age", "mae", "8"],
    ]


@pytest.mark.parametrize(
    ("state", "met"), [(GoalState.WAITING, "-"), (GoalState.RUNNING, "-"), (GoalState.FAILED, "no")]
)
def test_only_goals_that_have_ended_are_called_unmet(service, state, met):
    job = measured(service.fake.job)
    half, tenth = job.goals
    lines = lines_of_table(replace(job, goals=(half, replace(tenth, state=state))), 100)
    assert next(line for line in lines if line.startswith("tenth ")).split()[-1] == met


def test_tasks_have_a_column_and_no_comparison_with_the_source_of_all(service):
    job = measured(service.fake.job)
    half, tenth = job.goals
    task = TaskConfig(classes=("cat", "dog"))
    of_task = replace(job, goals=(replace(half, spec=replace(half.spec, task=task)), tenth))
    lines = lines_of_table(of_task, 120)
    line = next(line for line in lines if line.startswith("half "))
    assert "classes cat, dog" in line
    assert "75.0% " in line
    assert "(-3.0)" not in line
    assert "task" in next(line for line in lines if "multiply-adds" in line).split()
    assert report(of_task)["goals"][0]["task"] == {"classes": ["cat", "dog"]}
    assert report(of_task)["goals"][0]["achieved"]["accuracy_change"] is None
    assert not any("task" in line.split() for line in lines_of_table(job, 120))
