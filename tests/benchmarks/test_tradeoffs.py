"""Which points are drawn."""

import json

import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.harness import EXIT_SKIPPED
from benchmarks.porting import RESNET8, TEST, TRAIN
from benchmarks.tradeoffs import AXES, COUNT, Point, _goals, _within_reach, figures_of, main
from mistify.config.reading import parse_batch
from mistify_client.porting.local_server import embedded_server
from mistify_client.rpc.porting import PortingClient


def test_there_are_more_than_20_goals_that_a_config_may_have():
    common = {"model": RESNET8, "dataset": {"train": TRAIN, "test": TEST}}
    goals = parse_batch(json.dumps([{**goal, **common} for goal in _goals(COUNT)]))
    assert len(goals) > 20


@pytest.mark.slow
def test_goals_below_what_any_network_takes_are_left_out(tmp_path):
    dataset = {"train": "builtin:digits-train", "test": "builtin:digits-test"}
    common = {"model": "digits-resnet", "dataset": dataset}
    shares = {"half": "0.5x", "none": "0.00001x"}
    goals = [{"id": name, "adaptation_goal": {"FLOP": share}, **common} for name, share in shares.items()]
    with embedded_server(tmp_path, []) as address, PortingClient(address) as client:
        assert [goal["id"] for goal in _within_reach(goals, client)] == ["half"]


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
