import io
from dataclasses import replace

import pytest
from rich.console import Console

from mistify.config.compression import CompressionConfig
from mistify.config.metric import Metric, OutputScore
from mistify.config.quantization import QuantizationConfig
from mistify.costs.formats import AxisFormat
from mistify.costs.quantization import Quantization
from mistify.jobs.comparison import compared_quality
from mistify.jobs.formatting import amount, label, shares
from mistify.jobs.job import BranchFigures, Goal, GoalState, Source
from mistify.jobs.report import outcome, report
from mistify.parsing.quantities import measured_in
from mistify_client.porting.table import table


def test_report_has_exactly_the_documented_form(service):
    source = replace(
        service.fake.job.source,
        measured={"latency_ms@host": 1.0},
        tuned_accuracy=0.78,
        steps=2400,
        preparing_steps={"nested": 2400},
    )
    assert report(replace(service.fake.job, source=source)) == {
        "job": "job-1",
        "seconds": 4.5,
        "spent": {"training": 7.25, "tracing": 0.5, "other": 0.25, "saving": 0.01, "waiting": 0.0},
        "source": {
            "flops": 1000.0,
            "params": 100.0,
            "memory_bytes": 4000.0,
            "size_bytes": None,
            "measured_latency_ms": {"1": 1.0},
            "accuracy": 0.8,
            "tuned_accuracy": 0.78,
            "metric": "accuracy",
            "steps": 2400,
            "preparing_steps": {"nested": 2400},
        },
        "metrics": {},
        "goals": [
            {
                "id": "half",
                "batch": 0,
                "parent": None,
                "algorithm": "morphnet",
                "choice": "as good as chamnet, and faster",
                "warning": "accuracy 70.0% is likely to be missed",
                "quantization": {"precision": "none", "inputs": "float32"},
                "precision_choice": "",
                "compression": None,
                "hardware": "host",
                "threads": 1,
                "latency_judged_by": None,
                "budget": {"flops": 500.0},
                "targets": [{"output": None, "metric": "accuracy", "value": 0.7}],
                "achieved": {
                    "flops": 480.0,
                    "params": 100.0,
                    "memory_bytes": 4000.0,
                    "size_bytes": None,
                    "latency_ms": 0.5,
                    "measured_latency_ms": None,
                    "speedup": 1.0,
                    "measured_speedup": None,
                    "accuracy": 0.75,
                    "accuracy_change": pytest.approx(-0.03),
                    "metric": "accuracy",
                },
                "outputs": [],
                "branches": [],
                "met": True,
                "reason": "",
                "note": "",
                "seconds": 3.0,
                "steps": 150,
            },
            {
                "id": "tenth",
                "batch": 0,
                "parent": "half",
                "algorithm": None,
                "choice": "",
                "warning": "",
                "quantization": {"precision": "none", "inputs": "float32"},
                "precision_choice": "",
                "compression": None,
                "hardware": "host",
                "threads": 1,
                "latency_judged_by": None,
                "budget": {"flops": 100.0},
                "targets": [],
                "achieved": {
                    "flops": None,
                    "params": None,
                    "memory_bytes": None,
                    "size_bytes": None,
                    "latency_ms": None,
                    "measured_latency_ms": None,
                    "speedup": None,
                    "measured_speedup": None,
                    "accuracy": None,
                    "accuracy_change": None,
                    "metric": "accuracy",
                },
                "outputs": [],
                "branches": [],
                "met": False,
                "reason": "no room",
                "note": "",
                "seconds": 0.0,
                "steps": 0,
            },
        ],
    }


def test_what_took_most_comes_first(service):
    spent = report(service.fake.job)["spent"]
    assert list(spent) == ["training", "tracing", "other", "saving", "waiting"]


def lines_of_table(job, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table(job, console.width))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 99, 100, 115, 200])
def test_table_shows_source_and_goals(service, width):
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


