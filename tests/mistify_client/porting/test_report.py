"""The result of a job as plain data; tables show the same numbers."""

from dataclasses import replace

import pytest

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.package.compression import CompressionConfig
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.jobs.job import BranchFigures, GoalState, Source
from mistify.jobs.report import outcome, report
from tests.mistify_client.porting.shown_jobs import lines_of_table, plugged_in

#: The documented forms of a source, of a goal that is met, and of one that is not.
SOURCE = {
    "batch": 0,
    "model": "m.keras",
    "flops": 1000.0,
    "params": 100.0,
    "memory_bytes": 4000.0,
    "size_bytes": None,
    "measured_latency_ms": {"1": 1.0},
    "accuracy": 0.8,
    "tuned_accuracy": 0.78,
    "metric": "accuracy",
    "outputs": [{"output": "y", "metric": "accuracy", "value": 0.8}],
    "tuned_outputs": [{"output": "y", "metric": "accuracy", "value": 0.78}],
    "steps": 2400,
    "preparing_steps": {"nested": 2400},
}
MET_GOAL = {
    "id": "half",
    "batch": 0,
    "parent": None,
    "algorithm": "morphnet",
    "choice": "as good as chamnet, and faster",
    "warning": "accuracy 70.0% is likely to be missed",
    "quantization": {"precision": "none", "inputs": "float32"},
    "precision_choice": "",
    "compression": None,
    "exits": None,
    "task": None,
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
    "state": "met",
    "met": True,
    "reason": "",
    "note": "",
    "seconds": 3.0,
    "steps": 150,
}
UNMET_GOAL = {
    "id": "tenth",
    "batch": 0,
    "parent": "half",
    "algorithm": None,
    "choice": "",
    "warning": "",
    "quantization": {"precision": "none", "inputs": "float32"},
    "precision_choice": "",
    "compression": None,
    "exits": None,
    "task": None,
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
    "state": "failed",
    "met": False,
    "reason": "no room",
    "note": "",
    "seconds": 0.0,
    "steps": 0,
}


def test_the_report_has_exactly_the_documented_form(service):
    source = replace(
        service.fake.job.sources[0],
        model="upload:" + "a" * 64 + "/m.keras",
        measured={"latency_ms@host": 1.0},
        tuned_accuracy=0.78,
        output_scores=(OutputScore("y", Metric.ACCURACY, 0.8),),
        tuned_output_scores=(OutputScore("y", Metric.ACCURACY, 0.78),),
        steps=2400,
        preparing_steps={"nested": 2400},
    )
    assert report(replace(service.fake.job, sources=(source,))) == {
        "job": "job-1",
        "name": "",
        "tags": [],
        "submitted_by": "",
        "created_unix_ms": 1_700_000_000_000,
        "state": "done",
        "reason": "",
        "seconds": 4.5,
        "spent": {"training": 7.25, "tracing": 0.5, "other": 0.25, "saving": 0.01, "waiting": 0.0},
        "source": SOURCE,
        "sources": [SOURCE],
        "metrics": {},
        "goals": [MET_GOAL, UNMET_GOAL],
    }


def test_the_longest_durations_come_first(service):
    spent = report(service.fake.job)["spent"]
    assert list(spent) == ["training", "tracing", "other", "saving", "waiting"]


def test_the_latency_on_a_measured_device_is_for_the_precision_of_the_goal(service):
    """A device has one profile per precision, and the one for the goal's precision applies."""
    half, _ = service.fake.job.goals
    there = {"latency_ms@my-board": 8.0, "latency_ms@my-board@int8": 3.0}
    half = replace(
        half,
        spec=replace(
            half.spec,
            quantization=QuantizationConfig(precision=Quantization.INT8),
            budget={"latency_ms@my-board@int8": 4.0},
        ),
        achieved={**half.achieved, **there},
        measured={"latency_ms@host": 0.25},
    )
    reported = report(replace(service.fake.job, goals=(half,)))["goals"][0]
    assert (reported["hardware"], reported["achieved"]["latency_ms"]) == ("my-board", 3.0)
    assert reported["achieved"]["measured_latency_ms"] is None
    assert reported["latency_judged_by"] == "prediction"


