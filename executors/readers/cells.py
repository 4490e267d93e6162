"""Conversion of one or several table cells to a row of an array."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from executors.data.storage import Array
from executors.outputs.objectives import IGNORED
from executors.readers.formats import Request, Schema, X, fits
from executors.structure.signature import Activation, Input, Output
from mistify.tokenizer import PADDING, Tokenizer
from mistify.wording import counted, listed

#: The class name that marks an ignored position.
NO_CLASS: Final = str(IGNORED)


class CellError(ValueError):
    """A cell that cannot be used: its value, the expected value, the fix, and the column."""

    def __init__(self, actual: str, expected: str, fix: str = "repair the row", column: str = "") -> None:
        super().__init__(actual)
        self.value = actual
        self.expected = expected
        self.fix = fix
        self.column = column


@dataclass
class Cells(ABC):
    """A converter of the cells of some columns to a row of an array.

    Attributes:
        columns: One or more columns; several columns are the figures of one input.
    """

    columns: tuple[str, ...]

    @abstractmethod
    def __call__(self, cells: Mapping[str, object]) -> Array:
        """Return a row of the array, given the cells of a row of the file."""

    def figures(self, cell: object) -> Array:
        """Return the numbers in a cell, shaped as they are nested."""
        values: object = cell
        if isinstance(cell, str):
            parts = cell.split()
            values = parts[0] if len(parts) == 1 else parts
        try:
            numbers = np.asarray(values, np.float64 if isinstance(cell, str) else None)
        except ValueError as error:
            raise CellError(repr(cell), "numbers, as many in each list") from error
        if numbers.dtype.kind not in "biuf" or not numbers.size:
            raise CellError(repr(cell), "numbers")
        return numbers.astype(np.float64)


class InputCells(Cells):
    """Figures, token ids or text for an input, in its shape."""

    def __init__(self, columns: tuple[str, ...], tensor: Input, request: Request) -> None:
        super().__init__(columns)
        self._tensor = tensor
        self._tokenizer = Tokenizer(request.text) if request.text else None
        self._length = request.text.length if request.text else None

    def __call__(self, cells: Mapping[str, object]) -> Array:
        """Return the values of the columns, in the shape of the input."""
        values = [cells[column] for column in self.columns]
        if len(values) == 1 and not self._tensor.figures:
            return self._ids(values[0])
        numbers = self.figures(values[0]) if len(values) == 1 else self._joined(values)
        if not self._tensor.figures:
            return self._shaped(_whole_numbers(numbers))
        return self._shaped(numbers.astype(np.float32))

    def _joined(self, values: list[object]) -> Array:
        """Return the figures of several columns."""
        for column, cell in zip(self.columns, values, strict=True):
            if isinstance(cell, str) and not cell.strip():
                expected = f"a number in each of the columns {listed(self.columns)}"
                raise CellError("an empty cell", expected, "fill it, or drop the row", column)
        try:
            return self.figures(" ".join(map(str, values)))
        except CellError:
            for column, cell in zip(self.columns, values, strict=True):
                self._check_figures(column, cell)
            raise

    def _check_figures(self, column: str, cell: object) -> None:
        try:
            self.figures(cell)
        except CellError as error:
            expected = f"numbers in each of the columns {listed(self.columns)}"
            fix = f"remove columns that are not inputs, or name the one that is {self._tensor.name} (or {X})"
            raise CellError(error.value, expected, fix, column) from error

    def _ids(self, cell: object) -> Array:
        length = (self._tensor.shape[0] if self._tensor.shape else None) or self._length or 0
        words = isinstance(cell, list) and bool(cell) and all(isinstance(word, str) for word in cell)
        if isinstance(cell, str) and self._tokenizer:
            ids = self._tokenizer.text(cell, length)
        elif words and self._tokenizer:
            ids = [self._tokenizer.word(word) for word in cell]  # type: ignore[attr-defined]
        elif words or (isinstance(cell, str) and not all(map(is_number, cell.split()))):
            raise CellError(repr(cell), 'token ids, or "text" in the dataset of the config')
        else:
            numbers = _whole_numbers(self.figures(cell))
            if len(self._tensor.shape) != 1:
                return self._shaped(numbers)
            ids = numbers.reshape(-1).tolist()
        return _padded(ids, length, PADDING)

    def _shaped(self, numbers: Array) -> Array:
        shapes = self._tensor.data_shapes
        if shapes == ((1,),) and not numbers.ndim:
            return numbers.reshape(1)
        if not any(fits(numbers.shape, shape) for shape in shapes):
            expected = " or ".join(f"shape {list(shape)}" for shape in shapes)
            raise CellError(f"figures of shape {list(numbers.shape)}", expected)
        return numbers


class TargetCells(Cells):
    """Classes by name or number, or figures, in the shape of an output's targets."""

    def __init__(self, columns: tuple[str, ...], output: Output, schema: Schema) -> None:
        super().__init__(columns)
        self._output = output
        self._names = schema.classes.get(output.name)
        self._numbers = {NO_CLASS: IGNORED}
        self._numbers |= {name: number for number, name in enumerate(self._names or ())}
        # If the training data are unreadable, the activation decides: softmax and sigmoid outputs have
        # classes.
        self._whole = schema.whole.get(output.name, output.activation is not Activation.NONE)
        # Only classes can be ignored; outputs with one figure per position have none.
        self._padded_to = output.shape[0] if len(output.shape) == 2 and output.shape[1] != 1 else None

    def __call__(self, cells: Mapping[str, object]) -> Array:
        """Return the values of the column: the numbers of classes, or figures."""
        cell = cells[self.columns[0]]
        if self._names is None:
            values = self.figures(cell)
        else:
            tokens = names_of(cell, self._output)
            unknown = [token for token in tokens if token not in self._numbers]
            if unknown or not tokens:
                known = ", ".join(self._names[:10])
                wrong = next(filter(None, unknown), cell)
                raise CellError(repr(wrong), f"one of the training data's {known}")
            numbers = [self._numbers[token] for token in tokens]
            values = np.asarray(numbers if len(self._output.shape) > 1 else numbers[0], np.float64)
        if self._padded_to and values.ndim < 2:
            return _padded(_whole_numbers(values).reshape(-1).tolist(), self._padded_to, IGNORED)
        return _whole_numbers(values, ", as in the training data") if self._whole else values


