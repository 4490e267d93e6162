"""Allocation of budgets to widths and depth."""

from itertools import product
from math import inf, log2
from operator import mul

import keras
import pytest

from executors.pruning.allocation import DEPTH, POWER, AllocationTerms, allocate, allocations, depth
from executors.structure import analyse, remove_blocks, residual_blocks
from mistify.costs.axes import Axis, AxisRegistry, costs_of
from mistify.costs.budget import FLOPS, PARAMS, exceeded, latency_axis
from mistify.costs.quantization import Quantization
from mistify.parsing.quantities import measured_in

layers = keras.layers
AXIS = latency_axis("tiles")


class Tiles:
    """A device that computes four output channels at once, in 1 us per row of multiply-adds."""

    name, threads = "tiles", 1

    def latency_ms(self, network):
        return (
            sum(-(-one.c_out // 4) * one.positions * one.kernel * one.c_in for one in network.operations)
            / 1e3
        )

    def energy_mj(self, network):
        return None


def plain():
    """Return a network with three layers of eight, six and five units."""
    x = inputs = keras.Input((6,), name="x")
    for units in (8, 6, 5):
        x = layers.Dense(units, "relu")(x)
    return keras.Model(inputs, layers.Dense(3, name="scores")(x))


def residual(blocks=2):
    """Return a network with residual blocks on 4 x 4 positions, which take nearly all of the time."""
    inputs = keras.Input((4, 4, 3), name="image")
    x = layers.Conv2D(8, 3, padding="same")(inputs)
    for _ in range(blocks):
        y = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
        x = layers.Add()([x, layers.Conv2D(8, 3, padding="same")(y)])
    return keras.Model(inputs, layers.Dense(3, name="scores")(layers.GlobalAveragePooling2D()(x)))


def whole_latency(structure):
    return costs_of(structure.network(), (Tiles(),))[AXIS]


def weights_of(structure):
    """Return different weights for the groups: 1, 2, 3, ..."""
    return {name: float(place) for place, name in enumerate(structure.groups, 1)}


def terms_of(structure, limits, blocks=None):
    return AllocationTerms(limits, (Tiles(),), weights_of(structure), blocks or {}, structure)


def allocated(structure, limits):
    """Return the best network within the limits."""
    found = allocations(structure, structure.widths, terms_of(structure, limits))
    return max(found, key=lambda allocation: allocation.worth, default=None)


def every_worth(structure, limits, source):
    """Yield the worth, by definition, of every network within the limits that has these blocks."""
    weights = [weights_of(source)[name] for name in structure.groups]
    deep = DEPTH * log2(depth(structure.network()) / depth(source.network()))
    for widths in product(*(range(1, group.size + 1) for group in structure.groups.values())):
        named = dict(zip(structure.groups, widths, strict=True))
        if not exceeded(costs_of(structure.network(named), (Tiles(),)), limits):
            halvings = [log2(group.size / named[name]) for name, group in structure.groups.items()]
            yield deep - sum(map(mul, weights, (each**POWER for each in halvings))) / sum(weights)


@pytest.mark.parametrize("share", [0.7, 0.5, 0.3])
@pytest.mark.parametrize("axes", [(AXIS,), (FLOPS,), (AXIS, PARAMS)])
def test_the_network_is_nearly_optimal(share, axes):
    structure = analyse(plain())
    whole = costs_of(structure.network(), (Tiles(),))
    limits = {axis: share * whole[axis] for axis in axes}
    best = max(every_worth(structure, limits, structure))
    found = allocated(structure, limits)
    assert not exceeded(costs_of(structure.network(found.widths), (Tiles(),)), limits)
    assert best - 0.1 <= found.worth <= best + 1e-9


def test_limits_that_depend_on_hardware_and_precision_are_met(monkeypatch):
    energy = Axis(
        "energy",
        "energy_mj",
        "energy",
        measured_in({"mJ": 1}),
        lambda network, at: 2 * at.hardware.latency_ms(network),
        by_precision=True,
        by_hardware=True,
    )
    monkeypatch.setattr("mistify.costs.axes.axis_registry", lambda: AxisRegistry({"energy": energy}, {}))
    structure = analyse(plain())
    limit = Tiles().latency_ms(structure.network())
    limits = {energy.named("tiles", Quantization.DYNAMIC): limit}
    found = allocated(structure, limits)
    assert Tiles().latency_ms(structure.network(found.widths)) <= 0.5 * limit


def test_no_group_can_be_widened_within_the_limits():
    structure = analyse(plain())
    limits = {AXIS: 0.5 * whole_latency(structure)}
    widths = allocated(structure, limits).widths
    for name, group in structure.groups.items():
        for width in range(widths[name] + 1, group.size + 1):
            assert exceeded(costs_of(structure.network({**widths, name: width}), (Tiles(),)), limits)


@pytest.mark.parametrize(("share", "gone"), [(0.97, 0), (0.25, 1), (0.1, 2)])
def test_blocks_are_removed_if_narrowing_would_lose_more(share, gone):
    structure = analyse(residual())
    limits = {AXIS: share * whole_latency(structure)}
    blocks = residual_blocks(structure.graph)
    best = [
        max(every_worth(remove_blocks(structure, blocks[:count]), limits, structure), default=-inf)
        for count in range(3)
    ]
    found = allocated(structure, limits)
    assert len(found.removed_blocks) == gone == best.index(max(best))
    assert found.worth >= max(best) - 0.1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_least_important_of_equally_expensive_blocks_is_removed_first(place):
    structure = analyse(residual(blocks=3))
    names = [block.name for block in residual_blocks(structure.graph)]
    counts = dict.fromkeys(names, 1.0) | {names[place]: 0.5}
    terms = terms_of(structure, {AXIS: 0.3 * whole_latency(structure)}, counts)
    removed_blocks = [found.removed_blocks for found in allocations(structure, structure.widths, terms)]
    assert removed_blocks[:2] == [frozenset(), frozenset([names[place]])]


def test_limits_that_no_width_can_meet_are_met_by_removing_blocks():
    structure = analyse(residual())
    shallow = remove_blocks(structure, residual_blocks(structure.graph))
    least = costs_of(shallow.network(dict.fromkeys(shallow.groups, 1)))[FLOPS]
    found = allocated(structure, {FLOPS: least})
    assert len(found.removed_blocks) == 2
    assert set(found.widths.values()) == {1}
    assert allocated(structure, {FLOPS: least - 1}) is None


def test_frozen_blocks_are_kept():
    model = residual()
    for layer in model.layers[:4]:
        layer.trainable = False
    structure = analyse(model)
    found = allocated(structure, {AXIS: 0.7 * whole_latency(structure)})
    assert found.removed_blocks <= {residual_blocks(structure.graph)[1].name}


def test_depth_is_the_length_of_the_longest_path():
    """First layer, two blocks of two layers, and the last layer; shortcuts do not reduce the depth."""
    assert depth(analyse(residual()).network()) == 6
    assert depth(analyse(residual(blocks=0)).network()) == 2


def test_each_depth_is_allocated_separately():
    structure = analyse(residual())
    limits = {AXIS: 0.35 * whole_latency(structure)}
    terms = terms_of(structure, limits)
    by_depth = allocations(structure, structure.widths, terms)
    assert [len(allocation.removed_blocks) for allocation in by_depth] == [0, 1, 2]
    whole = allocate(structure, structure.widths, terms)
    assert whole == by_depth[0]
