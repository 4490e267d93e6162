"""Losses of plug-ins: those in the documentation, and the refusal of unusable ones."""

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.data import Dataset
from executors.outputs.objectives import Binary, Categorical, Regression, objectives_of
from executors.outputs.plugged_in import OutputLoss, plugged_in_loss
from executors.structure.signature import Activation
from executors.training.loss_check import check_output_loss
from executors.training.setup import TrainingParams, TrainingSetup
from executors.training.trainer import Trainer
from mistify.config.data.dataset import DataSettings
from mistify.parsing.validation import InvalidValue
from tests.support.plug_ins import LOSSES, install_example, installed

layers = keras.layers
RNG = np.random.default_rng(0)

MODULE = """
import tensorflow as tf
from executors.outputs.plugged_in import OutputKind, OutputLoss

class OfFigures(OutputLoss):
    kinds = (OutputKind.FIGURES,)

class Absolute(OfFigures):
    def loss(self, predictions, targets, counts):
        return tf.reduce_sum(counts * tf.abs(predictions - targets)) / tf.reduce_sum(counts)

class Many(OfFigures):
    def loss(self, predictions, targets, counts):
        return counts * tf.abs(predictions - targets)

class Flat(OfFigures):
    def loss(self, predictions, targets, counts):
        return tf.reduce_sum(counts)

class Endless(OfFigures):
    def loss(self, predictions, targets, counts):
        return tf.reduce_sum(tf.math.log(0 * predictions))

class Fails(OfFigures):
    def loss(self, predictions, targets, counts):
        return 1 / 0

class Asks(OfFigures):
    def loss(self, predictions, targets, counts):
        return tf.reduce_sum(predictions) if tf.reduce_sum(targets) > 0 else 0.0
"""
NAMES = {"absolute": "Absolute", "many": "Many", "flat": "Flat", "endless": "Endless", "fails": "Fails"}
NAMES |= {"asks": "Asks", "abstract": "OfFigures", "gone": "Gone"}


@pytest.fixture(autouse=True)
def plug_ins(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install_example(tmp_path / "example", "losses", LOSSES))
    points = {name: f"own_losses:{kind}" for name, kind in NAMES.items()}
    monkeypatch.syspath_prepend(installed(tmp_path / "own", "own_losses", MODULE, points, LOSSES))


