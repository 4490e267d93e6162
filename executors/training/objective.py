"""The quantity that a training step minimises, with its data and the weights that it changes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from executors.data import Array
from executors.outputs.objectives import objectives_of
from executors.training.augmentation import augmenting, flipped
from executors.training.evaluation import Tensors, quick_call
from executors.training.setup import TrainingSetup

#: Part of a step's data -> tensors by name.
Parts = Mapping[str, Tensors]


class TrainingObjective(ABC):
    """The data of a training step, its loss, and the weights that it changes; traced once for all steps.

    This is the objective of a whole step. `executors.outputs.objectives.OutputObjective` is the loss of one
    output of a network.
    """

    @abstractmethod
    def arrays(self) -> Mapping[str, Mapping[str, Array]]:
        """Return the arrays [examples, ...] from which each step takes rows: part -> name -> array."""

    def draws(self, steps: int, rng: np.random.Generator) -> Mapping[str, Array]:
        """Return random values for each step, by name: arrays [steps, ...]; none by default."""
        return {}

    @abstractmethod
    def loss(self, parts: Parts, drawn: Tensors, step: tf.Tensor) -> tf.Tensor:
        """Return the loss of a step.

        Args:
            parts: The rows of the arrays for this step.
            drawn: Random values for this step.
            step: Number of the step.
        """

    def used(self, drawn: Tensors) -> Sequence[tf.Tensor] | None:
        """Return which weights a step uses, in the order of the network's trainable ones; None for all.

        Unused weights do not change, neither by momentum nor by weight decay.

        Args:
            drawn: Random values for this step.

        Returns:
            A boolean [] for each weight.
        """
        return None


class SupervisedObjective(TrainingObjective):
    """The sum of the losses of the outputs, with distillation from a teacher if there is one.

    Args:
        model: The network to train.
        seed: Seed for image augmentation.
    """

    def __init__(self, model: keras.Model, setup: TrainingSetup, seed: int) -> None:
        self._model = model
        self._setup = setup
        self._objectives = objectives_of(model, setup.train, setup.settings)
        self._augment = augmenting(model, setup.settings.augment)
        self._seed = seed % 2**31

    def arrays(self) -> Mapping[str, Mapping[str, Array]]:
        """Return inputs, targets, and the teacher's predictions for images and their mirror images."""
        data, teacher, mirrored = self._setup.train, self._setup.teacher, self._setup.mirrored
        return {
            "inputs": data.inputs,
            "targets": data.targets,
            "teacher": teacher or {},
            "mirrored": mirrored or {},
        }

    def loss(self, parts: Parts, drawn: Tensors, step: tf.Tensor) -> tf.Tensor:
        """Return the loss of all outputs together."""
        seed = tf.stack([self._seed, 4 * step])
        changed = self._augment(parts["inputs"], seed)
        outputs = self._outputs(changed, drawn)
        params, taught = (
            self._setup.params,
            _kept_predictions(parts, seed) or self._model_predictions(changed),
        )
        losses = [
            objective.distilled_loss(
                outputs[name],
                parts["targets"][name],
                taught.get(name),
                params.distillation,
                params.temperature,
            )
            for name, objective in self._objectives.items()
        ]
        return tf.add_n([*losses, *self._model.losses])

    def _outputs(self, inputs: Tensors, drawn: Tensors) -> Tensors:
        """Return the outputs of the trained network, in training mode, by name."""
        return quick_call(self._model, inputs, training=True)

    def _model_predictions(self, inputs: Tensors) -> Tensors:
        """Return the predictions of the teacher model, if any, for the inputs of a step."""
        teacher_model = self._setup.teacher_model
        if teacher_model is None:
            return {}
        outputs = quick_call(teacher_model, inputs, training=False)
        objectives = objectives_of(teacher_model, self._setup.train, self._setup.settings)
        return {name: tf.stop_gradient(of.predicted(outputs[name])) for name, of in objectives.items()}


def _kept_predictions(parts: Parts, seed: tf.Tensor) -> Tensors:
    """Return the teacher's stored predictions for the images of a step, some flipped; may be empty."""
    taught, mirrored = parts["teacher"], parts["mirrored"]
    if not mirrored:
        return taught
    flips = flipped(tf.shape(next(iter(taught.values())))[0], seed)

    def chosen(name: str) -> tf.Tensor:
        along_examples = tf.reshape(flips, [-1] + [1] * (len(taught[name].shape) - 1))
        return tf.where(along_examples, mirrored[name], taught[name])

    return {name: chosen(name) for name in taught}
