"""The scope of a task: the parts of the source's network, the data and their settings that it needs."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import keras
import numpy as np

from executors.data import Dataset
from executors.data.errors import invalid
from executors.outputs.objectives import objectives_of
from executors.outputs.pseudo_labels import with_pseudo_labels
from executors.structure.edits.outputs import narrow_outputs
from executors.structure.signature import Output, Signature, signature_of
from executors.training.evaluation import Evaluation
from mistify.config.data.dataset import DataSettings
from mistify.config.task import TaskConfig
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.parsing.validation import InvalidValue
from mistify.scenarios.classes import class_numbers
from mistify.scenarios.task import Task
from mistify.wording import listed
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.worker.description.labels import labels_of

#: Number of trained tasks that are listed for an untrained one.
_NEAREST: Final = 3

#: Maximum number of examples that a network answers of a part of the data that nothing is trained on: of so
#: many, an agreement has a standard error of one percentage point.
MOST_ANSWERED: Final = 2_000


@dataclass(frozen=True)
class TaskScope:
    """Everything that the data teach."""

    @property
    def note(self) -> str:
        """A remark on the measured accuracy, for people; may be empty."""
        return ""

    def network(self, source: keras.Model) -> keras.Model:
        """Return the part of a network that the task needs; the network itself if it needs everything."""
        return source

    def data(self, data: Dataset, part: str) -> Dataset:
        """Return the examples of the task, with targets for it.

        Args:
            part: Name of the part of the data in errors.

        Raises:
            MistifyError: INVALID_DATASET, there are none.
        """
        return data

    def settings(self, settings: DataSettings) -> DataSettings:
        """Return settings for the data of the task."""
        return settings


@dataclass(frozen=True)
class PropertyScope(TaskScope):
    """A task with properties: the examples that have an answer to it."""

    task: Task

    def data(self, data: Dataset, part: str) -> Dataset:
        """Return the examples with an answer, which is their target."""
        answered = data.of_task(self.task)
        if not len(answered):
            expected = f"at least one answer to the task {self.task}"
            raise invalid(Problem(f"dataset.{part}", "no answer", expected, "add some"))
        return answered

    def is_answered(self, *parts: Dataset) -> bool:
        """Check whether each part of the data has an example with an answer."""
        return all(len(part.of_task(self.task)) for part in parts)

    def unanswered(
        self, reference: keras.Model, train: Dataset, test: Dataset, most: int | None = MOST_ANSWERED
    ) -> "UnansweredScope":
        """Return the scope with a network's answers for the parts of the data without answers.

        Args:
            train: Training data, whose tasks are known.
            test: Test data, which may have answers.
            most: Maximum number of examples that the network answers of each part; None for all.
        """
        space, answers = train.space, train.answers
        if space is None or answers is None:
            raise ValueError("the data answer no tasks")
        trained = {task: column for task, column in space.listed.items() if answers[:, column].max() >= 0}
        nearest = [task for task in space.nearest(self.task, len(space.listed)) if task in trained]
        return UnansweredScope(self.task, reference, tuple(nearest[:_NEAREST]), self.is_answered(test), most)


@dataclass(frozen=True)
class UnansweredScope(TaskScope):
    """A task with properties for which parts of the data have no answers; a network's answers replace them.

    Attributes:
        reference: The network whose answers replace missing ones.
        nearest: The trained tasks that share most properties with it.
        tested: Whether the test data have answers.
        most: Maximum number of examples that the network answers of each part; None for all.
    """

    task: Task
    reference: keras.Model
    nearest: tuple[Task, ...]
    tested: bool
    most: int | None = MOST_ANSWERED
    _answered: dict[str, Dataset] = field(default_factory=dict, compare=False)

    def data(self, data: Dataset, part: str) -> Dataset:
        """Return the examples with an answer; where there are none, some with the network's answers.

        The network answers each part once.
        """
        known = data.of_task(self.task)
        if len(known):
            return known
        if part not in self._answered:
            self._answered[part] = self._by_reference(
                data if self.most is None else data.sample(self.most), part
            )
        return self._answered[part]

    @cached_property
    def _evaluation(self) -> Evaluation:
        return Evaluation(self.reference)

    def _by_reference(self, data: Dataset, part: str) -> Dataset:
        outputs = self._evaluation.outputs(data.inputs)
        signature, objectives = signature_of(self.reference), objectives_of(self.reference, data)
        answered = with_pseudo_labels(
            data.inputs, outputs, signature, source=f"dataset.{part}", objectives=objectives
        )
        return replace(data, targets=answered.targets)

    def settings(self, settings: DataSettings) -> DataSettings:
        """Return settings whose metrics need no labels where the test data have none."""
        if self.tested:
            return settings
        metrics = {output: metric.without_labels for output, metric in settings.metrics.items()}
        metric = settings.metric and settings.metric.without_labels
        return settings.model_copy(update={"metric": metric, "metrics": metrics})

    @property
    def note(self) -> str:
        """A remark if the task was not trained or its accuracy is unknown."""
        nearest = "; ".join(map(str, self.nearest))
        untrained = f'never trained: "{self.task}"; the nearest trained tasks are {nearest}'
        unmeasured = (
            "the data have no answers to the task: in place of its accuracy, the agreement with the best "
            "network for it was measured"
        )
        remarks = {untrained: self.task not in self.nearest, unmeasured: not self.tested}
        return "; ".join(remark for remark, applies in remarks.items() if applies)


@dataclass(frozen=True)
class ClassScope(TaskScope):
    """Some classes of the only output of a source: the rows of its last layer, and their examples.

    Attributes:
        output: Name of the output.
        numbers: Numbers of the classes, ascending.
        names: Names of the classes, or their numbers if they have no names.
    """

    output: str
    numbers: tuple[int, ...]
    names: tuple[str, ...]

    def network(self, source: keras.Model) -> keras.Model:
        """Return a network with only these classes; the network itself if it has no others."""
        (output,) = signature_of(source).outputs
        if output.shape[-1] == len(self.numbers):
            return source
        return narrow_outputs(source, self.output, self.numbers)

    def data(self, data: Dataset, part: str) -> Dataset:
        """Return the examples of these classes, with their names."""
        missing = np.setdiff1d(self.numbers, data.targets[self.output])
        if len(missing):
            expected = f"examples of each of the classes {', '.join(self.names)}"
            none = listed([self.names[self.numbers.index(number)] for number in missing.tolist()])
            raise invalid(Problem(f"dataset.{part}", f"none of {none}", expected, "add some"))
        return replace(data.of_classes(self.numbers), classes={self.output: self.names})

    def settings(self, settings: DataSettings) -> DataSettings:
        """Return settings with the weights of these classes; their names come with the data."""
        weights = settings.class_weights
        if isinstance(weights, tuple):
            weights = tuple(weights[number] for number in self.numbers)
        return settings.model_copy(update={"labels": None, "class_weights": weights})


def scope_of(
    task: TaskConfig | None, signature: Signature, settings: DataSettings, train: Dataset
) -> TaskScope:
    """Return the scope of a task, or of everything that the data teach.

    Args:
        settings: May have names of its classes.
        train: Training data, with the space of tasks, or classes that may have names.

    Raises:
        MistifyError: INVALID_CONFIG, there is no such property or class.
    """
    if task is None:
        return TaskScope()
    if task.properties:
        if train.space is None:
            raise MistifyError(ErrorCode.INVALID_CONFIG, f"the data have no answers to the task {task}")
        return PropertyScope(train.space.parse(task.properties))
    (output,) = signature.outputs
    names = class_names(output, settings, train)
    try:
        numbers = class_numbers(task.classes, names, len(names))
    except InvalidValue as error:
        message = f"the model lacks a class of the task {task}"
        raise MistifyError(ErrorCode.INVALID_CONFIG, message, [error.problem("task")]) from error
    return ClassScope(output.name, numbers, tuple(names[number] for number in numbers))


def class_names(output: Output, settings: DataSettings, train: Dataset) -> tuple[str, ...]:
    """Return the names of an output's classes, or their numbers if they have no names."""
    count = output.shape[-1] or 0
    labels = labels_of(settings.labels, {output.name: count}, train.classes, ProblemCollector())
    return labels.get(output.name) or tuple(map(str, range(count)))
