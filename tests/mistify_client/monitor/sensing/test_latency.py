"""Latency estimates from the most recent inferences."""

import numpy as np
import pytest

from mistify_client.monitor.sensing.latency import LatencyEstimator
from mistify_client.runtime.statistics import INFERENCE


def inferences(ratios, apart, branch=0):
    """Return inferences of a branch expected to take 10 ms, `apart` seconds apart; the last just ended."""
    count = len(ratios)
    return np.array(
        [
            (1000.0 - apart * (count - 1 - n), 10.0 * ratio, 10.0 * ratio, 0.0, branch, 0, 1, 0)
            for n, ratio in enumerate(ratios)
        ],
        INFERENCE,
    )


@pytest.mark.parametrize(
    ("apart", "ratio"),
    [(1.0, 1.0), (2.5, 1.0), (4.0, 3.0), (100.0, 3.0)],  # the last five, if recent
)
def test_older_inferences_count_only_if_there_are_too_few_recent_ones(apart, ratio):
    model = LatencyEstimator([10.0])
    assert model.observe(inferences([1.0, 1.0, 1.0, 3.0, 3.0], apart), 999.9)
    assert model.ratio == pytest.approx(ratio)


def test_only_recent_inferences_of_a_long_interval_count():
    model = LatencyEstimator([10.0])
    assert model.observe(inferences([1.0] * 50 + [3.0] * 10, 1.0), 900.0)
    assert model.ratio == pytest.approx(3.0)


def test_an_interval_with_too_few_inferences_changes_nothing():
    model = LatencyEstimator([10.0])
    assert not model.observe(inferences([3.0] * 5, 1.0), 1000.1)
    assert not model.observe(inferences([3.0] * 2, 1.0), 999.9)
    assert not model.observe(inferences([], 1.0), 999.9)
    assert model.ratio == 1.0


def test_the_share_of_processor_time_in_the_latency_is_measured():
    waiting = inferences([2.0] * 5, 0.1)
    waiting["computing_ms"] = 12.0
    model = LatencyEstimator([10.0])
    assert (model.computing_share, model.option) == (1.0, -1)
    model.observe(waiting, 0.0)
    assert (model.computing_share, model.option) == (pytest.approx(0.6), 0)


def test_a_deviation_is_split_between_the_old_and_the_new_branch():
    model = LatencyEstimator([10.0, 10.0, 10.0])
    model.observe(inferences([1.0] * 5, 0.1, branch=0), 0.0)
    model.observe(inferences([1.5] * 5, 0.1, branch=1), 0.0)
    entered, left = model.corrections[1], model.corrections[0]
    assert entered == pytest.approx(1.5**0.25)
    assert entered * left == pytest.approx(1.0)
    assert model.corrections[2] == 1.0