def test_latency_on_a_measured_device_is_that_of_the_goals_precision(service):
    """A device has a profile for each precision: the prediction is that of the goal's."""
    half, _ = service.fake.job.goals
    there = {"latency_ms@my-board": 8.0, "latency_ms@my-board@int8": 3.0}
    half = replace(
        half,
        quantization=QuantizationConfig(precision=Quantization.INT8),
        budget={"latency_ms@my-board@int8": 4.0},
        achieved={**half.achieved, **there},
        measured={"latency_ms@host": 0.25},
    )
    reported = report(replace(service.fake.job, goals=(half,)))["goals"][0]
    assert (reported["hardware"], reported["achieved"]["latency_ms"]) == ("my-board", 3.0)
    assert reported["achieved"]["measured_latency_ms"] is None
    assert reported["latency_judged_by"] == "prediction"


def test_precisions_and_latencies_are_those_of_the_goals(service):
    """The limit of one goal is on other hardware; its memory counts as int8."""
    half, tenth = service.fake.job.goals
    half = replace(
        half,
        quantization=QuantizationConfig(precision=Quantization.INT8_QAT),
        budget={"latency_ms@pi": 9.0},
        achieved={
            **half.achieved,
            "memory_bytes@int8": 1000.0,
            "size_bytes@int8": 900.0,
            "latency_ms@pi": 8.0,
        },
        measured={"latency_ms@host": 0.25},
        note="as int8-qat: not faster",
    )
    job = replace(service.fake.job, goals=(half, tenth))
    lines = lines_of_table(job, 115)
    assert "precision" in next(line for line in lines if "goal" in line).split()
    shown = next(line for line in lines if line.startswith("half ")).split()
    assert shown == [
        "half",
        "source",
        "int8-qat",
        "480",
        "(0.48)",
        "100",
        "1KB",
        "8ms",
        "-",
        "75.0%",
        "predicted",
    ]
    said = "judged by a latency that was predicted, not measured: half (pi)"
    assert [line.strip() for line in lines if "predicted, not" in line] == [said]
    assert next(line for line in lines if line.startswith("tenth ")).split()[2] == "none"
    reported = report(job)["goals"][0]
    assert (reported["hardware"], reported["note"]) == ("pi", "as int8-qat: not faster")
    assert reported["quantization"] == {"precision": "int8-qat", "inputs": "float32"}
    assert reported["achieved"] == {
        "flops": 480.0,
        "params": 100.0,
        "memory_bytes": 1000.0,
        "size_bytes": 900.0,
        "latency_ms": 8.0,
        "measured_latency_ms": None,
        "speedup": None,
        "measured_speedup": None,
        "accuracy": 0.75,
        "accuracy_change": None,
        "metric": "accuracy",
    }


def test_a_compression_is_reported_with_what_came_of_it(service):
    half, tenth = service.fake.job.goals
    actual = {"zero_share": 0.51, "kernel_values": 900.0, "gzip_bytes": 2000.0}
    half = replace(half, compression=CompressionConfig(sparsity=0.5), achieved={**half.achieved, **actual})
    tenth = replace(tenth, compression=CompressionConfig(clusters=16))
    job = replace(service.fake.job, goals=(half, tenth))
    reported = [goal["compression"] for goal in report(job)["goals"]]
    assert reported == [{"sparsity": 0.5, **actual}, {"clusters": 16, **dict.fromkeys(actual)}]
    lines = lines_of_table(job, 120)
    assert "none, 50% zeros" in next(line for line in lines if line.startswith("half "))
    assert "none, 16 clusters" in next(line for line in lines if line.startswith("tenth "))


def test_branches_are_reported_below_their_goal(service):
    """Latencies on the hardware of the goal's limit, as those of the goal."""
    half, tenth = service.fake.job.goals
    costs = {"flops": 200.0, "params": 40.0, "memory_bytes": 2000.0, "latency_ms@pi": 3.0}
    branches = (
        BranchFigures(1 / 3, costs, {"latency_ms@host": 0.1}, 0.7),
        BranchFigures(1.0, half.achieved, {"latency_ms@host": 0.4}, 0.75),
    )
    half = replace(half, budget={"latency_ms@pi": 9.0}, branch_figures=branches)
    job = replace(service.fake.job, goals=(half, tenth))
    reported = report(job)["goals"][0]["branches"]
    assert reported[0] == {
        "share": 1 / 3,
        "flops": 200.0,
        "params": 40.0,
        "memory_bytes": 2000.0,
        "size_bytes": None,
        "latency_ms": 3.0,
        "measured_latency_ms": None,
        "speedup": None,
        "measured_speedup": None,
        "accuracy": 0.7,
        "accuracy_change": None,
    }
    assert [branch["share"] for branch in reported] == [1 / 3, 1.0]
    lines = lines_of_table(job, 120)
    first = next(number for number, line in enumerate(lines) if line.startswith("half "))
    assert lines[first + 1].split() == ["-", "0.33x", "200", "(0.20)", "40", "2KB", "3ms", "-", "70.0%"]
    assert lines[first + 2].split()[:2] == ["-", "1.00x"]
    assert lines[first + 3].startswith("tenth ")


