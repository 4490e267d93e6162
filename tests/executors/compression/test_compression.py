"""Sparse and clustered kernels, on networks with few layers and on the digits."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from executors.compression import compressed
from executors.data import Dataset
from executors.structure import fold_batch_norm
from executors.training.evaluation import evaluate
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.package.compression import CompressionConfig
from tests.executors.structure.networks import randomised

layers = keras.layers
HALF = CompressionConfig(sparsity=0.5)
EIGHT = CompressionConfig(clusters=8)


def kernels(model):
    """Return the compressed kernels by layer; those of depthwise convolutions are not."""
    kinds = (layers.Conv2D, layers.Dense)
    return {layer.name: np.asarray(layer.kernel) for layer in model.layers if isinstance(layer, kinds)}


@pytest.mark.parametrize("sparsity", [pytest.param(0.3, marks=pytest.mark.slow), 0.5])
def test_pruned_kernels_have_the_requested_sparsity_at_nearly_the_same_accuracy(
    trained, training_setup, sparsity
):
    before = evaluate(trained, training_setup.validation)
    actual = compressed(trained, CompressionConfig(sparsity=sparsity), training_setup, 300, 0)
    for network in (actual, fold_batch_norm(actual)):
        for name, kernel in kernels(network).items():
            assert (kernel == 0).mean() == pytest.approx(sparsity, abs=1 / kernel.size), name
    assert evaluate(actual, training_setup.validation) >= before - 0.02


def test_clustered_kernels_have_few_values_at_nearly_the_same_accuracy(trained, training_setup):
    before = evaluate(trained, training_setup.validation)
    actual = compressed(trained, CompressionConfig(clusters=16), training_setup, 100, 0)
    assert {len(np.unique(kernel)) for kernel in kernels(actual).values()} == {16}
    assert evaluate(actual, training_setup.validation) >= before - 0.02


@pytest.mark.slow
@pytest.mark.parametrize("asked", [HALF, EIGHT])
def test_training_recovers_the_accuracy_lost_by_compression(trained, training_setup, asked):
    hard = CompressionConfig(sparsity=0.8) if asked is HALF else CompressionConfig(clusters=3)
    at_once, taught = (compressed(trained, hard, training_setup, steps, 0) for steps in (0, 200))
    assert evaluate(taught, training_setup.validation) > evaluate(at_once, training_setup.validation)


@pytest.mark.sampled
@pytest.mark.parametrize("asked", [HALF, EIGHT])
def test_only_batch_norms_are_removed_from_the_architecture(trained, training_setup, asked):
    before = [weight.copy() for weight in trained.get_weights()]
    actual = compressed(trained, asked, training_setup, 0, 0)
    same = trained if asked is HALF else fold_batch_norm(trained)
    assert [weight.path for weight in actual.weights] == [weight.path for weight in same.weights]
    assert [layer.get_config() for layer in actual.layers] == [layer.get_config() for layer in same.layers]
    assert all(np.array_equal(a, b) for a, b in zip(before, trained.get_weights(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("asked", [HALF, EIGHT])
def test_the_same_seed_gives_the_same_network(trained, training_setup, asked):
    first, second, other = (compressed(trained, asked, training_setup, 3, seed) for seed in (1, 1, 2))
    for left, right in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)
    pairs = zip(first.get_weights(), other.get_weights(), strict=True)
    assert not all(np.allclose(left, right, atol=1e-6) for left, right in pairs)


@pytest.mark.parametrize("asked", [HALF, EIGHT])
def test_depthwise_and_tiny_kernels_are_not_compressed(training_setup, asked):
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.DepthwiseConv2D(3, name="depthwise", depth_multiplier=4)(inputs)
    x = layers.LayerNormalization(name="norm")(layers.Conv2D(2, 1, name="tiny")(x))
    outputs = layers.Dense(10, "softmax", name="digit")(layers.Flatten()(x))
    model = keras.Model(inputs, outputs)
    actual = compressed(model, asked, replace(training_setup, teacher=None), 0, 0)
    wanted = model.get_layer("depthwise").get_weights()
    np.testing.assert_array_equal(actual.get_layer("depthwise").get_weights()[0], wanted[0])
    digit = np.asarray(actual.get_layer("digit").kernel)
    assert (digit == 0).mean() == 0.5 if asked is HALF else len(np.unique(digit)) == 8


@pytest.mark.parametrize("asked", [HALF, EIGHT])
def test_kernels_inside_composite_layers_are_compressed(asked):
    inputs = keras.Input((6, 8), name="x")
    x = layers.Bidirectional(layers.GRU(4), name="both")(layers.MultiHeadAttention(2, 4)(inputs, inputs))
    model = randomised(keras.Model(inputs, layers.Dense(3, "softmax", name="y")(x)))
    x = np.random.default_rng(0).normal(size=(40, 6, 8)).astype(np.float32)
    data = Dataset({"x": x}, {"y": np.arange(40) % 3})
    actual = compressed(model, asked, TrainingSetup(data, data, None, TrainingParams(batch_size=8)), 4, 0)
    inside = [weight for weight in actual.weights if "kernel" in weight.name]
    assert len(inside) == 9
    for weight in inside:
        kernel = np.asarray(weight)
        if asked is HALF:
            assert (kernel == 0).mean() == pytest.approx(0.5, abs=1 / kernel.size)
        else:
            assert len(np.unique(kernel)) <= 8


def test_a_model_without_kernels_is_not_changed():
    inputs = keras.Input((4,), name="x")
    model = randomised(keras.Model(inputs, layers.PReLU(name="y")(inputs)))
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    data = Dataset({"x": x}, {"y": x})
    actual = compressed(model, HALF, TrainingSetup(data, data, None, TrainingParams(batch_size=4)), 0, 0)
    np.testing.assert_array_equal(actual.get_weights()[0], model.get_weights()[0])