class AnswerCells(Cells):
    """Answers to tasks, one for each column; blank or null if unknown."""

    def __call__(self, cells: Mapping[str, object]) -> Array:
        """Return 1, 0 or -1 for each column."""
        return np.array([self._answer(column, cells[column]) for column in self.columns], np.int64)

    def _answer(self, column: str, cell: object) -> int:
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            return IGNORED
        answer = self.figures(cell)
        if answer.ndim or answer not in (IGNORED, 0, 1):
            raise CellError(repr(cell), "1, 0, or blank for unknown", column=column)
        return int(answer)


def _whole_numbers(figures: Array, reason: str = "") -> Array:
    if not all(map(float.is_integer, figures.reshape(-1).tolist())):
        raise CellError(str(figures.tolist()), f"whole numbers{reason}")
    return figures.astype(np.int64)


def _padded(values: list[int], length: int, padding: int) -> Array:
    if not length:
        raise CellError(
            counted(len(values), "value"), 'a model with a fixed length, or "length" in the text settings'
        )
    if len(values) > length:
        raise CellError(counted(len(values), "value"), f"at most {length}")
    return np.asarray([*values, *[padding] * (length - len(values))], np.int64)


def names_of(cell: object, output: Output) -> list[str]:
    """Return the names in a cell: one, or one per position ("" for none); empty if it has only numbers."""
    if isinstance(cell, str):
        return cell.split() if len(output.shape) > 1 else [cell.strip()]
    if isinstance(cell, list) and any(isinstance(item, str) for item in cell):
        return ["" if item is None else str(item).strip() for item in cell]
    return []


def are_classes(names: set[str], output: Output) -> bool:
    """Check whether these texts are class names, possibly with numbers, rather than faulty figures."""
    numbers = [is_number(name) for name in names]
    if output.shape[-1:] in ((), (1,)):
        # A binary label with two names. If some texts are numbers, the others are errors.
        return bool(names) and not any(numbers)
    return output.activation is not Activation.SIGMOID and not all(numbers)


def is_whole(cell: object) -> bool:
    """Check whether all numbers of a cell are written as integers."""
    if isinstance(cell, str):
        return all(part.lstrip("+-").isdigit() for part in cell.split())
    return all(map(is_whole, cell)) if isinstance(cell, list) else isinstance(cell, int)


def is_number(text: str) -> bool:
    """Check whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