def test_outputs_of_a_network_with_several_have_a_row_each(service):
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
def test_the_caption_says_where_the_time_went(service, spent, caption):
    *_, threads, last = lines_of_table(replace(service.fake.job, spent=spent), 100)
    assert threads.strip() == "latencies with 1 thread"
    assert last.strip() == f"where the time went: {caption}"


@pytest.mark.parametrize("spent", [{}, {"waiting": 0.0}])
def test_without_known_times_the_caption_says_nothing_of_them(service, spent):
    assert table(replace(service.fake.job, spent=spent)).caption == "latencies with 1 thread"


def test_latencies_are_those_with_the_threads_of_the_goal(service):
    half, tenth = service.fake.job.goals
    own = {"latency_ms@host": 8.0, "latency_ms@host@4-threads": 3.0}
    half = replace(half, threads=4, achieved={**half.achieved, **own}, measured=own)
    half = replace(half, budget={"latency_ms@host@4-threads": 3.5})
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
    source = replace(job.source, costs={**job.source.costs, "latency_ms@host@4-threads": 2.0})
    lines = lines_of_table(replace(job, source=source, goals=(half,)), 100)
    assert next(line for line in lines if line.startswith("source")).split()[-3] == "2ms"
    assert any(line.strip() == "latencies with 4 threads" for line in lines)


def measured(job):
    """The job with its source, and a goal whose package was measured."""
    half, tenth = job.goals
    source = replace(job.source, measured={"latency_ms@host": 1.5}, tuned_accuracy=0.78)
    return replace(job, source=source, goals=(replace(half, measured={"latency_ms@host": 1.25}), tenth))


def test_packages_are_compared_with_their_source(service):
    """Latencies with the same number of threads, of the source in float32; with branches, each by itself."""
    own = {"latency_ms@host@4-threads": 2.0, "latency_ms@host@4-threads@int8": 0.5}
    branch = BranchFigures(0.5, {"latency_ms@host@4-threads@int8": 1.0}, {}, 0.88)
    half = replace(
        service.fake.job.goals[0],
        threads=4,
        quantization=QuantizationConfig(precision=Quantization.INT8),
        achieved=own,
        measured={"latency_ms@host@4-threads": 0.4},
        accuracy=0.895,
        branch_figures=(branch,),
    )
    measured_source = {"latency_ms@host": 9.0, "latency_ms@host@4-threads": 2.0}
    source = Source({**own, "latency_ms@host": 7.0}, 0.7, tuned_accuracy=0.9, measured=measured_source)
    job = replace(service.fake.job, source=source, goals=(half, replace(half, id="b", batch=1)))
    first, of_another_source = report(job)["goals"]
    figures = {name: first["achieved"][name] for name in ("speedup", "measured_speedup", "accuracy_change")}
    assert figures == pytest.approx({"speedup": 4.0, "measured_speedup": 5.0, "accuracy_change": -0.005})
    (small,) = first["branches"]
    assert (small["speedup"], small["measured_speedup"]) == (2.0, None)
    assert small["accuracy_change"] == pytest.approx(-0.02)
    assert {of_another_source["achieved"][name] for name in figures} == {None}
    lines = lines_of_table(job, 80)
    assert max(map(len, lines)) <= 80
    assert next(line for line in lines if line.startswith("- tuned ")).split() == ["-", "tuned", "90.0%"]
    assert "89.5% (-0.5)" in next(line for line in lines if line.startswith("half "))
    assert "88.0% (-2.0)" in next(line for line in lines if line.startswith("- 0.50x"))
    assert "89.5%  " in next(line for line in lines if line.startswith("b "))


