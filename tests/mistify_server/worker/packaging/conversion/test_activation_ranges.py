"""Scales of activations that come from slices, in a network whose units reach far only together."""

from functools import cache

import keras
import numpy as np

from executors.structure import analyse
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.tflite.session import Session
from mistify.tflite.slicing import OpenUnits, sliced
from mistify_server.worker.packaging.conversion.activation_ranges import with_ranges_of
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.cut_places import find_cut_places

INT8 = QuantizationConfig(precision=Quantization.INT8)

EXAMPLES = {"x": np.random.default_rng(0).uniform(-1, 1, (40, 4)).astype(np.float32)}


@cache
def network(units):
    """The first units of a network of 64, which add up to large sums."""
    x = keras.Input((4,), name="x")
    y = keras.layers.Dense(units, "relu")(x)
    model = keras.Model(x, keras.layers.Dense(2, name="y")(keras.layers.Dense(8, "relu")(y)))
    rng = np.random.default_rng(1)
    weights = [rng.normal(0, 1, shape) for shape in ((4, 64), (64,), (64, 8), (8,), (8, 2), (2,))]
    model.set_weights([weights[0][:, :units], weights[1][:units], np.abs(weights[2][:units]), *weights[3:]])
    return model


def converted(units):
    return convert(network(units), INT8, EXAMPLES)


def test_a_network_with_its_own_ranges_answers_as_before():
    whole = converted(64)
    answered = Session(with_ranges_of(whole, [whole]), 1)(EXAMPLES)["y"]
    np.testing.assert_allclose(answered, Session(whole, 1)(EXAMPLES)["y"], atol=0.02 * np.ptp(answered))


def test_slices_that_are_converted_otherwise_do_not_count():
    whole = converted(64)
    x = keras.Input((4,), name="x")
    other = convert(keras.Model(x, keras.layers.Dense(2, name="y")(x)), INT8, EXAMPLES)
    np.testing.assert_array_equal(
        Session(with_ranges_of(whole, [other]), 1)(EXAMPLES)["y"], Session(whole, 1)(EXAMPLES)["y"]
    )


def test_a_slice_has_the_integers_that_its_activations_need():
    """Two units of 64 are cut out of the whole network, whose scales are made for sums of all."""
    whole, narrow = converted(64), network(2)
    structure = analyse(network(64))
    name = next(group for group, own in structure.groups.items() if own.size == 64)
    network_file, places = find_cut_places(
        whole, structure, [name], lambda model: convert(model, INT8, EXAMPLES)
    )
    expected = np.asarray(narrow(EXAMPLES["x"], training=False))
    errors = []
    for content in (network_file, with_ranges_of(network_file, [converted(2)])):
        cut = sliced(content, places, [OpenUnits(np.arange(2))])
        errors.append(np.abs(Session(cut, 1)(EXAMPLES)["y"] - expected).max() / np.abs(expected).max())
    assert errors[1] < 0.04
    assert errors[1] < errors[0] / 3
