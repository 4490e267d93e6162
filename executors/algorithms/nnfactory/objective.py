"""The two stages' objectives: all answers at once, then one task and limit for each example."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Final

import keras
import numpy as np
import tensorflow as tf

from executors.algorithms.nnfactory.answers import ANSWERS
from executors.algorithms.nnfactory.gates import GATES, SCALES, gate_inputs
from executors.algorithms.nnfactory.semhash import pruned, semhash
from executors.algorithms.nnfactory.supernet import LOGITS, Supernet
from executors.algorithms.nnfactory.tasks import Indices, TaskDistribution
from executors.data import Array
from executors.training.augmentation import augmenting
from executors.training.evaluation import Tensors, quick_call
from executors.training.objective import Parts, TrainingObjective
from executors.training.setup import TrainingSetup

#: Prefix of the names of inputs among the drawn values.
_INPUT: Final = "input "


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
            step: Number of training steps so far, [].
        """
        done = tf.minimum(1.0, tf.cast(step, tf.float32) / max(self.steps, 1))
        return tf.exp(shares * done * log(self.least))


class TaskObjective(TrainingObjective):
    """A task for each example, and an example for each task.

    Args:
        supernet: Network and assembler, which learn together.
        tasks: The tasks, with examples of the training data.
        seed: Seed for the changes of the images.
    """

    def __init__(self, supernet: Supernet, tasks: TaskDistribution, setup: TrainingSetup, seed: int) -> None:
        self._supernet = supernet
        self._tasks = tasks
        self._setup = setup
        self._augment = augmenting(supernet.gated, setup.settings.augment)
        self._seed = seed % 2**31

    def arrays(self) -> Mapping[str, Mapping[str, Array]]:
        """Return nothing: examples are drawn for tasks."""
        return {}

    def draws(self, steps: int, rng: np.random.Generator) -> Mapping[str, Array]:
        """Return tasks with examples and right answers."""
        batch = self._setup.params.batch_size
        drawn = self._tasks.draw(steps * batch, rng)
        values = {f"{_INPUT}{name}": array[drawn.rows] for name, array in self._setup.train.inputs.items()}
        values |= {"task": drawn.tasks, "target": drawn.targets, **self._drawn_for(drawn.rows, rng)}
        return {name: array.reshape(steps, batch, *array.shape[1:]) for name, array in values.items()}

    @abstractmethod
    def _drawn_for(self, rows: Indices, rng: np.random.Generator) -> Mapping[str, Array]:
        """Return further values for each example [examples, ...]."""

    def _inputs(self, drawn: Tensors, step: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the inputs of a step, changed at random."""
        inputs = {name.removeprefix(_INPUT): rows for name, rows in drawn.items() if name.startswith(_INPUT)}
        return self._augment(inputs, self._seed_at(step))

    def _assembled(self, drawn: Tensors, limits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return what the assembler sets for the tasks of a step, by name."""
        request = {"task": drawn["task"], "limit": limits[:, None]}
        return quick_call(self._supernet.assembler, request, training=True)

    def _seed_at(self, step: tf.Tensor) -> tf.Tensor:
        return tf.stack([self._seed, step])


class AnswersObjective(TaskObjective):
    """The loss of answering all tasks at once, and one of them alone, by a network with all gates open.

    Scales and shifts select the one task, so that they, and the encoding of tasks, are learned before gates.
    With gates alone, only all tasks at once are learned.

    Args:
        supernet: Network and assembler.
        model: The network with an output for all tasks (`executors.algorithms.nnfactory.answers`).
        tasks: The tasks, with examples of the training data.
        seed: Seed for the changes of the images.
    """

    def __init__(
        self, supernet: Supernet, model: keras.Model, tasks: TaskDistribution, setup: TrainingSetup, seed: int
    ) -> None:
        super().__init__(supernet, tasks, setup, seed)
        self._model = model

    def loss(self, parts: Parts, drawn: Tensors, step: tf.Tensor) -> tf.Tensor:
        """Return the mean cross entropy of the answers that are known, and the loss of the tasks."""
        values = self._assembled(drawn, tf.ones_like(drawn["task"][:, 0]))
        values[GATES] = tf.ones_like(values.pop(LOGITS))
        units = gate_inputs(self._supernet.groups, values)
        outputs = quick_call(self._model, {**self._inputs(drawn, step), **units}, training=True)
        loss = mean_known_entropy(outputs.pop(ANSWERS), drawn["answers"])
        if SCALES not in values:
            return loss
        (output,) = outputs.values()
        return loss + self._tasks.loss(output, drawn["target"], drawn["task"])

    def _drawn_for(self, rows: Indices, rng: np.random.Generator) -> Mapping[str, Array]:
        return {"answers": self._tasks.answers[rows]}


def mean_known_entropy(logits: tf.Tensor, answers: tf.Tensor) -> tf.Tensor:
    """Return the mean cross entropy of answers, without those of -1, which nobody knows."""
    known = tf.cast(answers >= 0, tf.float32)
    answers = tf.cast(tf.maximum(answers, 0), tf.float32)
    entropies = tf.nn.sigmoid_cross_entropy_with_logits(answers, logits)
    return tf.reduce_sum(known * entropies) / tf.maximum(tf.reduce_sum(known), 1.0)


class GatesObjective(TaskObjective):
    """Tasks within limits, whose gates an assembler sets: a task and a limit for each example (eq. 6).

    Args:
        supernet: Network and assembler.
        tasks: The tasks, with examples of the training data.
        curriculum: The limits by step.
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
        super().__init__(supernet, tasks, setup, seed)
        self._curriculum = curriculum
        self._weight = weight
        self._noise = noise

    def loss(self, parts: Parts, drawn: Tensors, step: tf.Tensor) -> tf.Tensor:
        """Return the loss of the tasks, and that of shares of open units beyond their limits."""
        limits = self._curriculum.limits(drawn["limit"], step)
        values = self._assembled(drawn, limits)
        logits = values.pop(LOGITS)
        if self._noise:
            logits += tf.random.stateless_normal(tf.shape(logits), self._seed_at(step))
        gates = semhash(logits, drawn["discrete"])
        values[GATES] = pruned(gates, logits, limits)
        inputs = {**self._inputs(drawn, step), **gate_inputs(self._supernet.groups, values)}
        (output,) = quick_call(self._supernet.gated, inputs, training=True).values()
        excess = tf.nn.relu(tf.reduce_mean(gates, axis=1) - limits)
        loss = self._tasks.loss(output, drawn["target"], drawn["task"])
        return loss + self._weight * tf.reduce_mean(tf.square(excess))

    def _drawn_for(self, rows: Indices, rng: np.random.Generator) -> Mapping[str, Array]:
        """Return for each example a limit, on a scale from 0 to 1, and whether its gates are discrete."""
        return {"limit": rng.random(len(rows), np.float32), "discrete": rng.random(len(rows)) < 1 / 2}
