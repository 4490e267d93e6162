"""Losses of plug-ins on the device, compared with TensorFlow."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from executors.data import Dataset
from executors.outputs.objectives import objectives_of
from executors.outputs.plugged_in import plugged_in_loss
from mistify.config.data.dataset import DataSettings
from mistify.config.package.tuning import TuningConfig
from mistify_server.worker.packaging.conversion.trainable import convert_trainable
from tests.support.plug_ins import LOSSES, install_example, installed

layers = keras.layers
BATCH, RATE = 8, 0.5

#: A loss with the log-gamma function, which LiteRT lacks.
ODD = """
import tensorflow as tf
from executors.outputs.plugged_in import OutputKind, OutputLoss

class Odd(OutputLoss):
    kinds = (OutputKind.FIGURES,)
    def loss(self, predictions, targets, counts):
        return tf.reduce_mean(counts * tf.math.lgamma(1.5 + tf.square(predictions - targets)))
"""


@pytest.fixture(autouse=True)
def plug_ins(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install_example(tmp_path / "example", "losses", LOSSES))
    monkeypatch.syspath_prepend(installed(tmp_path / "odd", "odd", ODD, {"odd": "odd:Odd"}, LOSSES))


def detector():
    """Return a network that predicts a class and a box from numbers instead of an image."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), name="x")
    x = layers.Dense(8, "tanh", name="hidden")(inputs)
    return keras.Model(inputs, [layers.Dense(3, "softmax", name="kind")(x), layers.Dense(4, name="box")(x)])


def examples():
    rng = np.random.default_rng(0)
    corners = rng.uniform(size=(BATCH, 2, 2))
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1).astype(np.float32)
    x = rng.normal(size=(BATCH, 6)).astype(np.float32)
    return Dataset({"x": x}, {"kind": rng.integers(3, size=BATCH), "box": boxes})


def converted(losses):
    model, data = detector(), examples()
    objectives = objectives_of(model, data, DataSettings(losses=losses))
    tuning = TuningConfig(trainable="network", optimizer="sgd", batch_size=BATCH)
    return convert_trainable(model, objectives, tuning, data.inputs)


@pytest.mark.slow
def test_a_training_step_on_the_device_agrees_with_tensorflow():
    losses = {"kind": "costly_misses", "box": "box_overlap"}
    made, model, data = converted(losses), detector(), examples()
    with tf.GradientTape() as tape:
        kind, box = model(data.inputs["x"])
        loss = plugged_in_loss("costly_misses").loss(kind, data.targets["kind"], tf.ones(BATCH))
        loss += plugged_in_loss("box_overlap").loss(box, data.targets["box"], tf.ones((BATCH, 4)))
    gradients = tape.gradient(loss, model.trainable_variables)
    expected = {
        variable.path: (variable.numpy() - RATE * gradient.numpy())
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True)
    }

    assert made.train is not None, made.note
    device = Interpreter(model_content=made.train, num_threads=1)
    targets = {"target_kind": data.targets["kind"].astype(np.int32), "target_box": data.targets["box"]}
    no_teacher = {"teacher_kind": np.full((BATCH, 3), 1 / 3), "teacher_box": np.zeros((BATCH, 4))}
    scalars = {"kd_weight": np.float32(0), "learning_rate": np.float32(RATE)}
    lesson = {name: np.float32(array) for name, array in no_teacher.items()}
    step = device.get_signature_runner("train")(**data.inputs, **targets, **lesson, **scalars)
    assert float(step["loss"]) == pytest.approx(float(loss), rel=1e-5)
    weights = device.get_signature_runner("weights")()
    assert len(made.training.weights) == len(expected)
    for weight in made.training.weights:
        np.testing.assert_allclose(weights[weight.tensor], expected[weight.name], atol=1e-5)


@pytest.mark.slow
def test_a_package_with_a_loss_that_cannot_be_converted_states_the_reason():
    made = converted({"box": "odd"})
    assert (made.train, made.training) == (None, None)
    assert made.note.startswith("cannot be trained on a device: ")
    assert "Lgamma" in made.note or "lgamma" in made.note
    assert len(made.serve) > 1000
