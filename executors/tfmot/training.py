"""The training of tf_keras models on a mixture of the targets and the teacher's predictions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from executors.tfmot.translation import in_order
from executors.training.objectives import Objective, objectives_of
from executors.training.setup import TrainingSetup
from executors.training.trainer import cosine

#: Steps at rate zero before the first update, in which Adam learns how large the gradients are.
PRIMING_STEPS: Final = 10


@dataclass(frozen=True)
class TfmotTraining:
    """The settings with which the translation of a network is trained.

    Attributes:
        objectives: What its outputs learn, in their order.
        setup: The training data, and the teacher's predictions for them.
        steps: Training steps, after `PRIMING_STEPS` at rate zero.
        seed: Of the order of the examples.
    """

    objectives: Mapping[str, Objective]
    setup: TrainingSetup
    steps: int
    seed: int

    @classmethod
    def of(cls, model: keras.Model, setup: TrainingSetup, steps: int, seed: int) -> "TfmotTraining":
        """Return the training of a translation of the model.

        Args:
            model: The Keras 3 model.
            setup: The training data, and the teacher's predictions for them.
            steps: Training steps, after `PRIMING_STEPS` at rate zero.
            seed: Of the order of the examples.
        """
        return cls(objectives_of(model, setup.train, setup.settings), setup, steps, seed)


def train(model: Any, training: TfmotTraining, learning_rate: float) -> None:
    """Train a tf_keras model by Adam, at a rate that falls along a cosine.

    Args:
        model: The model, whose weights are changed.
        training: What it learns, and from what.
        learning_rate: The highest rate.

    Raises:
        FloatingPointError: The loss is no longer finite.
    """
    import tf_keras  # noqa: PLC0415 - a second Keras, which only TFMOT needs

    optimizer = tf_keras.optimizers.Adam(learning_rate)
    variables = model.trainable_variables
    params = training.setup.params
    share, heat = params.distillation, params.temperature

    def step(batch: Mapping[str, Mapping[str, tf.Tensor]], rate: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(model(in_order(model, batch["inputs"]), training=True))
            loss = tf.add_n(
                [
                    objective.distilled_loss(
                        output, batch["targets"][name], batch["teacher"].get(name), share, heat
                    )
                    for (name, objective), output in zip(training.objectives.items(), outputs, strict=True)
                ]
            )
        optimizer.learning_rate.assign(rate)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    _run(tf.function(step, autograph=False), training, learning_rate)


def _run(step: Callable[..., tf.Tensor], training: TfmotTraining, learning_rate: float) -> None:
    setup, rng = training.setup, np.random.default_rng(training.seed)
    for rate in np.concatenate([np.zeros(PRIMING_STEPS), learning_rate * cosine(training.steps)]):
        rows = rng.integers(len(setup.train), size=setup.params.batch_size)
        examples = setup.train.subset(rows)
        teacher = {name: array[rows] for name, array in (setup.teacher or {}).items()}
        batch = {"inputs": dict(examples.inputs), "targets": dict(examples.targets), "teacher": teacher}
        loss = step(keras.tree.map_structure(tf.constant, batch), tf.constant(rate, tf.float32))
        if not np.isfinite(float(loss)):
            raise FloatingPointError(
                f"the loss of training by TensorFlow Model Optimization became {float(loss)}"
            )
