"""Places of weights in a `.tflite`: other weights written there are served as if they had been converted."""

import keras
import numpy as np
import pytest

from executors.structure import fold_batch_norm
from mistify.config.package.tuning import TuningConfig
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.placement import convert_placed
from mistify_server.worker.packaging.tflite.runner import run_network
from mistify_server.worker.packaging.training.parts import trainable_weights
from tests.executors.structure.networks import randomised
from tests.mistify_server.worker.packaging.networks import operators
from tests.mistify_server.worker.packaging.training.networks import NETWORKS, inputs_of
from tests.mistify_server.worker.packaging.training.networks import network as folded

layers = keras.layers

#: One network for each way of storing weights: transposed, split, grouped, scaled, after a norm, a number.
QUICK = (
    *("depthwise_multiplier", "grouped", "gru", "transformer", "merges", "pre-activation", "transposed"),
    "attention by products",
)
SHARED_NORM = "siamese"
ALL = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
    for name in NETWORKS
    if name != SHARED_NORM
]


#: The converter adds the offset of the activation to the preceding bias.
MERGED = {"activation hard_sigmoid": {"stem/bias"}}


def same(network, model):
    inputs = inputs_of(model)
    actual = list(run_network(network, inputs).values())
    value = list(inputs.values())
    expected = keras.tree.flatten(model(value if len(value) > 1 else value[0], training=False))
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * max(1.0, np.abs(theirs).max()))


@pytest.mark.parametrize("name", ALL)
def test_other_weights_are_written_in_place(name):
    model = folded(name)
    weights = trainable_weights(model, TuningConfig(trainable="network"))
    network, places = convert_placed(model, weights)
    assert set(places) == set(weights) - MERGED.get(name, set())
    same(network, model)
    changed = bytearray(network)
    rng = np.random.default_rng(4)
    for weight, actual in places.items():
        weights[weight].assign(weights[weight] + 0.1 * rng.normal(size=weights[weight].shape))
        for place in actual:
            place.put(weights[weight].numpy(), changed)
    assert len(changed) == len(network)
    same(bytes(changed), model)


def rescaled(padding, offset, scale=0.5, use_bias=True):
    inputs = keras.Input((8, 8, 3), name="image")
    x = layers.Rescaling(scale, offset)(inputs)
    x = layers.Conv2D(4, 3, padding=padding, activation="relu", use_bias=use_bias, name="first")(x)
    return randomised(keras.Model(inputs, layers.Dense(3, name="out")(layers.GlobalAveragePooling2D()(x))))


def test_input_scaling_is_folded_into_the_kernel():
    model = rescaled("same", 0.0)
    network, places = convert_placed(model, trainable_weights(model, TuningConfig(trainable="network")))
    assert [place.factor for place in places["first/kernel"]] == pytest.approx([0.5])
    same(network, model)


@pytest.mark.sampled
@pytest.mark.parametrize("make", [lambda: rescaled("valid", 0.1), lambda: folded(SHARED_NORM)])
def test_merged_weights_have_no_place(make):
    model = make()
    weights = trainable_weights(model, TuningConfig(trainable="network"))
    network, places = convert_placed(model, weights)
    assert 0 < len(places) < len(weights)
    same(network, model)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("scale", "offset", "use_bias"), [(1.0, -0.5, True), (1.0, -0.5, False), (0.5, 0.1, False)]
)
def test_a_kernel_that_determines_a_converted_bias_has_no_place(scale, offset, use_bias):
    """The converter computed the bias from the kernel, so that another kernel would need another bias."""
    model = rescaled("valid", offset, scale, use_bias)
    network, places = convert_placed(model, trainable_weights(model, TuningConfig(trainable="network")))
    assert set(places) == {"out/kernel", "out/bias"}
    same(network, model)


@pytest.mark.slow
def test_all_weights_of_a_large_network_except_merged_ones_have_places():
    """Finding them needs unique marker values; if one is merged, the others are searched by value."""
    inputs = keras.Input((400,), name="x")
    x = layers.Dense(400, activation="relu", name="first")(inputs)
    x = layers.Dense(400, activation="relu", name="second")(x)
    model = randomised(keras.Model(inputs, layers.Dense(3, activation="hard_sigmoid", name="merged")(x)))
    assert model.count_params() > 200_000
    weights = trainable_weights(model, TuningConfig(trainable="network"))
    network, places = convert_placed(model, weights)
    assert set(places) == set(weights) - {"merged/bias"}
    same(network, model)


def test_equal_weights_have_separate_places():
    inputs = keras.Input((4,), name="x")
    x = layers.Dense(4, activation="relu", name="a")(inputs)
    x = layers.Dense(4, activation="relu", kernel_initializer="zeros", name="b")(x)
    model = keras.Model(inputs, layers.Dense(4, kernel_initializer="identity", name="c")(x))
    network, places = convert_placed(model, trainable_weights(model, TuningConfig(trainable="network")))
    assert len({place.offset for actual in places.values() for place in actual}) == 6
    same(network, model)


@pytest.mark.slow
def test_recording_places_does_not_enlarge_a_network():
    model = folded("residual_identity")
    network, _ = convert_placed(model, trainable_weights(model, TuningConfig(trainable="network")))
    plain = convert(model)
    assert operators(network) == operators(plain)
    assert abs(len(network) - len(plain)) < 64


def test_a_norm_that_cannot_be_folded_becomes_a_scale_and_a_shift():
    inputs = keras.Input((6,), name="x")
    norm = layers.BatchNormalization(name="norm")
    model = randomised(keras.Model(inputs, layers.Dense(3)(layers.ReLU()(norm(inputs)))))
    settled = fold_batch_norm(model).get_layer("norm")
    np.testing.assert_array_equal(settled.moving_mean, np.zeros(6))
    np.testing.assert_array_equal(settled.moving_variance + settled.epsilon, np.ones(6))
    value = inputs_of(model)["x"]
    np.testing.assert_allclose(settled(value), norm(value), rtol=1e-5, atol=1e-6)