def network() -> keras.Model:
    """Return a network that predicts numbers and classes from two inputs."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,), name="x")
    return keras.Model(
        inputs, [layers.Dense(1, name="figure")(inputs), layers.Dense(3, "softmax", name="kind")(inputs)]
    )


def data(count: int = 64) -> Dataset:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, 2)).astype(np.float32)
    noise = rng.exponential(size=(count, 1)).astype(np.float32)
    return Dataset({"x": x}, {"figure": noise + 5, "kind": rng.integers(3, size=count)})


def of_plug_in(objective: Any, name: str) -> Any:
    return replace(objective, plugged_in=plugged_in_loss(name))


@pytest.mark.parametrize("activation", [Activation.SOFTMAX, Activation.NONE])
def test_the_weighted_cross_entropy_of_the_example_agrees_with_keras(activation):
    logits, targets = RNG.normal(size=(20, 3)).astype(np.float32), RNG.integers(3, size=20)
    weights = np.where(targets == 1, 5.0, 1.0)
    entropy = keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True).numpy()
    output = tf.nn.softmax(logits) if activation is Activation.SOFTMAX else logits
    loss = of_plug_in(Categorical(activation), "costly_misses").loss(output, targets)
    assert float(loss) == pytest.approx(np.average(entropy, weights=weights), rel=1e-4)


def test_ignored_and_unknown_targets_do_not_count_and_classes_are_weighted():
    logits, targets = RNG.normal(size=(20, 3)).astype(np.float32), RNG.integers(3, size=20)
    with_others = np.where(np.arange(20) < 15, targets, [-1, -2] * 10)
    objective = of_plug_in(Categorical(Activation.NONE, (1.0, 0.2, 3.0)), "costly_misses")
    entropy = keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True).numpy()
    weights = np.array([1.0, 1.0, 3.0])[targets[:15]]
    expected = np.average(entropy[:15], weights=weights)
    assert float(objective.loss(tf.constant(logits), with_others)) == pytest.approx(expected, rel=1e-4)
    figures = of_plug_in(Regression(Activation.NONE), "absolute")
    loss = figures.loss(tf.constant([[1.0], [2.0], [9.0]]), tf.constant([[3.0], [3.0], [np.nan]]))
    assert float(loss) == pytest.approx(1.5)


def test_the_overlap_in_the_example_follows_the_paper():
    """Boxes have integer coordinates, so that areas can be counted on a grid."""
    corners = RNG.integers(0, 6, size=(2, 30, 2, 2))
    boxes = np.concatenate([corners.min(axis=2), corners.max(axis=2) + 1], axis=-1)
    grid = np.arange(8)

    def covered(box):
        inside = [(grid >= low) & (grid < high) for low, high in zip(box[:2], box[2:], strict=True)]
        return inside[0][:, None] & inside[1]

    expected = []
    for predicted, true in zip(*boxes, strict=True):
        both, either = covered(predicted) & covered(true), covered(predicted) | covered(true)
        rows, columns = np.flatnonzero(either.any(1)), np.flatnonzero(either.any(0))
        around = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
        expected.append(1 - both.sum() / either.sum() + (around - either.sum()) / around)
    predicted, true = boxes.astype(np.float32)
    objective = of_plug_in(Regression(Activation.NONE), "box_overlap")
    assert float(objective.loss(tf.constant(predicted), tf.constant(true))) == pytest.approx(
        np.mean(expected)
    )


def test_a_binary_output_has_labels_in_the_shape_of_its_probabilities():
    seen = []

    class Noted(OutputLoss):
        kinds = ()

        def loss(self, predictions, targets, counts):
            seen.extend([predictions, targets, counts])
            return tf.reduce_sum(predictions)

    objective = Binary(Activation.NONE, plugged_in=Noted())
    objective.loss(tf.constant([[0.0], [2.0], [1.0]]), tf.constant([1, 0, -1]))
    predictions, targets, counts = (tensor.numpy().tolist() for tensor in seen)
    np.testing.assert_allclose(predictions, [[0.5], [0.8807971], [0.7310586]], rtol=1e-5)
    assert (targets, counts) == ([[1.0], [0.0], [0.0]], [[1.0], [1.0], [0.0]])


def test_a_network_is_trained_with_the_loss_of_a_plug_in():
    """For skewed targets, the absolute error is minimal at the median, and the squared error at the mean."""
    params = TrainingParams(batch_size=64, optimizer="adam", learning_rate=0.05)
    values = data().targets["figure"]
    learned = {}
    for losses in ({}, {"figure": "absolute"}):
        inputs = keras.Input((2,), name="x")
        model = keras.Model(inputs, layers.Dense(1, name="figure")(layers.Rescaling(0.0)(inputs)))
        of_figures = Dataset(data().inputs, {"figure": values})
        setup = TrainingSetup(of_figures, of_figures, None, params, DataSettings(losses=losses))
        Trainer(model, setup, 0).train(np.linspace(1, 0.01, 600, dtype=np.float32))
        learned[bool(losses)] = float(model(data().inputs["x"])[0, 0])
    assert learned[False] == pytest.approx(values.mean(), abs=0.08)
    assert learned[True] == pytest.approx(np.median(values), abs=0.08)


def test_a_usable_loss_is_accepted():
    examples, model = data(), network()
    objectives = objectives_of(model, examples)
    for name, loss in (("figure", "absolute"), ("kind", "costly_misses")):
        check_output_loss(name, loss, objectives, model, examples)


@pytest.mark.parametrize(
    ("name", "loss", "reason"),
    [
        ("figrue", "absolute", 'did you mean "figure"'),
        ("kind", "absolute", "expected a loss of classes, which kind has"),
        ("figure", "costly_misses", "expected a loss of figures or vectors"),
        ("figure", "nowhere", "install the plug-in"),
        ("figure", "abstract", "fix the plug-in abstract: .*abstract"),
        ("figure", "gone", "fix the plug-in gone: .*AttributeError"),
        ("figure", "many", r"it has the shape \(8, 1\)"),
        ("figure", "flat", "no gradient"),
        ("figure", "endless", "NaN or infinite"),
        ("figure", "fails", "ZeroDivisionError"),
        ("figure", "asks", "fix the plug-in asks"),
    ],
)
def test_an_unusable_loss_is_refused_with_the_reason(name, loss, reason):
    examples, model = data(), network()
    with pytest.raises(InvalidValue, match=reason):
        check_output_loss(name, loss, objectives_of(model, examples), model, examples)
