"""Training with a custom objective, which may use only part of the weights in a step."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.training.objective import TrainingObjective
from executors.training.trainer import Trainer, constant


def columns():
    """Return three columns of weights, which a loss can use separately."""
    inputs = keras.Input((8,), name="x")
    outputs = [keras.layers.Dense(4, use_bias=False, name=f"column-{n}")(inputs) for n in range(3)]
    model = keras.Model(inputs, outputs)
    rng = np.random.default_rng(3)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    return model


class ColumnObjective(TrainingObjective):
    """The squared distance between the output of one of two columns and its target."""

    def __init__(self, model, data):
        self._model, self._data, self.drawn = model, data, []

    def arrays(self):
        return {"features": self._data}

    def draws(self, steps, rng):
        self.drawn.append(rng.choice([0, 2], steps).astype(np.int32))
        return {"column": self.drawn[-1]}

    def loss(self, parts, drawn, step):
        outputs = tf.stack(self._model(parts["features"]["x"], training=True))
        return tf.reduce_mean(tf.square(outputs[drawn["column"]] - parts["features"]["y"]))

    def used(self, drawn):
        return [drawn["column"] == number for number in range(3)]


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    return {name: rng.normal(size=(32, size)).astype(np.float32) for name, size in (("x", 8), ("y", 4))}


def trained(training_setup, data, optimizer):
    """Train twenty steps on all data; return the weights before and after, the trainer, and used columns."""
    model = columns()
    before = model.get_weights()
    params = {"optimizer": optimizer, "learning_rate": 0.05, "batch_size": 32}
    setup = dataclasses.replace(
        training_setup,
        params=training_setup.params.model_copy(update=params),
        train=training_setup.train.subset(np.arange(32)),
    )
    objective = ColumnObjective(model, data)
    trainer = Trainer(model, setup, 0, objective=objective)
    trainer.train(constant(20))
    return before, model.get_weights(), trainer, objective.drawn[-1]


def test_a_step_of_gradient_descent_changes_only_the_weights_it_uses(training_setup, data):
    before, after, trainer, drawn = trained(training_setup, data, "sgd")
    assert set(drawn) == {0, 2}
    expected, momentum = [weights.copy() for weights in before], [np.zeros_like(w) for w in before]
    for column in drawn:  # Nesterov's momentum, with decoupled weight decay
        weights = expected[column]
        gradient = 2 * data["x"].T @ (data["x"] @ weights - data["y"]) / data["y"].size
        momentum[column] = 0.9 * momentum[column] - 0.05 * gradient
        expected[column] = weights * (1 - 5e-4 * 0.05) + 0.9 * momentum[column] - 0.05 * gradient
    for actual, wanted in zip(after, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)
    for actual, wanted in zip(trainer.optimizer_state().arrays["momentums"].values(), momentum, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_unused_weights_are_not_changed(training_setup, data, optimizer):
    before, after, trainer, _ = trained(training_setup, data, optimizer)
    np.testing.assert_array_equal(after[1], before[1])
    assert not np.allclose(after[0], before[0])
    for moments in trainer.optimizer_state().arrays.values():
        _, never, _ = moments.values()
        assert not never.any()
