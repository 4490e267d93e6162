"""The two simplest searches."""

from dataclasses import replace

import numpy as np
import pytest

from executors.base import Assignment
from executors.gradual import GradualParams
from executors.searching import RandomSearchExecutor, RandomSearchParams, UniformExecutor
from executors.structure import analyse
from mistify.budget import FLOPS


@pytest.fixture
def assignment(trained, schooling):
    structure = analyse(trained)
    budget = {FLOPS: 0.5 * structure.network().flops}
    return Assignment(trained, budget, (), schooling, 0, structure)


def cut(executor, assignment):
    """The shares of their units that the groups keep after the only cut."""
    executor.init(assignment)
    executor.iterate()
    source = assignment.source.groups
    left = analyse(executor.network()).groups
    return np.array([left[name].size / group.size for name, group in source.items() if name in left])


def test_uniform_scaling_takes_the_same_share_of_every_group(assignment):
    shares = cut(UniformExecutor(GradualParams(adapt_steps=1, cuts=1)), assignment)
    sizes = np.array([group.size for group in assignment.source.groups.values()])
    assert np.ptp(shares) <= 1 / sizes.min()
    assert shares.max() < 0.9


def test_random_search_goes_on_with_the_best_that_it_measured(assignment):
    qualities = []

    class Noting(RandomSearchExecutor):
        def _quality(self, genes):
            qualities.append((super()._quality(genes), self._space.architecture(genes).widths))
            return qualities[-1][0]

    executor = Noting(RandomSearchParams(adapt_steps=1, cuts=1, candidates=5))
    executor.init(replace(assignment, seed=1))
    executor.iterate()
    assert len(qualities) == 5
    best, widths = max(qualities, key=lambda found: found[0])
    assert best not in (qualities[0][0], qualities[-1][0])  # else the first or the last would do
    left = {name: group.size for name, group in analyse(executor.network()).groups.items()}
    assert sorted(left.values()) == sorted(widths[name] for name in left)
