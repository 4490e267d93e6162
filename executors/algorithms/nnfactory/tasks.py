"""The tasks that a supernet is trained for: drawn at random, with examples, and scored (NN-Factory 3.4)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.data import Array, Dataset
from mistify.scenarios.space import TaskSpace

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class DrawnTasks(NamedTuple):
    """Tasks that were drawn, each with an example.

    Attributes:
        rows: Index of each example in the training data [count].
        tasks: Encoded tasks [count, size].
        targets: Right answers [count, ...].
    """

    rows: Indices
    tasks: Floats
    targets: Array


class ScoredTask(NamedTuple):
    """A task and the examples that it is scored by."""

    name: str
    encoded: Floats
    data: Dataset


class TaskDistribution(ABC):
    """The tasks of some data.

    Attributes:
        space: The properties of tasks, and the tasks that are trained.
        classes: Names of a classifier's classes, in order, where tasks are some of them; none for others.
    """

    space: TaskSpace
    classes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def answers(self) -> npt.NDArray[np.int8]:
        """The answers to all trained tasks: 1, 0, or -1 where nobody knows [examples, trained].

        There are none where a network knows all tasks at once already.
        """

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> DrawnTasks:
        """Draw tasks, each with an example of the training data."""

    @abstractmethod
    def loss(self, output: tf.Tensor, target: tf.Tensor, task: tf.Tensor) -> tf.Tensor:
        """Return the mean loss of a batch whose examples each have a task of their own.

        Args:
            output: The network's output [batch, ...].
            target: Right answers [batch, ...].
            task: Encoded tasks [batch, size].
        """

    @abstractmethod
    def scored(self, data: Dataset) -> Iterator[ScoredTask]:
        """Yield the tasks whose quality is measured, each with its examples for scoring.

        Args:
            data: Validation data.
        """

    @abstractmethod
    def score(self, output: Array, task: ScoredTask) -> float:
        """Return the balanced accuracy of outputs for the examples of a task."""
