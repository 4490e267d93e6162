"""Losses, compared with loops in NumPy, and the objective of each kind of output."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.data import Dataset
from executors.outputs.objectives import (
    Binary,
    Categorical,
    Regression,
    objective_of,
    objectives_of,
    with_unlabelled,
)
from executors.structure.signature import Activation, Output, signature_of
from mistify.config.data.dataset import DataSettings
from mistify.parsing.validation import InvalidValue

layers = keras.layers
RNG = np.random.default_rng(0)
SOFTMAX, SIGMOID, NONE = Activation.SOFTMAX, Activation.SIGMOID, Activation.NONE


@pytest.mark.parametrize(
    ("shape", "activation", "target", "kind"),
    [
        ((3,), SOFTMAX, np.zeros(5, int), Categorical),
        ((3,), NONE, np.zeros(5, int), Categorical),
        ((7, 3), SOFTMAX, np.zeros((5, 7), int), Categorical),
        ((None, 3), NONE, np.zeros((5, 7), int), Categorical),
        ((4, 4, 3), NONE, np.zeros((5, 4, 4), int), Categorical),
        ((1,), SIGMOID, np.zeros(5, int), Binary),
        ((), SIGMOID, np.zeros(5, int), Binary),
        ((1,), NONE, np.zeros(5, int), Binary),
        ((4,), SIGMOID, np.full((5, 4), 0.3), Regression),
        ((6,), SIGMOID, np.zeros((5, 6), int), Binary),
        ((1,), NONE, np.zeros(5), Regression),
        ((), NONE, np.zeros(5), Regression),
        ((6,), NONE, np.zeros((5, 6)), Regression),
    ],
)
def test_the_objective_is_determined_by_output_and_targets(shape, activation, target, kind):
    assert type(objective_of(Output("out", shape, activation), target)) is kind


@pytest.mark.parametrize(
    ("shape", "activation", "target", "expected"),
    [
        ((3,), SOFTMAX, np.zeros(5), "integer classes [n]"),
        ((3,), SIGMOID, np.zeros(5, int), "0 or 1, or figures from 0 to 1, [n, 3]"),
        ((3,), SOFTMAX, np.zeros((5, 3)), "integer classes [n]"),
        ((7, 3), NONE, np.zeros((5, 6), int), "integer classes [n, 7] or floats [n, 7, 3]"),
        ((1,), NONE, np.zeros((5, 2)), "floats [n, 1]"),
    ],
)
def test_targets_that_do_not_suit_the_output_are_refused(shape, activation, target, expected):
    with pytest.raises(InvalidValue) as caught:
        objective_of(Output("out", shape, activation), target)
    assert caught.value.expected == expected


@pytest.mark.parametrize("shape", [(3,), (7, 3)])
def test_the_way_from_one_hot_targets_to_classes_is_named(shape):
    classes = RNG.integers(0, 3, (50, *shape[:-1]))
    with pytest.raises(InvalidValue) as caught:
        objective_of(Output("out", shape, SOFTMAX), np.eye(3)[classes])
    assert "np.argmax(targets, axis=-1)" in caught.value.fix
    assert isinstance(objective_of(Output("out", shape, SOFTMAX), classes), Categorical)


def softmax(logits):
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize("activation", [SOFTMAX, NONE])
@pytest.mark.parametrize("weights", [None, (1.0, 3.0, 0.5)])
def test_labelling_skips_ignored_positions_and_weights_classes(activation, weights):
    logits, target = RNG.normal(size=(4, 5, 3)).astype("float32"), RNG.integers(-1, 3, (4, 5))
    predicted, taught = softmax(logits), softmax(RNG.normal(size=(4, 5, 3)).astype("float32"))
    lost, taught_lost, weight_sum, count = 0.0, 0.0, 0.0, 0
    for row in range(4):
        for position in range(5):
            label = target[row, position]
            if label == -1:
                continue
            weight = 1.0 if weights is None else weights[label]
            lost -= weight * np.log(predicted[row, position, label])
            heated = softmax(logits[row, position] / 2)
            soft = taught[row, position] ** 0.5 / (taught[row, position] ** 0.5).sum()
            taught_lost -= 4 * (soft * np.log(heated)).sum()
            weight_sum, count = weight_sum + weight, count + 1
    objective = Categorical(activation, weights)
    output = predicted if activation is SOFTMAX else logits
    assert float(objective.loss(output, target)) == pytest.approx(lost / weight_sum, rel=1e-4)
    actual = float(objective.distillation(output, target, taught, 2.0))
    assert actual == pytest.approx(taught_lost / count, rel=1e-4)
    np.testing.assert_allclose(objective.predictions(output), predicted, atol=1e-6)


@pytest.mark.parametrize("activation", [SIGMOID, NONE])
@pytest.mark.parametrize("weights", [None, (1.0, 3.0)])
def test_binary_cross_entropy_matches_numpy(activation, weights):
    logits, target = RNG.normal(size=(6, 1)).astype("float32"), np.array([0, 1, 1, 0, 1, 0])
    predicted, taught = sigmoid(logits), sigmoid(RNG.normal(size=(6, 1))).astype("float32")
    lost = [-np.log(p if label else 1 - p) for p, label in zip(predicted[:, 0], target, strict=True)]
    counts = [(weights or (1.0, 1.0))[label] for label in target]
    taught_lost = [-q * np.log(p) - (1 - q) * np.log(1 - p) for p, q in zip(predicted, taught, strict=True)]
    objective = Binary(activation, weights)
    output = predicted if activation is SIGMOID else logits
    expected = np.average(lost, weights=counts)
    assert float(objective.loss(output, target)) == pytest.approx(expected, rel=1e-4)
    actual = float(objective.distillation(output, target, taught, 2.0))
    assert actual == pytest.approx(np.mean(taught_lost), rel=1e-4)
    np.testing.assert_allclose(objective.predictions(output), predicted, atol=1e-6)


def test_squared_error_matches_numpy():
    output, taught = RNG.normal(size=(2, 6, 1)).astype("float32")
    target = RNG.normal(size=6).astype("float32")
    objective = Regression(NONE)
    expected = np.mean([(a - b) ** 2 for a, b in zip(output[:, 0], target, strict=True)])
    assert float(objective.loss(output, target)) == pytest.approx(expected, rel=1e-5)
    distance = float(objective.distillation(output, target, taught, 2.0))
    assert distance == pytest.approx(np.mean((output - taught) ** 2), rel=1e-5)


def test_figures_that_vary_by_more_than_one_count_in_their_standard_deviations():
    prices = RNG.normal([100.0, 5000.0], [30.0, 2000.0], (3000, 2)).astype(np.float32)
    prices[0] = np.nan
    known = np.nan_to_num(prices[1:])
    objective = objective_of(Output("price", (2,), NONE), prices)
    always = np.broadcast_to(known.mean(axis=0), prices.shape)
    spread = known.std(axis=0)
    assert float(objective.loss(always, prices)) == pytest.approx(1, rel=0.1)
    once = always.copy()
    once[1, 1] += 500
    step = float(objective.distillation(once, prices, always, temperature=1.0))
    assert step == pytest.approx(500**2 / np.square(spread).mean() / prices.size, rel=0.1)


@pytest.mark.parametrize(
    "target", [np.full((5, 1), 1e6), np.full((5, 1), np.nan), 0.01 * np.ones((5, 1)).cumsum(0)]
)
def test_errors_of_figures_that_hardly_vary_are_not_scaled(target):
    objective = objective_of(Output("y", (1,), NONE), target.astype(np.float32))
    assert float(objective.distillation(np.full((5, 1), 3.0), target, np.zeros((5, 1)), temperature=1.0)) == 9


def heads():
    tokens = keras.Input((4,), dtype="int32", name="tokens")
    figures = keras.Input((2,), name="figures")
    x = layers.Embedding(9, 6)(tokens)
    tags = layers.Dense(5, name="tags")(x)
    both = layers.Concatenate()([layers.GlobalAveragePooling1D()(x), figures])
    intent = layers.Softmax(name="intent")(layers.Dense(3)(both))
    spam = layers.Flatten(name="spam")(layers.Dense(1, "sigmoid")(both))
    return keras.Model([tokens, figures], [tags, intent, spam, layers.Dense(1, name="price")(both)])


def test_a_signature_names_inputs_and_outputs_with_their_activations():
    signature = signature_of(heads())
    assert [(tensor.name, tensor.shape, tensor.dtype, tensor.ids) for tensor in signature.inputs] == [
        ("tokens", (4,), "int32", 9),
        ("figures", (2,), "float32", None),
    ]
    assert [(tensor.name, tensor.activation) for tensor in signature.outputs] == [
        ("tags", NONE),
        ("intent", SOFTMAX),
        ("spam", SIGMOID),
        ("price", NONE),
    ]


def test_balanced_weights_make_all_classes_count_equally():
    """The reference is scikit-learn."""
    from sklearn.utils.class_weight import compute_class_weight

    targets = {
        "tags": np.array([[0, 1, 2, 3], [4, 4, -1, -1], [0, 0, 0, -1]]),
        "intent": np.array([0, 1, 2]),
        "spam": np.array([1, 1, 0]),
        "price": np.zeros(3, np.float32),
    }
    data = Dataset({"tokens": np.zeros((3, 4)), "figures": np.zeros((3, 2))}, targets)
    actual = objectives_of(heads(), data, DataSettings(class_weights="balanced"))
    labels = targets["tags"][targets["tags"] >= 0]
    assert actual["tags"].weights == pytest.approx(
        compute_class_weight("balanced", classes=np.arange(5), y=labels)
    )
    assert actual["spam"].weights == pytest.approx((1.5, 0.75))
    assert actual["price"].weights is None


@pytest.mark.parametrize(
    ("last", "activation"),
    [
        (lambda x: layers.Activation("linear", dtype="float32")(layers.Dense(4, "softmax")(x)), SOFTMAX),
        (lambda x: layers.Identity()(layers.Dense(4, "sigmoid")(x)), SIGMOID),
        (lambda x: keras.ops.softmax(layers.Dense(4)(x)), SOFTMAX),
        (lambda x: keras.ops.sigmoid(layers.Dense(4)(x)), SIGMOID),
        (lambda x: layers.Softmax(axis=1)(layers.Dense(4)(x)), SOFTMAX),
        (lambda x: layers.Flatten()(layers.Reshape((1, 4))(layers.Dense(4, "softmax")(x))), SOFTMAX),
        (lambda x: layers.Reshape((4, 1))(layers.Dense(4, "softmax")(x)), NONE),
        (lambda x: layers.Activation("relu")(layers.Dense(4, "softmax")(x)), NONE),
        (lambda x: layers.Activation("linear")(layers.Dense(4)(x)), NONE),
    ],
)
def test_an_activation_is_found_behind_layers_that_change_nothing(last, activation):
    inputs = keras.Input((6,))
    (output,) = signature_of(keras.Model(inputs, last(inputs))).outputs
    assert output.activation is activation


def test_an_activation_called_twice_belongs_to_both_outputs():
    inputs, shared = keras.Input((6,)), layers.Activation("linear", name="said")
    model = keras.Model(inputs, [shared(layers.Dense(4, "softmax")(inputs)), shared(layers.Dense(4)(inputs))])
    assert [output.activation for output in signature_of(model).outputs] == [SOFTMAX, NONE]


@pytest.mark.parametrize("activation", [SOFTMAX, SIGMOID, NONE])
def test_unknown_targets_count_only_in_the_distillation_loss(activation):
    """The loss covers only labelled examples, and NaN does not affect gradients."""
    width = 3 if activation is SOFTMAX else 1
    raw, taught = RNG.normal(size=(2, 6, width)).astype("float32")
    shown = {SOFTMAX: softmax, SIGMOID: sigmoid, NONE: lambda figures: figures}[activation]
    output, taught = shown(raw), shown(taught)
    target = RNG.normal(size=4).astype("float32") if activation is NONE else RNG.integers(0, 2, 4)
    known = Dataset({"x": np.zeros((4, 2))}, {"y": target})
    joined = with_unlabelled(known, {"x": np.ones((2, 2))})
    assert joined.inputs["x"][:, 0].tolist() == [0, 0, 0, 0, 1, 1]
    objective = {SOFTMAX: Categorical, SIGMOID: Binary, NONE: Regression}[activation](activation)
    variable = tf.Variable(output)
    with tf.GradientTape() as tape:
        loss = objective.loss(variable, tf.constant(joined.targets["y"]))
    assert float(loss) == pytest.approx(float(objective.loss(output[:4], target)), rel=1e-6)
    gradient = np.asarray(tape.gradient(loss, variable))
    assert np.isfinite(gradient).all()
    assert gradient[:4].any(axis=1).all()
    assert not gradient[4:].any()
    learned = float(objective.distillation(output, joined.targets["y"], taught, 2.0))
    parts = [objective.distillation(*(a[rows] for a in (output, np.zeros(6, int), taught)), 2.0)
             for rows in (slice(0, 4), slice(4, 6))]  # fmt: skip
    assert learned == pytest.approx(np.average([float(part) for part in parts], weights=[4, 2]), rel=1e-5)
