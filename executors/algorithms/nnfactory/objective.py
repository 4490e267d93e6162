"""The two stages' objectives: all answers at once, then one task and limit for each example."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Final

import keras
import numpy as np
import tensorflow as tf

from executors.algorithms.nnfactory.gates import GATES, gate_inputs
from executors.algorithms.nnfactory.semhash import semhash
from executors.algorithms.nnfactory.supernet import LOGITS, Supernet
from executors.algorithms.nnfactory.tasks import TaskDistribution
from executors.data import Array
from executors.training.augmentation import augmenting
from executors.training.evaluation import Tensors, quick_call
from executors.training.objective import Parts, TrainingObjective
from executors.training.setup import TrainingSetup

#: Prefix of the names of inputs among the drawn values.
_INPUT: Final = "input "


class AnswersObjective(TrainingObjective):
    """The answers to all tasks at once, by a network with an output for each.

    Args:
        model: The network; its output has a logit for each task.
        answers: 1, 0, or -1 for unknown [examples, tasks].
        seed: Seed for the changes of the images.
    """

    def __init__(self, model: keras.Model, answers: Array, setup: TrainingSetup, seed: int) -> None:
        self._model = model
        self._answers = answers
        self._setup = setup
        self._augment = augmenting(model, setup.settings.augment)
        self._seed = seed % 2**31

    def arrays(self) -> Mapping[str, Mapping[str, Array]]:
        """Return inputs and answers."""
        return {"inputs": self._setup.train.inputs, "answers": {"all": self._answers}}

    def loss(self, parts: Parts, drawn: Tensors, step: tf.Tensor) -> tf.Tensor:
        """Return the mean cross entropy of the known answers."""
        inputs = self._augment(parts["inputs"], tf.stack([self._seed, step]))
        (logits,) = quick_call(self._model, inputs, training=True).values()
        answers = tf.cast(parts["answers"]["all"], tf.float32)
        known = tf.cast(answers >= 0, tf.float32)
        entropies = tf.nn.sigmoid_cross_entropy_with_logits(tf.maximum(answers, 0.0), logits)
        return tf.reduce_sum(known * entropies) / tf.maximum(tf.reduce_sum(known), 1.0)


@dataclass(frozen=True)
class Curriculum:
    """Limits that decrease during training.

    Attributes:
        least: The lowest limit.
        steps: Steps after which it is reached; the first limits are all 1.
    """

    least: float
    steps: int

    def limits(self, shares: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        """Return limits, uniform on a logarithmic scale between the lowest one so far and 1.

        Args:
            shares: Uniform random numbers between 0 and 1 [batch].
            step: Number of the step.
        """
        done = tf.minimum(1.0, tf.cast(step, tf.float32) / max(self.steps, 1))
        return tf.exp(shares * done * log(self.least))


class GatesObjective(TrainingObjective):
    """Tasks within limits, whose gates an assembler sets: a task and a limit for each example (eq. 6).

    Args:
        supernet: Network and assembler, which learn together.
        tasks: The tasks, with examples of the training data.
        weight: Weight of the squared excess over the limit.
        noise: Whether gates' logits get normal noise.
        seed: Seed for the noise, and for the changes of the images.
    """

    def __init__(
        self,
        supernet: Supernet,
        tasks: TaskDistribution,
        setup: TrainingSetup,
        curriculum: Curriculum,
        *,
        weight: float,
        noise: bool,
        seed: int,
    ) -> None:
        self._supernet = supernet
        self._tasks = tasks
        self._setup = setup
        self._curriculum = curriculum
        self._weight = weight
        self._noise = noise
        self._augment = augmenting(supernet.gated, setup.settings.augment)
        self._seed = seed % 2**31

    def arrays(self) -> Mapping[str, Mapping[str, Array]]:
        """Return nothing: examples are drawn for tasks."""
        return {}

    def draws(self, steps: int, rng: np.random.Generator) -> Mapping[str, Array]:
        """Return tasks with examples and right answers, and for each a limit and a kind of gates."""
        batch = self._setup.params.batch_size
        drawn = self._tasks.draw(steps * batch, rng)
        values = {f"{_INPUT}{name}": array[drawn.rows] for name, array in self._setup.train.inputs.items()}
        values |= {"task": drawn.tasks, "target": drawn.targets}
        values["limit"] = rng.random(steps * batch, np.float32)
        values["discrete"] = rng.random(steps * batch) < 1 / 2
        return {name: array.reshape(steps, batch, *array.shape[1:]) for name, array in values.items()}

    def loss(self, parts: Parts, drawn: Tensors, step: tf.Tensor) -> tf.Tensor:
        """Return the loss of the tasks, and that of shares of open units beyond their limits."""
        limits = self._curriculum.limits(drawn["limit"], step)
        request = {"task": drawn["task"], "limit": limits[:, None]}
        values = quick_call(self._supernet.assembler, request, training=True)
        logits = values.pop(LOGITS)
        seed = tf.stack([self._seed, step])
        if self._noise:
            logits += tf.random.stateless_normal(tf.shape(logits), seed)
        gates = semhash(logits, drawn["discrete"])
        units = gate_inputs(self._supernet.groups, {GATES: gates, **values})
        inputs = {name.removeprefix(_INPUT): rows for name, rows in drawn.items() if name.startswith(_INPUT)}
        inputs = self._augment(inputs, seed)
        (output,) = quick_call(self._supernet.gated, {**inputs, **units}, training=True).values()
        excess = tf.nn.relu(tf.reduce_mean(gates, axis=1) - limits)
        loss = self._tasks.loss(output, drawn["target"], drawn["task"])
        return loss + self._weight * tf.reduce_mean(tf.square(excess))
