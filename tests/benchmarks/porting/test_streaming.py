"""The fresh job that a streamed goal is compared with, and its settings."""

import json

import pytest

from benchmarks.harness.run import EXIT_SKIPPED, run
from benchmarks.porting.streaming import TARGETS, Comparison, Ported, _config, add_options, measure
from executors.contract.params import Params


def ported(accuracy: float) -> Ported:
    return Ported(accuracy, steps=100, seconds=2.0, own_seconds=1.0)


@pytest.mark.parametrize(("accuracies", "matched"), [((0.6, 0.695), True), ((0.6, 0.694), False)])
def test_the_last_fresh_job_counts_if_it_is_accurate_enough(accuracies, matched):
    fresh = dict(enumerate(map(ported, accuracies)))
    comparison = Comparison("flop-35", ported(0.7), fresh)

    assert comparison.counted is fresh[1]
    assert comparison.matched is matched


def test_a_fresh_job_gets_a_multiple_of_the_steps_without_tuning_the_source():
    params = Params(source_steps=5, adapt_steps=10, tune_steps=20, max_steps=30)
    ((first, _), (twice,)) = (
        json.loads(_config("tuned.keras", shares, params, n, 3))
        for shares, n in (([0.5, 0.3], 1), ([0.3], 2))
    )

    assert first["model"] == twice["model"] == "tuned.keras"
    assert first["adaptation_goal"] == {"FLOP": "0.5x"}
    assert twice["adaptation_goal"] == {"FLOP": "0.3x"}
    assert twice["algorithm"]["config"] == {
        "source_steps": 0,
        "adapt_steps": 20,
        "tune_steps": 40,
        "max_steps": 120,
        "seed": 3,
    }
    assert first["algorithm"]["config"]["tune_steps"] == 20


def test_the_benchmark_is_skipped_without_data(tmp_path):
    options = ["--data", str(tmp_path)]

    assert run("streaming", TARGETS, measure, options, add_options) == EXIT_SKIPPED
