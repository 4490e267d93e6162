"""Groups of units with gates, and networks that take gates, scales and shifts for each example."""

import keras
import numpy as np
import pytest
from scipy.special import erf

from executors.algorithms.nnfactory.gates import enough_units, gated, gated_groups
from executors.structure import analyse, narrow
from mistify.config.layers import LayerRule
from tests.executors.algorithms.nnfactory.conftest import GATED, NETWORKS, images, made, transformer
from tests.executors.algorithms.nnfactory.conftest import residual as residual_network

layers = keras.layers


def values_of(network, groups, count, gates=None):
    """The inputs of a network besides its image: gates by group, scales of 1 and shifts of 0."""
    gates = gates or {}
    values = [gates.get(group.name, np.ones((count, group.units), np.float32)) for group in groups]
    kinds = [tensor.name.split("-")[1] for tensor in network.inputs[1 + len(groups) :]]
    sizes = [tensor.shape[-1] for tensor in network.inputs[1 + len(groups) :]]
    return values + [
        np.full((count, size), kind == "scales", np.float32) for kind, size in zip(kinds, sizes, strict=True)
    ]


@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_units_inside_blocks_have_gates(make):
    assert {group.name: group.units for group in gated_groups(made(make))} == GATED[make]


@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("modulate", [False, True])
def test_with_all_gates_open_it_is_the_network(make, modulate):
    structure = made(make)
    groups = gated_groups(structure)
    network = gated(structure, groups, modulate)
    expected = narrow(structure, {})(images(5))
    np.testing.assert_allclose(network([images(5), *values_of(network, groups, 5)]), expected, atol=1e-6)


@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_a_closed_unit_is_as_good_as_cut_for_each_example_by_itself(make):
    """Whatever activations and batch norms make of zero."""
    structure, rng = made(make), np.random.default_rng(0)
    groups = gated_groups(structure)
    network = gated(structure, groups, True)
    gates = {group.name: np.eye(4, group.units, dtype=np.float32) for group in groups}
    for mask in gates.values():
        mask[:, 1:] = np.maximum(mask[:, 1:], rng.random(mask[:, 1:].shape) < 0.5)
    outputs = np.asarray(network([images(4), *values_of(network, groups, 4, gates)]))
    for example in range(4):
        slice_of_it = narrow(structure, {name: mask[example] > 0 for name, mask in gates.items()})
        expected = np.asarray(slice_of_it(images(4)))[example]
        np.testing.assert_allclose(outputs[example], expected, atol=1e-6)


def test_scales_and_shifts_are_in_front_of_the_activation():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), layers.Dense(4, "gelu", name="hidden"), layers.Dense(2)])
    structure = analyse(model)
    (group,) = groups = gated_groups(structure)
    x, gate, scale, shift = (np.random.default_rng(0).random((5, size), np.float32) for size in (3, 4, 4, 4))
    (kernel, bias), (head, head_bias) = (layer.get_weights() for layer in model.layers)
    z = (x @ kernel + bias) * scale + shift
    expected = (z * (1 + erf(z / np.sqrt(2))) / 2 * gate) @ head + head_bias
    np.testing.assert_allclose(gated(structure, groups, True)([x, gate, scale, shift]), expected, atol=1e-6)
    assert group.maker == "hidden"


def test_units_that_several_layers_make_are_not_modulated():
    """Squeeze-and-excite has two layers that make them: a shift would have to be in both."""
    by_name = {group.name: group for group in gated_groups(made(NETWORKS[1]))}
    assert by_name["expand"].modulated is None
    assert by_name["squeeze"].modulated is not None


def test_layers_that_have_to_stay_make_no_gated_units():
    model = narrow(made(residual_network), {})
    assert [group.name for group in gated_groups(analyse(model, {"inner": LayerRule()}))] == ["hidden"]
    model.get_layer("hidden").trainable = False
    assert [group.name for group in gated_groups(analyse(model))] == ["inner"]


def test_below_32_units_there_is_nothing_to_choose_among():
    groups = gated_groups(made(transformer))
    assert enough_units(groups)
    assert not enough_units(groups[:1])