@pytest.mark.parametrize(
    ("metric", "accuracy", "tuned", "shown"),
    [
        (Metric.ACCURACY, 0.784, 0.815, "78.4% (-3.1)"),
        (Metric.F1, 0.9, 0.9001, "90.0% (+0.0)"),
        (Metric.MSE, 0.03, 0.02, "0.03 (+50%)"),
        (Metric.MSE, 0.018, 0.02, "0.018 (-10%)"),
        (Metric.MSE, 0.018, 0.0, "0.018"),
        (Metric.ACCURACY, 0.784, None, "78.4%"),
        (Metric.ACCURACY, None, 0.8, "-"),
    ],
)
def test_accuracies_are_shown_with_their_change(metric, accuracy, tuned, shown):
    goal = Goal("a", 0, {}, metric=metric)
    assert compared_quality(goal, accuracy, Source({}, metric=metric, tuned_accuracy=tuned)) == shown


@pytest.mark.parametrize("axis", ["latency_ms@host", "latency_ms@host@4-threads@int8"])
def test_a_goal_is_met_as_measured_or_as_predicted(service, axis):
    half = replace(service.fake.job.goals[0], budget={axis: 9.0})
    there = replace(half, budget={axis.replace("host", "pi"): 9.0})
    assert [outcome(goal) for goal in (half, there)] == ["met (measured)", "met (predicted)"]
    assert outcome(service.fake.job.goals[0]) == "met"
    assert outcome(replace(half, state=GoalState.UNMET)) == "unmet"


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_no_width_cuts_an_id_short(service, width):
    name = "nano-at-half-of-the-multiply-adds-and-four-tenths-of-parameters"
    goal = replace(service.fake.job.goals[0], id=name)
    lines = lines_of_table(replace(service.fake.job, goals=(goal,)), width)
    start = next(number for number, line in enumerate(lines) if line.startswith(name[:10]))
    assert "".join(line.split()[0] for line in lines[start:]).startswith(name)
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
def test_a_crowded_table_leaves_out_columns_and_cuts_no_figure(service, width):
    half = service.fake.job.goals[0]
    scores = tuple(OutputScore(name, Metric.MEAN_IOU, 0.5) for name in ("left", "right"))
    goal = replace(
        half,
        id="a-rather-long-identifier-of-a-goal",
        achieved={"flops": 123456789.0, "params": 23456789.0, "memory_bytes": 123456789.0},
        quantization=QuantizationConfig(precision=Quantization.INT8_QAT),
        output_scores=scores,
        threads=4,
    )
    job = replace(
        service.fake.job, goals=(goal, half), source=replace(service.fake.job.source, tuned_accuracy=0.8)
    )
    lines = lines_of_table(job, width)
    assert max(map(len, lines)) <= width
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
    text = "\n".join(lines)
    assert "75.0% (-5.0)" in text
    assert text.count("mean_iou 50.0%") == 2
    assert ("123M" in text) == (width >= 60)


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [
        ("flops", 12_501_632, "12.5M"),
        ("params", 78_666, "78.7K"),
        ("memory_bytes", 314_664, "315KB"),
        ("latency_ms@host", 0.0314159, "31.4us"),
        ("flops", 0.0, "0"),
        ("flops", None, "-"),
    ],
)
def test_amounts_have_three_digits(axis, value, text):
    assert amount(axis, value) == text


def plugged_in(job):
    """A job in which energy and, the more of it the better, speed are limited by the goal `half`."""
    formats = (
        AxisFormat("energy_mj", "energy", measured_in({"uJ": 1e-3, "mJ": 1})),
        AxisFormat("1/frames_per_s", "speed", measured_in({"fps": 1})),
        AxisFormat("carbon_g", "carbon", measured_in({"g": 1})),
    )
    half, tenth = job.goals
    costs = {"energy_mj": 2.0, "energy_mj@int8": 0.5, "1/frames_per_s@host": 0.1, "carbon_g": 7.0}
    costs |= {"1/frames_per_s@pi": 0.05}
    half = replace(
        half,
        quantization=QuantizationConfig(precision=Quantization.INT8),
        budget={"energy_mj@int8": 0.4, "1/frames_per_s@pi": 0.04},
        achieved={**costs, **half.achieved, "energy_mj@int8": 0.3, "1/frames_per_s@pi": 0.02},
    )
    return replace(job, goals=(half, tenth), source=replace(job.source, costs=costs, formats=formats))


