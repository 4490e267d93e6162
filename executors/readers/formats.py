"""The base class of readers of data formats, and the requests passed to them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from executors.data.dataset import ClassNames, Origin
from executors.data.errors import invalid
from executors.data.storage import Array, Rows
from executors.structure.signature import Activation, Output, Shape, Signature, Tensor, usable_input_name
from mistify.config.data.dataset import TextSettings
from mistify.errors import Problem
from mistify.scenarios.space import TaskSpace

Arrays = Mapping[str, Array]

#: Alternative names in a file for a model's only input and only output.
X: Final = "x"
Y: Final = "y"


#: The array in a file with the number of the task that the target of each example answers.
TASK: Final = "task"


@dataclass(frozen=True)
class Answers(Output):
    """Answers to tasks in place of an output: 1, 0, or -1 for unknown [tasks]."""

    tasks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """Properties of the training data that also apply to test data.

    Attributes:
        classes: Names of the classes, if they have names.
        whole: Output -> whether its targets are integers, such as classes, rather than figures.
        figure_columns: Columns with the figures of the only input, in order, if no column is named after it.
    """

    classes: ClassNames = field(default_factory=dict)
    whole: Mapping[str, bool] = field(default_factory=dict)
    figure_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """A request to a reader.

    Attributes:
        signature: The inputs and outputs of the model.
        text: How text is converted to token ids.
        schema: The schema of the training data.
        labelled: Read targets; otherwise they may be missing.
        space: The tasks that the targets answer; None if the targets are those of the outputs.
    """

    signature: Signature
    text: TextSettings | None = None
    schema: Schema = field(default_factory=Schema)
    labelled: bool = True
    space: TaskSpace | None = None

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs for which targets are read; with a space, the answers to its tasks."""
        if not self.labelled:
            return ()
        if self.space is None:
            return self.signature.outputs
        tasks = tuple(self.space.tasks)
        return tuple(
            Answers(output.name, (len(tasks),), Activation.SIGMOID, tasks)
            for output in self.signature.outputs
        )

    def expected_class(self, output: Tensor) -> str:
        """Return a description of the training data's class names for errors."""
        names = self.schema.classes.get(output.name, ())
        if not names:
            return "numbers of classes, because the training data have no class names"
        return f"one of the training data's {', '.join(names[:10])}"

    def wanted(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Return the arrays of a file that the model needs, by their names in the file.

        With a space, a file may contain one answer per example and the number of its task.
        """
        needed: dict[str, Tensor] = {}
        for tensors, alias in ((self.signature.inputs, X), (self.outputs, Y)):
            for tensor in tensors:
                name = first_of(names, tensor.name, alias if len(tensors) == 1 else tensor.name)
                if name is not None:
                    needed[name] = tensor
        if self.space is not None and self.labelled and TASK in names:
            one_each = {name: Tensor(name, ()) for name, each in needed.items() if isinstance(each, Answers)}
            needed |= one_each | {TASK: Tensor(TASK, ())}
        return needed


class Reader(ABC):
    """A reader of one format."""

    @abstractmethod
    def accepts(self, path: Path) -> bool:
        """Check whether a path has this format, by its name and, for a directory, its contents."""

    @abstractmethod
    def read(self, path: Path, request: Request) -> Arrays:
        """Return the arrays, [examples, ...] each, by their names in the file (or `x` and `y`).

        Raises:
            MistifyError: INVALID_DATASET, naming the file, the row, what was found and what was expected.
            OSError: The file cannot be read; `StorageError`: there is no space to store its content.
        """

    @abstractmethod
    def schema(self, path: Path, request: Request) -> Schema:
        """Return the properties of training data that also apply to test data.

        Raises:
            MistifyError: INVALID_DATASET, naming the file, the row, what was found and what was expected.
            OSError: The file cannot be read.
        """

    def origins(self, path: Path, request: Request) -> Mapping[str, Origin]:
        """Return what the values of inputs were made of, without inputs whose values are numbers.

        Raises:
            MistifyError: INVALID_DATASET, naming the file, the row, what was found and what was expected.
            OSError: The file cannot be read.
        """
        return {}

    def left_out(self, path: Path, request: Request) -> str:
        """Describe the number and kinds of files that `read` skips without an error; empty if none.

        Raises:
            MistifyError: INVALID_DATASET, naming the file, what was found and what was expected.
            OSError: The file cannot be read.
        """
        return ""


def fits(shape: Sequence[int], wanted: Shape) -> bool:
    """Check whether an example has a shape in which None is any size."""
    return len(shape) == len(wanted) and all(
        size in (None, length) for size, length in zip(wanted, shape, strict=True)
    )


def append(arrays: Rows, path: Path, name: str, rows: Sequence[tuple[str, Array]]) -> None:
    """Append rows to an array.

    Args:
        arrays: The rows read so far.
        path: The file named in errors.
        name: Name of the array in errors.
        rows: Rows of one shape and type, each with its place in the file.

    Raises:
        MistifyError: INVALID_DATASET, naming the first row with another shape, or a type that loses
            precision.
    """
    like = rows[0][1][None] if arrays.like is None else arrays.like
    for place, row in rows:
        if row.shape != like.shape[1:]:
            actual, expected = f"shape {list(row.shape)}", f"shape {list(like.shape[1:])}"
        elif not np.can_cast(row.dtype, like.dtype):
            actual, expected = f"type {row.dtype}", f"type {like.dtype}"
        else:
            continue
        actual = f"{place}: {name} of {actual}"
        raise invalid(Problem(str(path), actual, f"{expected}, as in earlier rows", "repair the row"))
    arrays.append(np.stack([row for _, row in rows]))


def first_of(names: Sequence[str], wanted: str, alias: str) -> str | None:
    """Return the name of an array in a file, or None if it is missing.

    The array may have the name that an input has in the user's model, such as `input.1`.

    Args:
        names: Names of the arrays in the file.
        wanted: Name of the tensor in the model.
        alias: An alternative name, such as `x`.
    """
    if wanted in names or alias in names:
        return wanted if wanted in names else alias
    return next((name for name in names if usable_input_name(name) == wanted), None)