def test_each_goal_is_reported_in_its_precision_and_on_its_hardware(service):
    """One goal has a limit for other hardware, and its memory counts in int8."""
    half, tenth = service.fake.job.goals
    half = replace(
        half,
        spec=replace(
            half.spec,
            quantization=QuantizationConfig(precision=Quantization.INT8_QAT),
            budget={"latency_ms@pi": 9.0},
        ),
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
    lines = lines_of_table(job, 118)
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
        "pi",
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


def test_compression_is_reported_with_its_results(service):
    half, tenth = service.fake.job.goals
    actual = {"zero_share": 0.51, "kernel_values": 900.0, "gzip_bytes": 2000.0}
    half = replace(
        half,
        spec=replace(half.spec, compression=CompressionConfig(sparsity=0.5)),
        achieved={**half.achieved, **actual},
    )
    tenth = replace(tenth, spec=replace(tenth.spec, compression=CompressionConfig(clusters=16)))
    job = replace(service.fake.job, goals=(half, tenth))
    reported = [goal["compression"] for goal in report(job)["goals"]]
    assert reported == [{"sparsity": 0.5, **actual}, {"clusters": 16, **dict.fromkeys(actual)}]
    lines = lines_of_table(job, 120)
    assert "none, 50% zeros" in next(line for line in lines if line.startswith("half "))
    assert "none, 16 clusters" in next(line for line in lines if line.startswith("tenth "))


def test_branches_are_reported_below_their_goal(service):
    """Their latencies are for the hardware that the goal limits, as is the goal's."""
    half, tenth = service.fake.job.goals
    costs = {"flops": 200.0, "params": 40.0, "memory_bytes": 2000.0, "latency_ms@pi": 3.0}
    branches = (
        BranchFigures(1 / 3, costs, {"latency_ms@host": 0.1}, 0.7),
        BranchFigures(1.0, half.achieved, {"latency_ms@host": 0.4}, 0.75),
    )
    half = replace(half, spec=replace(half.spec, budget={"latency_ms@pi": 9.0}), branch_figures=branches)
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


def test_packages_are_compared_with_their_source(service):
    """Latencies are compared for equal thread counts, with the source in float32, and for each branch."""
    own = {"latency_ms@host@4-threads": 2.0, "latency_ms@host@4-threads@int8": 0.5}
    branch = BranchFigures(0.5, {"latency_ms@host@4-threads@int8": 1.0}, {}, 0.88)
    half = replace(
        service.fake.job.goals[0],
        spec=replace(
            service.fake.job.goals[0].spec,
            threads=4,
            quantization=QuantizationConfig(precision=Quantization.INT8),
        ),
        achieved=own,
        measured={"latency_ms@host@4-threads": 0.4},
        accuracy=0.895,
        branch_figures=(branch,),
    )
    measured_source = {"latency_ms@host": 9.0, "latency_ms@host@4-threads": 2.0}
    source = Source({**own, "latency_ms@host": 7.0}, 0.7, tuned_accuracy=0.9, measured=measured_source)
    job = replace(service.fake.job, sources=(source,), goals=(half, replace(half, id="b", batch=1)))
    first, of_another_source = report(job)["goals"]
    figures = {name: first["achieved"][name] for name in ("speedup", "measured_speedup", "accuracy_change")}
    assert figures == pytest.approx({"speedup": 4.0, "measured_speedup": 5.0, "accuracy_change": -0.005})
    (small,) = first["branches"]
    assert (small["speedup"], small["measured_speedup"]) == (2.0, None)
    assert small["accuracy_change"] == pytest.approx(-0.02)
    assert {of_another_source["achieved"][name] for name in figures} == {None}
    slower = replace(source, batch=1, tuned_accuracy=0.995, measured={"latency_ms@host@4-threads": 4.0})
    _, second = report(replace(job, sources=(source, slower)))["goals"]
    assert second["achieved"]["measured_speedup"] == 10.0
    assert second["achieved"]["accuracy_change"] == pytest.approx(-0.1)
    lines = lines_of_table(job, 80)
    assert max(map(len, lines)) <= 80
    assert next(line for line in lines if line.startswith("- tuned ")).split() == ["-", "tuned", "90.0%"]
    assert "89.5% (-0.5)" in next(line for line in lines if line.startswith("half "))
    assert "88.0% (-2.0)" in next(line for line in lines if line.startswith("- 0.50x"))
    assert "89.5%  " in next(line for line in lines if line.startswith("b "))


@pytest.mark.parametrize("axis", ["latency_ms@host", "latency_ms@host@4-threads@int8"])
def test_a_met_goal_is_marked_as_measured_or_predicted(service, axis):
    half = replace(
        service.fake.job.goals[0], spec=replace(service.fake.job.goals[0].spec, budget={axis: 9.0})
    )
    there = replace(half, spec=replace(half.spec, budget={axis.replace("host", "pi"): 9.0}))
    assert [outcome(goal) for goal in (half, there)] == ["met (measured)", "met (predicted)"]
    assert outcome(service.fake.job.goals[0]) == "met"
    assert outcome(replace(half, state=GoalState.UNMET)) == "unmet"


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
