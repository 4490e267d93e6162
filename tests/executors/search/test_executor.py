"""Uniform scaling and random search."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from executors.algorithms.baselines.params import RandomSearchParams
from executors.algorithms.baselines.random_search import RandomSearchExecutor
from executors.algorithms.baselines.uniform import UniformExecutor
from executors.contract.assignment import Assignment
from executors.pruning.params import IterativePruningParams
from executors.structure import analyse, residual_blocks
from mistify.costs.budget import FLOPS

layers = keras.layers


@pytest.fixture
def assignment(trained, training_setup):
    structure = analyse(trained)
    budget = {FLOPS: 0.5 * structure.network().flops}
    return Assignment(trained, budget, (), training_setup, 0, structure)


def cut(executor, assignment):
    """Return the share of units that each group keeps after the only cut."""
    executor.init(assignment)
    executor.iterate()
    source = assignment.source.groups
    left = analyse(executor.network()).groups
    return np.array([left[name].size / group.size for name, group in source.items() if name in left])


def test_uniform_scaling_cuts_the_same_share_of_every_group(assignment):
    shares = cut(UniformExecutor(IterativePruningParams(adapt_steps=1, cuts=1)), assignment)
    sizes = np.array([group.size for group in assignment.source.groups.values()])
    assert np.ptp(shares) <= 1 / sizes.min()
    assert shares.max() < 0.9


def test_random_search_continues_with_the_best_candidate(assignment):
    qualities = []

    class Noting(RandomSearchExecutor):
        def _quality(self, search, genes):
            qualities.append((super()._quality(search, genes), search.space.architecture(genes).widths))
            return qualities[-1][0]

    for seed in range(2, 10):
        qualities.clear()
        executor = Noting(RandomSearchParams(adapt_steps=1, cuts=1, candidates=5))
        executor.init(replace(assignment, seed=seed))
        executor.iterate()
        assert len(qualities) == 5
        best, widths = max(qualities, key=lambda actual: actual[0])
        if best not in (qualities[0][0], qualities[-1][0]):
            break
    else:
        pytest.fail("with each seed, whoever takes the first or the last has the best")
    left = {name: group.size for name, group in analyse(executor.network()).groups.items()}
    assert sorted(left.values()) == sorted(widths[name] for name in left)


def four_blocks():
    """Return a stem of 8 channels, four blocks with 8 inner units, and a head."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(8, 3, padding="same")(inputs)
    for _ in range(4):
        y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(x)))
        x = layers.Add()([x, layers.Conv2D(8, 3, padding="same")(y)])
    outputs = layers.Dense(10, "softmax", name="digit")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, outputs)


class Shallowest(RandomSearchExecutor):
    """A search that prefers networks with fewer blocks."""

    def _quality(self, search, genes):
        return len(search.space.architecture(genes).removed_blocks)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("share", "blocks"),
    [
        (0.5, 3),  # 4 x 0.83
        pytest.param(0.2, 3, marks=pytest.mark.slow),  # 4 x 0.65
        (0.1, 2),  # 4 x 0.55
        (0.002, 0),  # more than one block would have to stay, but each takes too much
    ],
)
def test_a_network_keeps_a_depth_that_suits_its_costs_if_possible(training_setup, share, blocks):
    source = four_blocks()
    structure = analyse(source)
    budget = {FLOPS: share * structure.network().flops}
    executor = Shallowest(RandomSearchParams(adapt_steps=1, cuts=1, candidates=60))
    executor.init(Assignment(source, budget, (), training_setup, 0, structure))
    executor.iterate()
    left = analyse(executor.network())
    assert left.network().flops <= budget[FLOPS]
    assert len(residual_blocks(left.graph)) == blocks
