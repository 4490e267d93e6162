import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.data import Dataset
from executors.training.evaluation import (
    EVALUATION_BATCH,
    RECALIBRATION_BATCH,
    Evaluation,
    call,
    evaluate,
    examples_at_once,
    recalibrate,
)

layers = keras.layers


def linear(*after, activation=None):
    """Return a linear classifier of the digits, followed by other layers."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8, 8, 1), name="image")
    outputs = layers.Dense(10, activation, name="digit")(layers.Flatten()(inputs))
    for layer in after:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


def by_hand(model, x):
    """Return the logits of a linear classifier."""
    kernel, bias = model.get_weights()
    return x.reshape(len(x), -1) @ kernel + bias


def test_outputs_cover_all_batches(digits):
    model, x = linear(), digits[0].inputs["image"][: EVALUATION_BATCH + 7]
    actual = Evaluation(model).outputs({"image": x})
    assert list(actual) == ["digit"]
    np.testing.assert_allclose(actual["digit"], by_hand(model, x), atol=1e-5)


def test_an_evaluation_uses_the_current_weights_and_is_traced_once(digits):
    passes = []

    class Counted(layers.Layer):
        def call(self, x):
            passes.append(tf.is_symbolic_tensor(x))
            return x

    model = linear(Counted(name="counted"))
    evaluation = Evaluation(model)
    passes.clear()
    for scale in (1.0, -2.0):
        model.set_weights([scale * weight for weight in model.get_weights()])
        for count in (7, 30):
            x = digits[1].inputs["image"][:count]
            actual = evaluation.outputs({"image": x})["counted"]
            np.testing.assert_allclose(actual, by_hand(model, x), atol=1e-5)
    assert passes == [True]


@pytest.mark.parametrize("momentum", [0.97, 1.0])
def test_recalibrated_statistics_are_those_of_the_data(training_setup, momentum):
    inputs = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(3, 3, name="conv")(inputs)
    x = layers.BatchNormalization(name="norm", momentum=momentum)(x)
    model = keras.Model(inputs, layers.Dense(10)(layers.Flatten()(x)))
    norm = model.get_layer("norm")
    norm.moving_mean.assign([100.0, -100.0, 3.0])
    kept = [np.asarray(weight) for weight in model.trainable_variables]
    recalibrate(model, training_setup.train)
    convolved = np.asarray(model.get_layer("conv")(training_setup.train.inputs["image"]))
    np.testing.assert_allclose(norm.moving_mean, convolved.mean((0, 1, 2)), atol=0.02)
    np.testing.assert_allclose(norm.moving_variance, convolved.var((0, 1, 2)), rtol=0.05)
    for before, after in zip(kept, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(before, np.asarray(after))


def test_accuracy_counts_correct_predictions(training_setup, trained):
    expected = np.mean(
        np.asarray(trained(training_setup.validation.inputs["image"])).argmax(1)
        == training_setup.validation.targets["digit"]
    )
    assert evaluate(trained, training_setup.validation) == pytest.approx(expected)
    assert expected > 0.8


@pytest.mark.parametrize("structure", ["list", "dict"])
def test_inputs_are_passed_by_name_and_keep_integers(structure):
    """Token ids above 2^24 would be rounded in float32."""
    arrays = {
        "late": keras.Input((), dtype="int64", name="late"),
        "early": keras.Input((2,), name="early"),
    }
    low = layers.Lambda(lambda ids: ids % 2**20, name="low")(arrays["late"])
    sums = layers.Lambda(lambda x: tf.reduce_sum(x, 1), name="sums")(arrays["early"])
    model = keras.Model(list(arrays.values()) if structure == "list" else arrays, [low, sums])
    ids, pairs = np.array([2**40 + 1, 2**40 + 3]), np.array([[1, 2], [3, 4]], np.uint8)
    actual = Evaluation(model).outputs({"early": pairs, "late": ids})
    assert actual["low"].tolist() == [1, 3]
    assert actual["sums"].tolist() == [3.0, 7.0]
    called = call(model, {"early": pairs, "late": ids}, training=False)
    assert {name: output.numpy().tolist() for name, output in called.items()} == {
        "low": [1, 3],
        "sums": [3.0, 7.0],
    }


def test_a_norm_called_several_times_gets_the_statistics_of_all_calls(training_setup):
    inputs = keras.Input((8, 8, 1), name="image")
    norm = layers.BatchNormalization(name="norm")
    left, right = layers.Cropping2D(((0, 4), (0, 0))), layers.Cropping2D(((4, 0), (0, 0)))
    halves = [norm(half(inputs)) for half in (left, right)]
    recalibrate(
        keras.Model(inputs, layers.Dense(10)(layers.Flatten()(halves[0] + halves[1]))), training_setup.train
    )
    images = training_setup.train.inputs["image"]
    expected = np.mean([images[:, :4].mean(), images[:, 4:].mean()])
    assert float(norm.moving_mean[0]) == pytest.approx(expected, rel=0.02)
    assert float(norm.moving_variance[0]) == pytest.approx(
        np.mean([images[:, :4].var(), images[:, 4:].var()]), rel=0.05
    )


def test_all_examples_count_equally_with_an_incomplete_last_batch():
    """A last batch of a single example would have no variance."""
    values = np.random.default_rng(0).normal(3, 2, (RECALIBRATION_BATCH + 1, 1)).astype(np.float32)
    inputs = keras.Input((1,), name="x")
    norm = layers.BatchNormalization()
    recalibrate(keras.Model(inputs, norm(inputs)), Dataset({"x": values}, {}))
    assert float(norm.moving_mean[0]) == pytest.approx(values.mean(), rel=0.02)
    assert float(norm.moving_variance[0]) == pytest.approx(values.var(), rel=0.02)


def test_batches_are_smaller_if_tensors_are_large():
    inputs = keras.Input((224, 224, 3), name="image")
    model = keras.Model(inputs, layers.GlobalAveragePooling2D()(layers.Conv2D(64, 3, padding="same")(inputs)))
    at_once = examples_at_once(model, EVALUATION_BATCH)
    assert 4 <= at_once < 100
    assert at_once * 224 * 224 * 64 * 4 * 4 <= 2**31
    assert examples_at_once(linear(), EVALUATION_BATCH) == EVALUATION_BATCH


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_the_loss_of_an_answer_is_its_negative_log_probability(digits, activation):
    model, data = linear(activation=activation), digits[1]
    logits = by_hand(model, data.inputs["image"])
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    likelihoods = probabilities[np.arange(len(data)), data.targets["digit"]]
    assert Evaluation(model).nats(data) == pytest.approx(-np.log(likelihoods).mean(), rel=1e-4)


def test_the_losses_of_outputs_are_added_unless_one_has_figures(digits):
    """A figure has no loss in nats."""
    inputs = keras.Input((8, 8, 1), name="image")
    flat = layers.Flatten()(inputs)
    outputs = [layers.Dense(1, "sigmoid", name=name)(flat) for name in ("first", "second")]
    model, images = keras.Model(inputs, outputs), digits[1].inputs
    odd = (digits[1].targets["digit"] % 2)[:, None]
    first, second = (
        -np.log(np.where(odd == 1, output, 1 - output)).mean() for output in model.predict(images, verbose=0)
    )
    data = Dataset(images, {"first": odd, "second": odd})
    assert Evaluation(model).nats(data) == pytest.approx(first + second, rel=1e-4)
    figures = Dataset(images, {"first": odd, "second": odd.astype(np.float32)})
    assert Evaluation(model).nats(figures) is None
