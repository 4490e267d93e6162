"""Tasks that are sets of properties, to which examples answer yes or no."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.algorithms.nnfactory.tasks import DrawnTasks, Floats, Indices, ScoredTask, TaskDistribution
from executors.data import Array, Dataset
from executors.outputs.objectives import OutputObjective, objectives_for
from executors.structure.signature import Signature
from mistify.config.data.dataset import DataSettings
from mistify.scenarios.space import TaskSpace

#: Answers of a task: no and yes.
_NO, _YES = 0, 1

#: Share of the examples with the answer no that answer yes to a task with the same values on one axis.
_HARD: Final = 0.5

#: Examples of each answer by which a task is scored.
_SCORED: Final = 50


class AnsweredTasks(TaskDistribution):
    """Tasks that are sets of properties, to each of which an example answers yes, no, or nothing.

    Tasks without an example of each answer are left out: they are not trained.

    Args:
        data: Training data with answers.
        signature: The signature of the source, which has one output.
        extra: Share of the draws that are of extra tasks: those without a name for their set of values.
    """

    def __init__(self, data: Dataset, signature: Signature, settings: DataSettings, extra: float) -> None:
        if data.space is None or data.answers is None:
            raise ValueError("the data have no answers; expected Dataset.answers and Dataset.space")
        self._data_space, self._all_answers = data.space, data.answers
        self._examples = {answer: _Examples.of(data.answers, answer) for answer in (_NO, _YES)}
        self.trained = np.flatnonzero(np.all([own.counts > 0 for own in self._examples.values()], axis=0))
        self.space = data.space.with_tasks(self.trained.tolist())
        self._encoded = np.stack([data.space.encode(task) for task in data.space.listed])
        self._chances = _chances(data.space, self.trained, extra)
        self._siblings = [_siblings(data.space, axis, self.trained) for axis in data.space.axes]
        ((output, self._objective),) = objectives_for(signature, data, settings).items()
        self._shape = data.targets[output].shape[1:]

    @property
    def answers(self) -> npt.NDArray[np.int8]:
        """The answers to the tasks that are trained."""
        answers: npt.NDArray[np.int8] = self._all_answers[:, self.trained]
        return answers

    def draw(self, count: int, rng: np.random.Generator) -> DrawnTasks:
        """Draw tasks with as many examples of a yes as of a no.

        Half of the latter answer yes to a similar task: most are easy to tell otherwise.
        """
        columns = rng.choice(self.trained, count, p=self._chances)
        yes = rng.integers(0, 2, count).astype(bool)
        rows = np.where(
            yes, self._examples[_YES].drawn(columns, rng), self._examples[_NO].drawn(columns, rng)
        )
        similar = self._examples[_YES].drawn(self._similar(columns, rng), rng)
        hard = ~yes & (rng.random(count) < _HARD) & (self._all_answers[similar, columns] == _NO)
        targets = yes.astype(np.int64).reshape(-1, *self._shape)
        return DrawnTasks(np.where(hard, similar, rows), self._encoded[columns], targets)

    def _similar(self, columns: Indices, rng: np.random.Generator) -> Indices:
        """Return for each task another one with the same values of an axis, each axis alike."""
        each = np.stack([siblings.drawn(columns, rng) for siblings in self._siblings])
        return each[rng.integers(0, len(each), len(columns)), np.arange(len(columns))]

    def loss(self, output: tf.Tensor, target: tf.Tensor, task: tf.Tensor) -> tf.Tensor:
        """Return the usual loss of the answers."""
        return self._objective.loss(tf.cast(output, tf.float32), target)

    def scored(self, data: Dataset) -> Iterator[ScoredTask]:
        """Yield each task with as many examples of a yes as of a no; those with names, if there are any."""
        rng = np.random.default_rng(0)
        tasks = list(self._data_space.listed)
        answers = np.empty((0, len(tasks))) if data.answers is None else data.answers
        rows = {
            int(column): [np.flatnonzero(answers[:, column] == answer) for answer in (_NO, _YES)]
            for column in self.trained
        }
        answered = [column for column, each in rows.items() if all(map(len, each))]
        named = [column for column in answered if _is_named(self._data_space, column)]
        for column in named or answered:
            some = [rng.permutation(own)[:_SCORED] for own in rows[column]]
            chosen = data.subset(np.concatenate(some)).of_task(tasks[column])
            yield ScoredTask(str(tasks[column]), self._encoded[column], chosen)

    def score(self, output: Array, task: ScoredTask) -> float:
        """Return the mean of the accuracies on each answer."""
        (targets,) = task.data.targets.values()
        right = _answered(self._objective, output, targets) == targets.ravel()
        return float(np.mean([right[targets.ravel() == answer].mean() for answer in (_NO, _YES)]))


class _Examples(NamedTuple):
    """Numbers by column, such as the rows of the data with a certain answer.

    Attributes:
        flat: The numbers of one column after the other.
        starts: Where each column begins in `flat` [columns].
        counts: How many numbers each column has [columns].
    """

    flat: npt.NDArray[np.int32]
    starts: Indices
    counts: Indices

    @classmethod
    def of(cls, answers: npt.NDArray[np.int8], answer: int) -> "_Examples":
        """Return the rows with an answer, by column."""
        return cls.listed([np.flatnonzero(column == answer) for column in answers.T])

    @classmethod
    def listed(cls, columns: list[Indices]) -> "_Examples":
        """Return the numbers of all columns."""
        counts = np.array([len(column) for column in columns])
        return cls(np.concatenate(columns).astype(np.int32), np.cumsum(counts) - counts, counts)

    def drawn(self, columns: Indices, rng: np.random.Generator) -> Indices:
        """Return one of each column's numbers at random; any number where the column has none."""
        if not self.flat.size:
            return np.zeros(len(columns), np.int64)
        places = self.starts[columns] + (rng.random(len(columns)) * self.counts[columns]).astype(np.int64)
        return self.flat[np.minimum(places, len(self.flat) - 1)].astype(np.int64)


def _is_named(space: TaskSpace, column: int) -> bool:
    """Check whether a task has one property for each axis: a value, or a name for its set of values."""
    return len(list(space.listed)[column].properties) == len(space.axes)


def _chances(space: TaskSpace, trained: Indices, extra: float) -> Floats:
    """Return the chance of each trained task, all extra ones together having a share."""
    named = np.array([_is_named(space, int(column)) for column in trained])
    if named.all() or not named.any():
        return np.full(len(trained), 1 / len(trained))
    return np.asarray(np.where(named, (1 - extra) / named.sum(), extra / (~named).sum()))


def _siblings(space: TaskSpace, axis: str, trained: Indices) -> _Examples:
    """Return for every task the other trained ones that ask for the same values of an axis."""
    listed = list(space.listed)
    alike: dict[frozenset[str], list[int]] = {}
    for column in trained:
        alike.setdefault(listed[column].values[axis], []).append(int(column))
    others = (
        [other for other in alike.get(task.values[axis], []) if other != column]
        for column, task in enumerate(listed)
    )
    return _Examples.listed([np.array(columns, np.int64) for columns in others])


def _answered(objective: OutputObjective, output: Array, targets: Array) -> npt.NDArray[np.bool_]:
    """Return whether a network answers yes [examples]."""
    predicted: npt.NDArray[Any] = objective.predictions(output)
    if predicted.shape[-1:] not in ((), (1,)) and predicted.ndim > targets.ndim:
        return np.asarray(predicted.argmax(axis=-1) == _YES)
    return np.asarray(predicted > 0.5).reshape(len(targets))
