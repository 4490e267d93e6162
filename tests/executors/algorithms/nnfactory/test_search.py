"""The slice of a goal: the best that is expected within its limits."""

import numpy as np
import pytest

from executors.algorithms.nnfactory.search import best_slice, slices_of
from executors.contract.slices import Slice
from executors.structure import analyse
from mistify.config.task import TaskConfig
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, PARAMS
from mistify.costs.layer import LayerCost
from mistify.costs.network import NetworkCost
from tests.executors.algorithms.nnfactory.conftest import residual
from tests.executors.algorithms.nnfactory.test_supernet import TASK, supernet_of

TOP = TaskConfig(properties=("any", "top"))


def slice_with(flops, expected):
    layer = LayerCost("dense", flops, params=10, stored_params=10, inputs=(0,), output=1)
    return Slice((), NetworkCost((layer,), (1, 1), (0,), (1,)), expected, network=None)


FOUND = [slice_with(*one) for one in ((10, 0.6), (20, 0.9), (30, 0.95), (40, 0.8))]


@pytest.mark.parametrize(
    ("budget", "place"),
    [({FLOPS: 15.0}, 0), ({FLOPS: 25.0}, 1), ({FLOPS: 50.0}, 2), ({PARAMS: 11.0}, 2), ({}, 2)],
)
def test_more_open_units_are_not_taken_where_they_are_worse(budget, place):
    assert best_slice(FOUND, budget, ()) is FOUND[place]


@pytest.mark.parametrize("budget", [{FLOPS: 5.0}, {PARAMS: 9.0}, {FLOPS: 12.0, PARAMS: 9.0}])
def test_where_none_is_within_its_limits_it_is_the_smallest(budget):
    assert best_slice(FOUND, budget, ()) is FOUND[0]


def test_slices_have_the_costs_and_the_units_of_their_networks():
    supernet = supernet_of(residual)
    found = slices_of(supernet, TOP)
    opened = [tuple(len(group.kept) for group in one.units) for one in found]
    assert sum(opened[0]) < sum(opened[-1])
    assert len({tuple(group.kept.tobytes() for group in one.units) for one in found}) == len(found)
    for one in found[::8]:
        structure = analyse(one.network())
        assert costs_of(one.cost, ()) == pytest.approx(costs_of(structure.network(), ()))
        names = [group.name for group in supernet.groups]
        assert [structure.widths[name] for name in names] == [len(group.kept) for group in one.units]


def test_the_units_of_a_slice_have_the_scales_and_shifts_of_the_assembler():
    supernet = supernet_of(residual)
    one = slices_of(supernet, TOP)[0]
    (assembly,) = supernet.assemblies(TASK, [supernet.quality.tried_limits()[0]])
    opened = np.concatenate(list(assembly.open.values()))
    for kind in ("scale", "shift"):
        values = np.concatenate([getattr(group, kind) for group in one.units])
        np.testing.assert_allclose(values, assembly.values[f"{kind}s"][opened], rtol=1e-6)
