"""Which points are drawn."""

import json

import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.harness import EXIT_SKIPPED
from benchmarks.porting import RESNET8, TEST, TRAIN
from benchmarks.tradeoffs import AXES, COUNT, Point, _goals, figures_of, main
from mistify.config import parse_batch


def test_there_are_more_than_20_goals_that_a_config_may_have():
    common = {"model": RESNET8, "dataset": {"train": TRAIN, "test": TEST}}
    goals = parse_batch(json.dumps([{**goal, **common} for goal in _goals(COUNT)]))
    assert len(goals) > 20


def test_points_are_numbered_on_each_axis():
    points = [Point("FLOP", 0.9, 80.0), Point("FLOP", 0.1, 70.0), Point("memory", 0.5, 75.0)]
    assert figures_of({"resnet8": points}) == {
        "resnet8_FLOP_0": 0.9,
        "resnet8_FLOP_0_accuracy": 80.0,
        "resnet8_FLOP_1": 0.1,
        "resnet8_FLOP_1_accuracy": 70.0,
        "resnet8_memory_0": 0.5,
        "resnet8_memory_0_accuracy": 75.0,
        "resnet8_goals": 3,
    }
    assert set(AXES) == {"FLOP", "memory", "latency"}


def test_without_data_it_is_skipped():
    assert main(["--data", "nowhere"]) == EXIT_SKIPPED
