"""Widths of the least loss within limits, compared with all possible widths."""

from itertools import product

import keras
import pytest

from executors.pruning.loss_table import LossTable
from executors.pruning.table_widths import widths_within
from executors.structure import analyse
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, MEMORY, PARAMS, SIZE, exceeded
from tests.executors.pruning.test_allocation import AXIS, Tiles

layers = keras.layers

#: Loss of halving the first, second, ... group, as a multiple of the power 1.5 of the halvings.
LOSSES = (1.0, 0.3, 0.6, 0.1)


def structure_of(*widths):
    """Return the structure of layers of these widths, each of which multiplies its input."""
    x = inputs = keras.Input((6,), name="x")
    for width in widths:
        x = layers.Dense(width, "relu")(x)
    return analyse(keras.Model(inputs, layers.Dense(3, name="scores")(x)))


def table_of(structure):
    sizes = structure.widths
    losses = {
        name: {size // 2**halvings: weight * halvings**1.5 for halvings in (1, 2, 3) if size // 2**halvings}
        for (name, size), weight in zip(sizes.items(), LOSSES, strict=False)
    }
    return LossTable(sizes, losses)


def costs(structure, widths):
    return costs_of(structure.network(widths), (Tiles(),))


def loss(table, widths):
    return sum(table.of(name, [width])[0] for name, width in widths.items())


def least_loss(table, structure, limits):
    """Return the least loss of all widths within the limits."""
    every = product(*(range(1, group.size + 1) for group in structure.groups.values()))
    named = (dict(zip(structure.groups, widths, strict=True)) for widths in every)
    return min(loss(table, own) for own in named if not exceeded(costs(structure, own), limits))


@pytest.mark.parametrize("share", [0.6, 0.25, 0.1])
@pytest.mark.parametrize("axes", [(FLOPS,), (PARAMS,), (SIZE,), (AXIS,), (FLOPS, AXIS)])
def test_the_loss_is_nearly_the_least_of_all_widths(axes, share):
    structure = structure_of(12, 6, 12)
    table = table_of(structure)
    least, whole = (costs(structure, widths) for widths in (structure.least_widths, structure.widths))
    limits = {axis: least[axis] + share * (whole[axis] - least[axis]) for axis in axes}
    found = widths_within(table, structure, structure.widths, limits, (Tiles(),))
    assert not exceeded(costs(structure, found), limits)
    assert loss(table, found) <= 1.05 * least_loss(table, structure, limits) + 0.01


def test_no_group_has_room_for_another_unit():
    structure = structure_of(64, 48, 64, 32)
    limits = {FLOPS: 0.3 * costs(structure, structure.widths)[FLOPS]}
    found = widths_within(table_of(structure), structure, structure.widths, limits, ())
    for name, group in structure.groups.items():
        if found[name] < group.size:
            assert exceeded(costs(structure, {**found, name: found[name] + 1}), limits)


def test_a_group_without_losses_is_cut_first():
    structure = structure_of(16, 16)
    first, second = structure.groups
    table = LossTable(structure.widths, {first: {8: 0.0, 4: 0.0, 2: 0.0}, second: {8: 1.0, 4: 2.0, 2: 3.0}})
    limits = {PARAMS: 0.4 * costs(structure, structure.widths)[PARAMS]}
    found = widths_within(table, structure, structure.widths, limits, ())
    assert found[second] == 16


def test_layers_that_save_less_together_than_alone_do_not_exceed_the_limits():
    """Cutting one of two neighbours saves part of their product, which cutting both does not save twice."""
    inputs = x = keras.Input((6,), name="x")
    for name in ("a", "b", "c"):
        x = layers.Dense(32, "relu", name=name)(x)
    beside = layers.Dense(256, "relu", name="beside")(inputs)
    outputs = layers.Dense(3, name="scores")(layers.Concatenate()([x, beside]))
    structure = analyse(keras.Model(inputs, outputs))
    losses = {name: {16: 0.0, 8: 0.0, 4: 0.0} for name in ("a", "b", "c")}
    table = LossTable(structure.widths, losses | {"beside": {128: 1.0, 64: 2.0, 32: 3.0}})
    limits = {FLOPS: 0.4 * costs(structure, structure.widths)[FLOPS]}
    found = widths_within(table, structure, structure.widths, limits, ())
    assert not exceeded(costs(structure, found), limits)
    assert loss(table, found) < 1.05 * table.of("beside", [190])[0]


def test_memory_that_no_single_group_determines_is_limited():
    structure = structure_of(16, 16, 16)
    axis = MEMORY
    limits = {axis: 0.6 * costs(structure, structure.widths)[axis]}
    found = widths_within(table_of(structure), structure, structure.widths, limits, ())
    assert not exceeded(costs(structure, found), limits)


def test_groups_do_not_grow_beyond_their_present_widths():
    structure = structure_of(16, 16)
    present = dict.fromkeys(structure.groups, 6)
    limits = {FLOPS: 0.9 * costs(structure, present)[FLOPS]}
    found = widths_within(table_of(structure), structure, present, limits, ())
    assert all(width <= 6 for width in found.values())


def test_without_a_network_within_the_limits_there_are_no_widths():
    structure = structure_of(16, 16)
    least = costs(structure, structure.least_widths)[FLOPS]
    table = table_of(structure)
    assert widths_within(table, structure, structure.widths, {FLOPS: least - 1}, ()) is None
    assert widths_within(table, structure, structure.widths, {FLOPS: least}, ()) == structure.least_widths
