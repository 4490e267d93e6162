"""The slice of a goal: the best that is expected within its limits."""

import pytest

from executors.algorithms.nnfactory.search import SliceCandidate, best_candidate, candidates
from executors.structure import analyse
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, MEMORY
from tests.executors.algorithms.nnfactory.conftest import residual
from tests.executors.algorithms.nnfactory.test_supernet import TASK, supernet_of

FOUND = [
    SliceCandidate(limit, None, {FLOPS: flops, MEMORY: 10.0}, expected)
    for limit, flops, expected in ((0.1, 10.0, 0.6), (0.3, 20.0, 0.9), (0.6, 30.0, 0.95), (1.0, 40.0, 0.8))
]


@pytest.mark.parametrize(
    ("budget", "limit"),
    [({FLOPS: 15.0}, 0.1), ({FLOPS: 25.0}, 0.3), ({FLOPS: 50.0}, 0.6), ({MEMORY: 11.0}, 0.6), ({}, 0.6)],
)
def test_more_open_units_are_not_taken_where_they_are_worse(budget, limit):
    assert best_candidate(FOUND, budget).limit == limit


@pytest.mark.parametrize("budget", [{FLOPS: 5.0}, {MEMORY: 9.0}, {FLOPS: 12.0, MEMORY: 9.0}])
def test_where_none_is_within_its_limits_it_is_the_smallest(budget):
    assert best_candidate(FOUND, budget).limit == 0.1


def test_candidates_have_the_costs_of_their_slices():
    supernet = supernet_of(residual)
    found = candidates(supernet, TASK, ())
    assert [one.limit for one in found] == sorted({one.limit for one in found})
    assert found[0].limit == pytest.approx(0.1)
    assert found[-1].limit == pytest.approx(1.0)
    for one in found[::8]:
        expected = costs_of(analyse(supernet.slice(one.assembly)).network(), ())
        assert one.costs == pytest.approx(expected)
        assert one.expected == supernet.quality.expected(one.limit)
