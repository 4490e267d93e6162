import keras
import numpy as np
import pytest

from executors.structure import UnsupportedLayerError, analyse, averaged_groups, narrow
from tests.executors.structure.networks import (
    alternate,
    batch,
    check_widen,
    outputs,
    randomised,
    same,
    same_costs,
)

layers = keras.layers
POSITIONS, WIDTH = 4, 12


def network(norm):
    inputs = keras.Input((POSITIONS, 3))
    x = norm(layers.Dense(WIDTH, name="hidden")(inputs))
    return randomised(keras.Model(inputs, layers.Dense(2, name="out")(x)))


def by_hand(source, arrays, keep, normalise):
    kernel, bias = source.get_layer("hidden").get_weights()
    x = normalise((arrays @ kernel + bias)[..., keep])
    weights = [np.asarray(weight)[keep] for weight in source.layers[2].weights]
    for weight, how in zip(weights, (np.multiply, np.add), strict=False):
        x = how(x, weight)
    kernel, bias = source.get_layer("out").get_weights()
    return x @ kernel[keep] + bias


def rms(x):
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-6)


def grouped(groups):
    def normalise(x):
        split = x.reshape(len(x), POSITIONS, groups, -1)
        mean, spread = (take(split, axis=(1, 3), keepdims=True) for take in (np.mean, np.var))
        return ((split - mean) / np.sqrt(spread + 1e-3)).reshape(x.shape)

    return normalise


@pytest.mark.parametrize(
    ("norm", "groups", "normalise"),
    [
        (layers.RMSNormalization, WIDTH, rms),
        (lambda: layers.GroupNormalization(3), WIDTH // 3, grouped(3)),
        (lambda: layers.GroupNormalization(1), WIDTH, grouped(1)),
        (lambda: layers.GroupNormalization(3, center=False, scale=False), WIDTH // 3, grouped(3)),
    ],
)
def test_cutting_channels_matches_the_computation_by_hand(norm, groups, normalise):
    source = network(norm())
    structure, keep = analyse(source), alternate(groups)
    assert structure.widths == {"hidden": groups}
    assert averaged_groups(structure) == {"hidden"}
    small = narrow(structure, {"hidden": keep})
    arrays = batch(source)
    channels = np.tile(keep, WIDTH // groups)
    same([by_hand(source, arrays[0], channels, normalise)], outputs(small, arrays))
    same_costs(structure, {"hidden": int(keep.sum())}, small)


@pytest.mark.parametrize("affine", [True, False])
def test_channels_are_not_tied_by_one_group_per_channel(affine):
    source = network(layers.GroupNormalization(-1, center=affine, scale=affine))
    structure, keep = analyse(source), alternate(WIDTH)
    assert structure.widths == {"hidden": WIDTH}
    small = narrow(structure, {"hidden": keep})
    arrays = batch(source)
    same([by_hand(source, arrays[0], keep, grouped(int(keep.sum())))], outputs(small, arrays))


@pytest.mark.parametrize(
    "norm",
    [
        layers.RMSNormalization(),
        layers.GroupNormalization(3),
        layers.GroupNormalization(-1),
        layers.GroupNormalization(-1, center=False, scale=False),
    ],
)
def test_widening_by_an_integer_factor_does_not_change_the_outputs(norm):
    check_widen(network(norm))


def test_a_norm_group_that_spans_two_layers_is_widened_with_both():
    """The first group of the norm has three channels of `a`; the second has one of `a` and both of `b`."""
    inputs = keras.Input((POSITIONS, 3))
    a, b = layers.Dense(4, name="a")(inputs), layers.Dense(2, name="b")(inputs)
    x = layers.GroupNormalization(2)(layers.Concatenate()([a, b]))
    source = randomised(keras.Model(inputs, layers.Dense(2, name="out")(x)))
    assert analyse(source).widths == {"a": 1, "a#2": 2}
    check_widen(source)


@pytest.mark.parametrize(
    ("norm", "positions", "least"),
    [
        (layers.LayerNormalization, 4, 2),
        (lambda: layers.GroupNormalization(3), 4, 1),
        (lambda: layers.GroupNormalization(3), 1, 2),
        (lambda: layers.GroupNormalization(1), 1, 2),
        (lambda: layers.GroupNormalization(-1), 4, 1),
    ],
)
def test_outputs_of_the_narrowest_network_depend_on_the_input(norm, positions, least):
    inputs = keras.Input((positions, 3))
    x = norm()(layers.Dense(WIDTH, name="hidden")(inputs))
    source = randomised(keras.Model(inputs, layers.Dense(2, name="out")(x)))
    structure = analyse(source)
    assert structure.least_widths == {"hidden": least}
    small = narrow(structure, {"hidden": np.arange(structure.widths["hidden"]) < least})
    (made,) = outputs(small, batch(small))
    assert np.ptp(made, axis=0).min() > 1e-5


def test_batch_norms_average_only_over_examples():
    assert not averaged_groups(analyse(network(layers.BatchNormalization())))


def test_renormalisation_is_refused():
    source = network(layers.BatchNormalization(renorm=True, name="norm"))
    with pytest.raises(UnsupportedLayerError, match="'norm' has renorm=True; expected renorm=False"):
        analyse(source)
