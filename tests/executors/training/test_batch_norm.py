"""Training and inference with fast batch norms, compared with those of Keras."""

from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.training.batch_norm import quick_batch_norms

layers = keras.layers


def network(shape, channels, **settings):
    """Return a batch norm between two layers, with statistics and weights other than the initial ones."""
    keras.utils.set_random_seed(3)
    inputs = keras.Input(shape)
    norm = layers.BatchNormalization(name="norm", momentum=0.9, epsilon=1e-5, **settings)
    first = layers.Dense(channels, use_bias=False)(inputs)  # a bias would get no gradient
    model = keras.Model(inputs, layers.Dense(2)(norm(first)))
    for variable in norm.variables:
        variable.assign(np.random.default_rng(4).uniform(0.5, 2.0, variable.shape))
    return model


def step(model, x, quick):
    """Return outputs, gradients and statistics of a step, and the kinds of its operators."""

    @tf.function(autograph=False)
    def run(inputs):
        with tf.GradientTape() as tape, quick_batch_norms(model) if quick else nullcontext():
            outputs = model(inputs, training=True)
            loss = tf.reduce_sum(outputs * tf.cos(outputs))
        return [outputs, *tape.gradient(loss, model.trainable_variables)]

    results = [result.numpy() for result in run(x)]
    statistics = [variable.numpy() for variable in model.non_trainable_variables]
    kinds = {operator.type for operator in run.get_concrete_function(x).graph.get_operations()}
    return results + statistics, kinds


@pytest.mark.parametrize("channels", [8, 5, 24, 1])
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((6, 4), {}),
        ((7, 3), {"scale": False}),
        ((3,), {"center": False}),
        ((3, 5, 2), {"axis": 3}),
        ((2, 3, 2, 3), {"scale": False, "center": False}),
    ],
)
def test_a_training_step_agrees_with_keras(shape, settings, channels):
    x = tf.constant(np.random.default_rng(5).normal(2.0, 3.0, (12, *shape)).astype(np.float32))
    expected, slow = step(network(shape, channels, **settings), x, quick=False)
    results, kinds = step(network(shape, channels, **settings), x, quick=True)
    for result, wanted in zip(results, expected, strict=True):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(result, wanted, atol=2e-5 * scale)
    assert "SquaredDifference" in slow
    assert "SquaredDifference" not in kinds
    assert ("FusedBatchNormV3" in kinds) == (channels % 8 == 0)


def test_batches_of_any_size_are_normalised():
    """Long rows are only formed from positions that every batch has."""
    model = network((5, 3), 6)
    x = np.random.default_rng(5).normal(size=(7, 5, 3)).astype(np.float32)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, 5, 3])])
    def run(inputs):
        with quick_batch_norms(model):
            return model(inputs, training=True)

    np.testing.assert_allclose(run(x), network((5, 3), 6)(x, training=True), atol=1e-4)


@pytest.mark.parametrize("channels", [8, 5, 16])
@pytest.mark.parametrize(
    ("shape", "settings"), [((6, 4), {}), ((3,), {"center": False}), ((3, 5, 2), {"scale": False})]
)
def test_inference_agrees_with_keras(shape, settings, channels):
    model = network(shape, channels, **settings)
    statistics = [variable.numpy() for variable in model.non_trainable_variables]
    x = tf.constant(np.random.default_rng(5).normal(2.0, 3.0, (12, *shape)).astype(np.float32))

    @tf.function(autograph=False)
    def run(inputs):
        with quick_batch_norms(model):
            return model(inputs, training=False)

    expected = model(x, training=False).numpy()
    np.testing.assert_allclose(run(x), expected, atol=1e-5 * np.abs(expected).max())
    kinds = {operator.type for operator in run.get_concrete_function(x).graph.get_operations()}
    assert ("FusedBatchNormV3" in kinds) == (channels % 8 == 0)
    for now, before in zip(model.non_trainable_variables, statistics, strict=True):
        np.testing.assert_array_equal(now, before)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["frozen", "first axis", "half"])
def test_unsupported_batch_norms_use_the_implementation_of_keras(kind, training):
    model = network((6, 8), 8, axis=1 if kind == "first axis" else -1)
    if kind == "half":
        model.get_layer("norm").dtype_policy = "mixed_float16"
    model.get_layer("norm").trainable = kind != "frozen"
    x = tf.constant(np.random.default_rng(5).normal(size=(4, 6, 8)).astype(np.float32))
    with quick_batch_norms(model):
        outputs = model(x, training=training)
    expected = model(x, training=training)
    np.testing.assert_allclose(outputs, expected, atol=0 if (kind, training) != ("frozen", False) else 1e-5)


def test_layers_are_restored_after_a_failure():
    model = network((6,), 8)
    with pytest.raises(ValueError, match="incompatible"), quick_batch_norms(model):
        model(np.zeros((2, 5), np.float32))
    assert type(model.get_layer("norm")) is layers.BatchNormalization
