"""Tasks that are some of a classifier's classes, which a network tells apart."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from pydantic import ValidationError

from executors.algorithms.nnfactory.tasks import DrawnTasks, Floats, Indices, ScoredTask, TaskDistribution
from executors.data import Array, Dataset
from executors.outputs.objectives import SMALLEST, Categorical, objectives_for
from executors.structure.signature import Signature
from mistify.config.data.dataset import DataSettings
from mistify.scenarios.space import TaskSpace

#: The axis of the classes, and the name of all of them.
_AXIS: Final = "classes"
_ALL: Final = "all classes"

#: The most classes of a task that is drawn.
_MOST: Final = 10

#: Tasks by which quality is measured, and the examples of each.
_SCORED_TASKS: Final = 24
_SCORED: Final = 100


class ClassTasks(TaskDistribution):
    """Sets of classes, each with examples of its classes.

    Args:
        data: Training data with one class for each example.
        signature: The signature of the source, which has one output.
        trained: The sets of class numbers that are drawn, so that others remain unseen; by default all sets
            of two to ten classes, each size equally often.
    """

    def __init__(
        self,
        data: Dataset,
        signature: Signature,
        settings: DataSettings,
        trained: Sequence[Collection[int]] | None = None,
    ) -> None:
        ((output, objective),) = objectives_for(signature, data, settings).items()
        if not isinstance(objective, Categorical) or data.targets[output].ndim != 1:
            raise ValueError(f"{output} has no single class for each example; expected a classifier")
        self._objective = objective
        self._output = output
        self._targets = data.targets[output]
        self._count = int(signature.outputs[0].shape[-1] or 0)
        self._trained = None if trained is None else self._encoded(trained)
        drawn = np.arange(self._count) if trained is None else sorted({*chain(*trained)})
        self._rows = np.flatnonzero(np.isin(self._targets, drawn))
        self.classes = data.classes.get(output) or tuple(map(str, range(self._count)))
        self.space = _space(self.classes)

    @property
    def answers(self) -> npt.NDArray[np.int8]:
        """No answers: the source tells all classes apart."""
        return np.empty((len(self._targets), 0), np.int8)

    def draw(self, count: int, rng: np.random.Generator) -> DrawnTasks:
        """Draw examples, and for each a set of classes that has its own."""
        rows = rng.choice(self._rows, count)
        own = self._targets[rows]
        sets = self._any_sets(own, rng) if self._trained is None else _sets_among(self._trained, own, rng)
        return DrawnTasks(rows, sets, own)

    def _any_sets(self, own: Indices, rng: np.random.Generator) -> Floats:
        """Return a random set of two to ten classes for each class, which is in it."""
        order = rng.random((len(own), self._count))
        order[np.arange(len(own)), own] = -1.0
        ranks = order.argsort(axis=1).argsort(axis=1)
        sizes = rng.integers(2, min(self._count, _MOST) + 1, len(own))
        return (ranks < sizes[:, None]).astype(np.float32)

    def _encoded(self, sets: Sequence[Collection[int]]) -> Floats:
        """Return sets of classes as a 0 or 1 for each class [sets, classes]."""
        return np.array([np.isin(np.arange(self._count), list(each)) for each in sets], np.float32)

    def loss(self, output: tf.Tensor, target: tf.Tensor, task: tf.Tensor) -> tf.Tensor:
        """Return the mean cross entropy among the classes of each task."""
        probabilities = self._objective.predicted(tf.cast(output, tf.float32))
        right = tf.gather(probabilities, target, batch_dims=1)
        of_task = tf.reduce_sum(task * probabilities, axis=1)
        return tf.reduce_mean(tf.math.log(of_task + SMALLEST) - tf.math.log(right + SMALLEST))

    def scored(self, data: Dataset) -> Iterator[ScoredTask]:
        """Yield random tasks with examples of their classes; none of which the data have no example."""
        rng = np.random.default_rng(0)
        targets = data.targets[self._output]
        there = np.unique(targets[targets >= 0])
        scored = set[tuple[int, ...]]()
        for _ in range(_SCORED_TASKS):
            classes = self._scored_classes(there, rng)
            if not len(classes) or (drawn := tuple(classes.tolist())) in scored:
                continue
            scored.add(drawn)
            values = [self.space.axes[_AXIS][number] for number in classes]
            rows = rng.permutation(np.flatnonzero(np.isin(targets, classes)))[:_SCORED]
            task = self.space.parse(values)
            yield ScoredTask(str(task), self.space.encode(task), data.subset(np.sort(rows)))

    def _scored_classes(self, there: Indices, rng: np.random.Generator) -> Indices:
        """Return the ascending classes of a random task, all of which the data have; none without one."""
        if self._trained is None:
            size = rng.integers(2, min(len(there), _MOST) + 1)
            return np.sort(rng.choice(there, size, replace=False))
        possible = np.delete(self._trained, there, axis=1).sum(axis=1) == 0
        chosen = self._trained[possible]
        return np.flatnonzero(rng.choice(chosen)) if len(chosen) else np.empty(0, np.int64)

    def score(self, output: Array, task: ScoredTask) -> float:
        """Return the mean of the accuracies on each class, among the classes of the task."""
        predicted = np.where(task.encoded > 0, self._objective.predictions(output), -1.0).argmax(axis=1)
        targets = task.data.targets[self._output]
        right = predicted == targets
        return float(np.mean([right[targets == one].mean() for one in np.unique(targets)]))


def _sets_among(sets: Floats, own: Indices, rng: np.random.Generator) -> Floats:
    """Return for each class one of the sets that it is in, each as likely.

    Args:
        sets: The encoded sets [sets, classes].
        own: Classes, each of which is in a set [count].
    """
    chosen: Floats = sets[(sets[:, own].T * (1 - rng.random((len(own), len(sets))))).argmax(axis=1)]
    return chosen


def _space(names: tuple[str, ...]) -> TaskSpace:
    """Return the space of all sets of classes, by their numbers where their names cannot be properties."""
    with suppress(ValidationError):
        return _of_words(names)
    return _of_words([str(number) for number in range(len(names))])


def _of_words(words: Sequence[str]) -> TaskSpace:
    described = {"properties": {_AXIS: words}, "names": {_ALL: words}, "tasks": {_ALL: [_ALL]}}
    return TaskSpace.model_validate(described)
