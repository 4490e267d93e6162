"""The analytic hierarchy process against independent calculations and a published example."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistify_client.monitor.policies.hierarchy import correction, priorities

NAMES = ("accuracy", "latency", "energy", "memory")

#: Saaty's consistency index of random comparisons of three and four criteria.
RANDOM_INDICES = {3: 0.58, 4: 0.90}

times = st.sampled_from([float(number) for number in range(1, 10)])


@st.composite
def comparisons(draw):
    """Draw the names of three or four criteria, and a comparison of each pair in either order."""
    names = NAMES[: draw(st.integers(3, 4))]
    return names, {draw(st.permutations(pair).map(tuple)): draw(times) for pair in combinations(names, 2)}


def power_iteration(names, pairs):
    """Return weights and consistency ratio without a decomposition of the matrix."""
    matrix = np.array(
        [
            [1.0 if one == other else pairs.get((one, other)) or 1 / pairs[other, one] for other in names]
            for one in names
        ]
    )
    vector = np.ones(len(names))
    for _ in range(100):
        vector = matrix @ vector
        vector /= vector.sum()
    largest = (matrix @ vector).sum()
    return vector, (largest - len(names)) / (len(names) - 1) / RANDOM_INDICES[len(names)]


@settings(max_examples=40)
@given(case=comparisons())
def test_weights_and_inconsistency_are_those_of_the_power_iteration(case):
    weights, ratio = power_iteration(*case)
    found = priorities(*case)
    assert list(found.weights.values()) == pytest.approx(weights.tolist(), abs=1e-6)
    assert found.inconsistency == pytest.approx(ratio, abs=1e-6)


def test_a_published_example():
    """Saaty's scale with 3, 5 and 2: weights of 0.648, 0.230 and 0.122, a ratio of 0.003."""
    pairs = {("accuracy", "latency"): 3.0, ("accuracy", "energy"): 5.0, ("latency", "energy"): 2.0}
    found = priorities(NAMES[:3], pairs)
    assert [round(weight, 3) for weight in found.weights.values()] == [0.648, 0.23, 0.122]
    assert round(found.inconsistency, 3) == 0.003


@given(importance=st.lists(times, min_size=1, max_size=4))
def test_comparisons_of_single_figures_are_consistent(importance):
    names = NAMES[: len(importance)]
    figures = dict(zip(names, importance, strict=True))
    pairs = {(one, other): figures[one] / figures[other] for one, other in combinations(names, 2)}
    found = priorities(names, pairs)
    total = sum(importance)
    assert found.weights == pytest.approx({name: each / total for name, each in figures.items()})
    assert found.inconsistency == pytest.approx(0, abs=1e-9)


@settings(max_examples=8)
@given(case=comparisons())
def test_no_other_change_of_one_comparison_is_more_consistent(case):
    names, pairs = case
    best = correction(names, pairs)
    ratios = [
        power_iteration(names, {**{key: pairs[key] for key in pairs if key != pair}, changed: number})[1]
        for pair in pairs
        for changed in (pair, pair[::-1])
        for number in range(1, 10)
    ]
    assert best.inconsistency == pytest.approx(min(ratios), abs=2e-6)


def test_one_wrong_comparison_is_the_one_that_is_found():
    figures = dict(zip(NAMES, (8.0, 4.0, 2.0, 1.0), strict=True))
    pairs = {(one, other): figures[one] / figures[other] for one, other in combinations(NAMES, 2)}
    pairs["latency", "energy"] = 1 / 9
    best = correction(NAMES, pairs)
    assert (best.pair, best.better, best.importance) == (("latency", "energy"), ("latency", "energy"), 2)
