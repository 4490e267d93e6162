"""Where weights stand in a `.tflite`: written there, others are served as if they had been converted."""

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

#: One for each way in which weights are stored: turned, in parts, with their groups, scaled, after a norm.
QUICK = ("depthwise_multiplier", "grouped", "gru", "transformer", "merges", "pre-activation", "transposed")
SHARED_NORM = "siamese"
ALL = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
    for name in NETWORKS
    if name != SHARED_NORM
]


#: The converter adds the activation's own offset to the bias before it.
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


def test_what_scales_the_input_is_in_the_kernel():
    model = rescaled("same", 0.0)
    network, places = convert_placed(model, trainable_weights(model, TuningConfig(trainable="network")))
    assert [place.factor for place in places["first/kernel"]] == pytest.approx([0.5])
    same(network, model)


@pytest.mark.sampled
@pytest.mark.parametrize("make", [lambda: rescaled("valid", 0.1), lambda: folded(SHARED_NORM)])
def test_weights_that_are_merged_with_others_have_no_place(make):
    model = make()
    weights = trainable_weights(model, TuningConfig(trainable="network"))
    network, places = convert_placed(model, weights)
    assert 0 < len(places) < len(weights)
    same(network, model)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("scale", "offset", "use_bias"), [(1.0, -0.5, True), (1.0, -0.5, False), (0.5, 0.1, False)]
)
def test_a_kernel_that_a_bias_was_computed_from_has_no_place(scale, offset, use_bias):
    """Other numbers in its place would ask for another bias, which the converter has made of them."""
    model = rescaled("valid", offset, scale, use_bias)
    network, places = convert_placed(model, trainable_weights(model, TuningConfig(trainable="network")))
    assert set(places) == {"out/kernel", "out/bias"}
    same(network, model)


@pytest.mark.slow
def test_all_weights_of_a_large_network_but_a_merged_one_have_places():
    """That takes marks of which no two are alike: where one is merged, others are looked for as they are."""
    inputs = keras.Input((400,), name="x")
    x = layers.Dense(400, activation="relu", name="first")(inputs)
    x = layers.Dense(400, activation="relu", name="second")(x)
    model = randomised(keras.Model(inputs, layers.Dense(3, activation="hard_sigmoid", name="merged")(x)))
    assert model.count_params() > 200_000
    weights = trainable_weights(model, TuningConfig(trainable="network"))
    network, places = convert_placed(model, weights)
    assert set(places) == set(weights) - {"merged/bias"}
    same(network, model)


def test_weights_that_are_alike_have_places_of_their_own():
    inputs = keras.Input((4,), name="x")
    x = layers.Dense(4, activation="relu", name="a")(inputs)
    x = layers.Dense(4, activation="relu", kernel_initializer="zeros", name="b")(x)
    model = keras.Model(inputs, layers.Dense(4, kernel_initializer="identity", name="c")(x))
    network, places = convert_placed(model, trainable_weights(model, TuningConfig(trainable="network")))
    assert len({place.offset for actual in places.values() for place in actual}) == 6
    same(network, model)


@pytest.mark.slow
def test_a_network_is_as_small_as_without_places():
    model = folded("residual_identity")
    network, _ = convert_placed(model, trainable_weights(model, TuningConfig(trainable="network")))
    plain = convert(model)
    assert operators(network) == operators(plain)
    assert abs(len(network) - len(plain)) < 64


def test_a_norm_that_cannot_be_folded_is_a_scale_and_a_shift():
    inputs = keras.Input((6,), name="x")
    norm = layers.BatchNormalization(name="norm")
    model = randomised(keras.Model(inputs, layers.Dense(3)(layers.ReLU()(norm(inputs)))))
    settled = fold_batch_norm(model).get_layer("norm")
    np.testing.assert_array_equal(settled.moving_mean, np.zeros(6))
    np.testing.assert_array_equal(settled.moving_variance + settled.epsilon, np.ones(6))
    value = inputs_of(model)["x"]
    np.testing.assert_allclose(settled(value), norm(value), rtol=1e-5, atol=1e-6)
