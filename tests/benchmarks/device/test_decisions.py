"""The comparison of policies under changing conditions."""

import numpy as np
import pytest

from benchmarks.device.changing_conditions import LARGEST_MS, LIMIT_MS, options_of_size, trace
from benchmarks.device.decisions import Day
from mistify_client.monitor.policies.base import make_policy
from mistify_client.monitor.traces.lines import Moment

OFFERED = options_of_size(4)


@pytest.fixture(scope="module")
def day():
    return Day.of([*trace(OFFERED, 300, seed=1)])


def test_options_cost_more_the_more_accurate_they_are():
    accuracies = [option.score.value for option in OFFERED]
    latencies = [option.costs.latency_ms for option in OFFERED]
    assert accuracies == sorted(accuracies)
    assert latencies == pytest.approx([LARGEST_MS / 8, LARGEST_MS / 4, LARGEST_MS / 2, LARGEST_MS])


@pytest.mark.parametrize("objective", ["accuracy", "score"])
def test_no_side_is_better_than_the_oracle(day, objective):
    sides = [day.fixed(option.id) for option in OFFERED]
    sides += [
        day.replayed(lambda name=name: make_policy({"name": name}), None)
        for name in ("contextual", "predictive")
    ]
    best = getattr(day.oracle(objective), objective)
    assert all(getattr(side, objective) <= best for side in sides)


def test_a_fixed_option_counts_only_within_both_limits(day):
    moments = [line for line in day.lines if isinstance(line, Moment)][1:]
    largest = OFFERED[-1]
    kept = [
        largest.costs.latency_ms * one.ratio <= LIMIT_MS
        and largest.costs.memory_bytes <= 0.8 * one.memory_bytes
        for one in moments
    ]
    outcome = day.fixed(largest.id)
    assert 0 < outcome.within < 1
    assert outcome.within == pytest.approx(np.mean(kept))
    assert outcome.accuracy == pytest.approx(np.mean(kept) * largest.score.value)
    assert outcome.mj == pytest.approx(2 * LARGEST_MS)
