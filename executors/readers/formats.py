"""The base of the readers of data formats, and the requests that they are given."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from executors.data.dataset import ClassNames
from executors.data.errors import invalid
from executors.data.storage import Array, Rows
from executors.structure.signature import Activation, Output, Signature, Tensor
from mistify.config.data.dataset import TextSettings
from mistify.errors import Problem
from mistify.scenarios.space import TaskSpace

Arrays = Mapping[str, Array]

#: What a file may call the one input and the one output of a model.
X: Final = "x"
Y: Final = "y"


#: The array of a file that says which task of a space the target of each example answers.
TASK: Final = "task"


@dataclass(frozen=True)
class Answers(Output):
    """In the place of an output: answers to tasks, 1, 0, or -1 where nobody knows [tasks]."""

    tasks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """Decisions that training data make for test data as well.

    Attributes:
        classes: Names of the classes, where they have names.
        whole: Output -> whether its targets are whole numbers, as classes are, rather than figures.
        figure_columns: Columns with the figures of the one input, in order, where no column is named after
            it.
    """

    classes: ClassNames = field(default_factory=dict)
    whole: Mapping[str, bool] = field(default_factory=dict)
    figure_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """A request to a reader.

    Attributes:
        signature: The inputs and outputs of the model.
        text: How text becomes token ids.
        schema: The schema of the training data.
        labelled: Read targets; otherwise they may be missing.
        space: The tasks that the targets answer; None where they are the only output's own.
    """

    signature: Signature
    text: TextSettings | None = None
    schema: Schema = field(default_factory=Schema)
    labelled: bool = True
    space: TaskSpace | None = None

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs whose targets are read; with a space the answers to its tasks."""
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
        """Return the description, for errors, of the names that the training data have."""
        names = self.schema.classes.get(output.name, ())
        if not names:
            return "numbers of classes, because the training data have no class names"
        return f"one of the training data's {', '.join(names[:10])}"

    def wanted(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Return the arrays of a file that the model needs, by their names there.

        With a space, a file may have one answer for each example, and the task that it answers.
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
    """Reads one format."""

    @abstractmethod
    def accepts(self, path: Path) -> bool:
        """Check whether a file or directory is of this format, by its name and a directory's contents."""

    @abstractmethod
    def read(self, path: Path, request: Request) -> Arrays:
        """Return the arrays, [examples, ...] each, by their names in the file (or `x` and `y`).

        Raises:
            MistifyError: INVALID_DATASET, naming the file, the row, what was found and what was expected.
            OSError: The file cannot be read; `StorageError`, there is no room to keep its content.
        """

    @abstractmethod
    def schema(self, path: Path, request: Request) -> Schema:
        """Return the decisions that training data make for test data.

        Raises:
            MistifyError: As for `read`.
        """

    def left_out(self, path: Path, request: Request) -> str:
        """Return the number of files that `read` skips without an error, and their kinds; empty if none.

        Raises:
            MistifyError: As for `read`.
        """
        return ""


def append(arrays: Rows, path: Path, name: str, rows: Sequence[tuple[str, Array]]) -> None:
    """Append rows of one shape and type to an array; each comes with its place in the file.

    Args:
        arrays: The rows that were read before.
        path: The file named in errors.
        name: Name of the array.
        rows: Rows of one shape, each with its place in the file.

    Raises:
        MistifyError: INVALID_DATASET, naming the first row of another shape, or of a type that loses digits.
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
        raise invalid(Problem(str(path), actual, f"{expected}, as before", "repair the row"))
    arrays.append(np.stack([row for _, row in rows]))


def first_of(names: Sequence[str], wanted: str, alias: str) -> str | None:
    """Return the name under which a file has an array, if it does.

    Args:
        names: Names of the arrays in the file.
        wanted: Name of the tensor in the model.
        alias: A name that stands for it, such as `x`.
    """
    return next((name for name in (wanted, alias) if name in names), None)
