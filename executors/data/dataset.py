"""Examples for training and evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from executors.data.errors import invalid
from executors.data.storage import Array, gathered, stacked
from mistify.errors import Problem
from mistify.scenarios.classes import class_numbers
from mistify.scenarios.space import TaskSpace
from mistify.scenarios.task import Task
from mistify.wording import listed

#: An unknown answer.
UNANSWERED: Final = -1

#: What the values of an input were made of: a decoded and resized image, or a text split into tokens.
Origin: TypeAlias = Literal["image", "text"]

#: Output -> names of its classes in the order of their numbers.
ClassNames = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Dataset:
    """Examples and their targets.

    Attributes:
        inputs: Name of the model's input -> [examples, ...], in the model's order; may be integers if the
            model takes floats.
        targets: Name of the model's output -> [examples, ...], in the model's order: classes are int64
            (-1 for an ignored position), figures float32.
        classes: Names of classes, if they have names.
        origins: Input -> what its values were made of; inputs whose values were read as numbers are omitted.
        left_out: Summary of the skipped files, such as "12 .heic in cat"; empty if there are none.
        rows: Indices of the examples among those that were read [examples]; None if all of them are included.
        answers: Answers to the tasks of `space`, in its order: 1 for yes, 0 for no, -1 for unknown [examples,
            tasks]; None if each example only has its targets. The targets are then answers to one task each.
        space: The tasks that the data answer; None without answers.
    """

    inputs: Mapping[str, Array]
    targets: Mapping[str, Array]
    classes: ClassNames = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    left_out: str = ""
    rows: npt.NDArray[np.int64] | None = None
    answers: npt.NDArray[np.int8] | None = None
    space: TaskSpace | None = None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def subset(self, indices: npt.NDArray[np.int64]) -> "Dataset":
        """Return the examples at these indices, copied."""
        return replace(
            self,
            inputs={name: gathered(array, indices) for name, array in self.inputs.items()},
            targets={name: gathered(array, indices) for name, array in self.targets.items()},
            rows=self.row_numbers[indices],
            answers=None if self.answers is None else self.answers[indices],
        )

    def of_task(self, task: Task) -> "Dataset":
        """Return the examples with an answer to a task, which becomes their target; possibly none."""
        column = None if self.space is None else self.space.listed.get(task)
        if column is None or self.answers is None:
            return self.subset(np.empty(0, np.int64))
        answers = self.answers[:, column].astype(np.int64)
        answered = self.subset(np.flatnonzero(answers != UNANSWERED))
        answers = answers[answers != UNANSWERED]
        targets = {name: answers.reshape(target.shape) for name, target in answered.targets.items()}
        return replace(answered, targets=targets)

    def of_classes(self, classes: Sequence[str] | Sequence[int]) -> "Dataset":
        """Return the examples of some classes of the only output, renumbered in the original order.

        Classes without names are named by their original numbers. For an output with a class per position,
        positions with other classes are ignored.

        Args:
            classes: Names of classes, or their numbers.

        Raises:
            InvalidValue: There is no such class.
        """
        ((output, target),) = self.targets.items()
        names = self.classes.get(output, ())
        count = len(names) or int(target.max()) + 1
        named = [each for each in classes if isinstance(each, str)]
        kept = class_numbers(named, names, count) if named else tuple(sorted(map(int, classes)))
        renumbered = _renumbered(target, kept)
        rows = np.flatnonzero((renumbered >= 0).reshape(len(target), -1).any(axis=1))
        return replace(
            self.subset(rows),
            targets={output: renumbered[rows]},
            classes={output: tuple(names[number] if names else str(number) for number in kept)},
        )

    @property
    def row_numbers(self) -> npt.NDArray[np.int64]:
        """Return the index of each example among those that were read, from 0 on [examples]."""
        return np.arange(len(self)) if self.rows is None else self.rows

    def sample(self, count: int) -> "Dataset":
        """Return a copy of `count` examples, always the same ones, or of all if there are fewer."""
        return self.subset(np.sort(np.random.default_rng(0).permutation(len(self))[:count]))


def class_counts(parts: Sequence[Dataset]) -> str:
    """Return the number of examples of each class: "12 cat and 10 dog"; empty if classes have no names.

    Args:
        parts: Parts of the same data. A position with a class counts as an example.
    """
    for output, names in parts[0].classes.items():
        targets = [part.targets[output] for part in parts if part.targets[output].ndim == 1]
        if targets:
            counts = np.bincount(np.concatenate(targets), minlength=len(names))
            return listed([f"{count:,} {name}" for count, name in zip(counts, names, strict=False)])
    return ""


def joined(first: Dataset, second: Dataset) -> Dataset:
    """Return the examples of both data sets.

    Args:
        first: Determines the names and order of inputs and outputs, and the names of classes; its examples
            come first.
        second: Its examples come second.

    Raises:
        MistifyError: INVALID_DATASET if inputs of the second have a different shape.
    """
    for name, array in second.inputs.items():
        shape, expected = array.shape[1:], first.inputs[name].shape[1:]
        if shape != expected:
            fix = "give them all the same size"
            raise invalid(
                Problem(name, f"examples of shape {[*shape]}", f"{[*expected]}, as in the others", fix)
            )
    return replace(
        first,
        inputs={name: stacked(array, second.inputs[name]) for name, array in first.inputs.items()},
        targets={name: stacked(array, second.targets[name]) for name, array in first.targets.items()},
        rows=np.concatenate([first.row_numbers, second.row_numbers]),
        answers=None if first.answers is None else np.concatenate([first.answers, _answers(first, second)]),
    )


def _answers(first: Dataset, second: Dataset) -> npt.NDArray[np.int8]:
    """Return the answers of data that follow others; unknown for data without answers."""
    if second.answers is not None:
        return second.answers
    count = 0 if first.answers is None else first.answers.shape[1]
    return np.full((len(second), count), UNANSWERED, np.int8)


def _renumbered(target: Array, kept: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the indices of classes among the kept ones; -1 for all other classes and ignored ones."""
    places = np.full(max(int(target.max()), *kept) + 2, -1, np.int64)
    places[list(kept)] = np.arange(len(kept))  # the last entry is for ignored classes, -1
    return places[np.maximum(target, -1)]


class HeldOut(NamedTuple):
    """Examples that are never used for training.

    Attributes:
        validation: Examples for all choices.
        test: Examples for the final evaluation, never used for a choice.
    """

    validation: Dataset
    test: Dataset


def split(data: Dataset, share: float, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split the data in two, stratified by class.

    The only example of a class stays in the first part.

    Args:
        data: At least two examples.
        share: Fraction of the examples in the second part, 0 to 1; each part has at least one example.
        seed: Seed for the choice of the examples.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data))
    classes = _classes(data)[order]
    order = order[np.argsort(classes, kind="stable")]  # class after class, each in random order
    _, places, counts = np.unique(np.sort(classes), return_inverse=True, return_counts=True)
    spare = order[counts[places] > 1] if counts.max() > 1 else order
    count = min(max(1, round(share * len(data))), len(data) - 1, len(spare))
    evenly = (np.arange(count) + rng.random()) * len(spare) / count
    held_out = spare[evenly.astype(np.int64)]
    return data.subset(np.setdiff1d(order, held_out)), data.subset(np.sort(held_out))


def _classes(data: Dataset) -> npt.NDArray[np.int64]:
    """Return the class of each example [examples]; 0 for all if no output has one class per example."""
    for target in data.targets.values():
        if target.ndim == 1 and np.issubdtype(target.dtype, np.integer):
            return np.asarray(target, np.int64)
    return np.zeros(len(data), np.int64)