def test_metrics_of_plug_ins_are_reported_at_the_goals_precision_and_hardware(service):
    actual = report(plugged_in(service.fake.job))
    assert actual["metrics"] == {
        "energy_mj": {"label": "energy", "unit": "mJ"},
        "frames_per_s": {"label": "speed", "unit": "fps"},
        "carbon_g": {"label": "carbon", "unit": "g"},
    }
    expected = {"energy_mj": 2.0, "frames_per_s": 10.0, "carbon_g": 7.0}
    assert {name: actual["source"][name] for name in expected} == expected
    half, tenth = actual["goals"]
    assert half["hardware"] == "pi"
    assert half["budget"] == {"energy_mj@int8": 0.4, "frames_per_s@pi": 25.0}
    expected = {"energy_mj": 0.3, "frames_per_s": 50.0, "carbon_g": 7.0}
    assert {name: half["achieved"][name] for name in expected} == expected
    assert {tenth["achieved"][name] for name in expected} == {None}


def test_the_table_has_metrics_that_goals_limit(service):
    console = Console(width=140, file=io.StringIO())
    console.print(table(plugged_in(service.fake.job), 140))
    lines = console.file.getvalue().splitlines()
    assert [name in lines[2] for name in ("energy", "speed", "carbon")] == [True, True, False]
    assert all(text in next(line for line in lines if "half" in line) for text in ("300uJ", "50fps"))
    assert all(text in next(line for line in lines if "source" in line) for text in ("2mJ", "10fps"))


def test_what_a_server_sends_is_shown_as_it_stands(service):
    job = plugged_in(service.fake.job)
    energy, *others = job.source.formats
    source = replace(job.source, formats=(replace(energy, label="energy [mJ]"), *others))
    goals = tuple(replace(goal, algorithm="mine [/b]") for goal in job.goals)
    shown = "\n".join(lines_of_table(replace(job, source=source, goals=goals), 140))
    assert "energy [mJ]" in shown
    assert "mine [/b]" in shown


def test_shares_know_the_metrics_of_plug_ins(service):
    job = plugged_in(service.fake.job)
    costs = {"carbon_g": 3.5, "1/frames_per_s@pi": 0.01, "flops": 1.0}
    source = replace(job.source, costs={**job.source.costs, "flops": 2.0})
    assert shares(costs, source) == "multiply-adds 50%, predicted speed on pi 500%, carbon 50%"


def test_shares_are_those_in_the_precision_of_a_package(service):
    source = replace(service.fake.job.source, costs={"flops": 2.0, "memory_bytes": 100.0})
    costs = {"flops": 1.0, "memory_bytes": 50.0, "memory_bytes@int8": 13.0}
    assert shares(costs, source) == "multiply-adds 50%, memory in int8 13%"
    assert shares({**costs, "memory_bytes@float16": 25.0}, source) == "multiply-adds 50%, memory 50%"


def test_labels_name_the_hardware():
    assert label("latency_ms@jetson-nano") == "predicted latency on jetson-nano"
    assert label("size_bytes") == "size"


def test_shares_leave_out_what_the_source_lacks():
    costs = {"size_bytes": 7.0, "params": 10.0, "flops": 50.0}
    assert shares(costs, Source({"flops": 100.0, "params": 0.0}, 0.5)) == "multiply-adds 50%"


def test_shares_are_always_in_the_same_order():
    costs = {"latency_ms@host": 1.0, "size_bytes": 1.0, "flops": 1.0, "latency_ms@a": 1.0}
    shown = "multiply-adds 100%, size 100%, predicted latency on a 100%, latency on host 100%"
    assert shares(costs, Source(costs, 0.5)) == shown


def test_a_goal_of_another_batch_is_not_compared_with_the_source(service):
    half = service.fake.job.goals[0]
    branch = BranchFigures(1.0, half.achieved, {}, 0.75)
    other = replace(half, id="other", batch=1, branch_figures=(branch,))
    lines = lines_of_table(replace(service.fake.job, goals=(half, other)), 80)
    shown = {line.split()[0]: line for line in lines if line.startswith(("half ", "other ", "- 1.00x"))}
    assert "480 (0.48)" in shown["half"]
    assert "480" in shown["other"]
    assert "(0.48)" not in shown["other"] + shown["-"]
