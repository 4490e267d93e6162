import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.evaluation import (
    EVALUATION_BATCH,
    Evaluation,
    accuracy,
    ends_in_softmax,
    probabilities,
    recalibrate,
)

layers = keras.layers


def linear(*after, activation=None):
    """A linear classifier of the digits, and layers behind it."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8, 8, 1))
    outputs = layers.Dense(10, activation)(layers.Flatten()(inputs))
    for layer in after:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


def by_hand(model, x):
    """The probabilities of a linear classifier."""
    kernel, bias = model.get_weights()
    shares = np.exp(x.reshape(len(x), -1) @ kernel + bias)
    return shares / shares.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("model", "softmax"),
    [(linear(), False), (linear(activation="softmax"), True), (linear(layers.Softmax()), True)],
)
def test_probabilities_are_those_of_logits_and_of_a_softmax(model, softmax, digits):
    x = digits[0].x[: EVALUATION_BATCH + 7]
    assert ends_in_softmax(model) is softmax
    np.testing.assert_allclose(probabilities(model, x), by_hand(model, x), atol=1e-6)


def test_an_evaluation_is_of_the_network_as_it_is_at_each_call_and_traced_once(digits):
    passes = []

    class Counted(layers.Layer):
        def call(self, x):
            passes.append(tf.is_symbolic_tensor(x))
            return x

    model = linear(Counted())
    evaluation = Evaluation(model)
    passes.clear()
    for scale in (1.0, -2.0):
        model.set_weights([scale * weight for weight in model.get_weights()])
        for count in (7, 30):
            x = digits[1].x[:count]
            np.testing.assert_allclose(evaluation.probabilities(x), by_hand(model, x), atol=1e-6)
    assert passes == [True]


def test_recalibrated_statistics_are_those_of_the_data(schooling):
    inputs = keras.Input((8, 8, 1))
    x = layers.Conv2D(3, 3, name="conv")(inputs)
    x = layers.BatchNormalization(name="norm", momentum=0.97)(x)
    model = keras.Model(inputs, layers.Dense(10)(layers.Flatten()(x)))
    norm = model.get_layer("norm")
    norm.moving_mean.assign([100.0, -100.0, 3.0])
    kept = [np.asarray(weight) for weight in model.trainable_variables]
    recalibrate(model, schooling.train)
    convolved = np.asarray(model.get_layer("conv")(schooling.train.x))
    np.testing.assert_allclose(norm.moving_mean, convolved.mean((0, 1, 2)), atol=0.02)
    np.testing.assert_allclose(norm.moving_variance, convolved.var((0, 1, 2)), rtol=0.05)
    for before, after in zip(kept, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(before, np.asarray(after))


def test_accuracy_counts_the_right_ones(schooling, trained):
    expected = np.mean(np.asarray(trained(schooling.test.x)).argmax(1) == schooling.test.y)
    assert accuracy(trained, schooling.test) == pytest.approx(expected)
    assert expected > 0.8
