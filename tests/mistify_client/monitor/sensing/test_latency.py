"""The selection of inferences that count, and the estimate from them."""

import numpy as np
import pytest

from mistify_client.monitor.sensing.latency import LatencyEstimator
from mistify_client.runtime.statistics import INFERENCE


def inferences(ratios, apart, branch=0):
    """Return inferences of a branch expected to take 10 ms, `apart` seconds apart; the last just ended."""
    count = len(ratios)
    return np.array(
        [
            (1000.0 - apart * (count - 1 - n), 10.0 * ratio, 10.0 * ratio, 0.0, branch, 1)
            for n, ratio in enumerate(ratios)
        ],
        INFERENCE,
    )


@pytest.mark.parametrize(
    ("apart", "ratio"),
    [(1.0, 1.0), (2.5, 1.0), (4.0, 3.0), (100.0, 3.0)],  # the last five, or those of them that are recent
)
def test_inferences_that_are_not_recent_count_only_where_there_are_too_few(apart, ratio):
    model = LatencyEstimator([10.0])
    assert model.observe(inferences([1.0, 1.0, 1.0, 3.0, 3.0], apart), 999.9)
    assert model.ratio == pytest.approx(ratio)


def test_of_a_long_interval_the_recent_ones_count():
    model = LatencyEstimator([10.0])
    assert model.observe(inferences([1.0] * 50 + [3.0] * 10, 1.0), 900.0)
    assert model.ratio == pytest.approx(3.0)


def test_an_interval_without_an_inference_or_with_too_few_changes_nothing():
    model = LatencyEstimator([10.0])
    assert not model.observe(inferences([3.0] * 5, 1.0), 1000.1)
    assert not model.observe(inferences([3.0] * 2, 1.0), 999.9)
    assert not model.observe(inferences([], 1.0), 999.9)
    assert model.ratio == 1.0


def test_a_deviation_is_shared_by_the_branch_that_is_entered_and_the_one_that_is_left():
    model = LatencyEstimator([10.0, 10.0, 10.0])
    model.observe(inferences([1.0] * 5, 0.1, branch=0), 0.0)
    model.observe(inferences([1.5] * 5, 0.1, branch=1), 0.0)
    entered, left = model.corrections[1], model.corrections[0]
    assert entered == pytest.approx(1.5**0.25)
    assert entered * left == pytest.approx(1.0)
    assert model.corrections[2] == 1.0
