"""The points of trade-off plots."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.harness.run import EXIT_SKIPPED
from benchmarks.harness.worker import RESNET8, TEST, TRAIN
from benchmarks.porting.feasible_goals import feasible
from benchmarks.porting.tradeoffs import (
    COUNT,
    SERIES,
    Point,
    _goals,
    _series_of,
    figures_of,
    main,
    points_of,
)
from mistify.config.data.metric import Metric
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.reading import parse_batch
from mistify.costs.quantization import Quantization
from mistify.jobs.job import Goal, GoalState, Job, JobState, Source
from mistify.jobs.package_spec import PackageSpec
from mistify_client.porting.local_server import embedded_server
from mistify_client.rpc.porting import PortingClient


def test_there_are_more_than_20_valid_goals():
    common = {"model": RESNET8, "dataset": {"train": TRAIN, "test": TEST}}
    goals = parse_batch(json.dumps([{**goal, **common} for goal in _goals(COUNT)]))
    assert len(goals) > 26
    precisions = {_series_of(goal): goal.quantization.precision.value for goal in goals}
    assert precisions == {"FLOP": "none", "memory": "auto", "latency-float32": "none", "latency": "auto"}


@pytest.mark.slow
def test_goals_below_the_smallest_network_are_left_out(tmp_path):
    dataset = {"train": "builtin:digits-train", "test": "builtin:digits-test"}
    common = {"model": "digits-resnet", "dataset": dataset}
    shares = {"half": "0.5x", "none": "0.00001x"}
    goals = [{"id": name, "adaptation_goal": {"FLOP": share}, **common} for name, share in shares.items()]
    with embedded_server(tmp_path, []) as server, PortingClient(*server) as client:
        assert [goal["id"] for goal in feasible(goals, client)] == ["half"]


def test_points_are_numbered_on_each_axis():
    points = [Point("FLOP", 0.9, 80.0), Point("FLOP", 0.1, 70.0), Point("memory", 0.5, 75.0)]
    assert figures_of({"resnet8": points}) == {
        "resnet8_FLOP_0": 0.9,
        "resnet8_FLOP_0_accuracy": 80.0,
        "resnet8_FLOP_1": 0.1,
        "resnet8_FLOP_1_accuracy": 70.0,
        "resnet8_memory_0": 0.5,
        "resnet8_memory_0_accuracy": 75.0,
        "resnet8_goals_met": 3,
    }
    assert set(SERIES) == {"FLOP", "memory", "latency", "latency-float32"}


def test_results_in_the_precision_of_the_goal_are_relative_to_the_float32_source():
    source = Source({"flops": 100.0, "memory_bytes": 1_000.0, "latency_ms@host": 4.0}, 0.8, Metric.ACCURACY)
    int8 = QuantizationConfig(precision=Quantization.INT8)
    memory, latency, missed = (
        Goal(name, 0, PackageSpec({}, quantization=int8), state=state, accuracy=0.7)
        for name, state in (
            ("memory-0.200", GoalState.MET),
            ("latency-0.300", GoalState.MET),
            ("latency-0.100", GoalState.UNMET),
        )
    )
    memory = replace(memory, achieved={"memory_bytes@int8": 200.0, "memory_bytes": 700.0})
    latency = replace(latency, measured={"latency_ms@host@int8": 1.0, "latency_ms@host": 1.0})
    job = Job("job", JobState.DONE, (memory, latency, missed), 0, (source,))
    assert points_of(job) == [Point("memory", 0.2, 70.0), Point("latency", 0.25, 70.0)]


def test_the_benchmark_is_skipped_without_data():
    assert main(["--data", "nowhere"]) == EXIT_SKIPPED
