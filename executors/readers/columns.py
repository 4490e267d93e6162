"""Conversion of the rows of CSV and JSONL files to arrays."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final

import numpy as np

from executors.data.dataset import Origin
from executors.data.errors import invalid
from executors.data.storage import Array, Rows
from executors.readers.cells import (
    NO_CLASS,
    AnswerCells,
    CellError,
    Cells,
    InputCells,
    TargetCells,
    are_classes,
    is_whole,
    names_of,
)
from executors.readers.formats import Answers, Arrays, Request, Schema, X, Y, append, first_of
from executors.structure.signature import Input, Output
from mistify.errors import Problem
from mistify.wording import counted, listed

#: A row number, from 1 on, and the row's cells by column: texts, or JSON values.
Row = tuple[int, Mapping[str, object]]

#: Limits on the rows and cells read at a time.
_BLOCK: Final = 1_000
_BLOCK_CELLS: Final = 100_000


def read_columns(path: Path, rows: Iterator[Row], request: Request) -> Arrays:
    """Return the arrays of a table.

    Args:
        path: The file named in errors.
        rows: Row numbers with cells by column.

    Returns:
        Column name -> [examples, ...]; empty if the model does not need the column.

    Raises:
        MistifyError: INVALID_DATASET, naming the row or the missing column.
    """
    first = next(rows, None)
    if first is None:
        raise invalid(Problem(str(path), "no rows", "at least one", "check the file"))
    converters = _converters(path, list(first[1]), request)
    arrays = {name: Rows() for name in converters}
    waiting: Iterable[Row] = (first,)
    at_once = max(1, min(_BLOCK, _BLOCK_CELLS // max(1, len(first[1]))))
    while block := [*waiting, *islice(rows, at_once)]:
        waiting = ()
        for name, convert in converters.items():
            made = [(f"row {row[0]}", _converted(path, name, row, convert)) for row in block]
            append(arrays[name], path, name, made)
    unused: Arrays = dict.fromkeys(first[1], np.empty(0))
    return {**unused, **{name: array.array() for name, array in arrays.items()}}


def schema_of_table(rows: Iterator[Row], request: Request) -> Schema:
    """Return the schema of a table's targets: sorted class names, or numbers that are integers or not."""
    first = next(rows, None)
    if first is None:
        return Schema()
    columns, outputs = list(first[1]), request.outputs
    called = {output: _column(columns, output.name, Y, len(outputs)) for output in outputs}
    targets = {output: column for output, column in called.items() if column is not None}
    names: dict[Output, set[str]] = {output: set() for output in targets}
    whole = dict.fromkeys(targets, True)
    for _, cells in chain([first], rows):
        for output, column in targets.items():
            names[output].update(names_of(cells[column], output))
            whole[output] = whole[output] and is_whole(cells[column])
    named = {output: texts - {NO_CLASS, ""} for output, texts in names.items()}
    classes = {
        output.name: tuple(sorted(texts)) for output, texts in named.items() if are_classes(texts, output)
    }
    numbered = {output.name: whole[output] or output.name in classes for output in targets}
    return Schema(classes, numbered, _figure_columns(columns, request))


def origins_of_table(rows: Iterator[Row], request: Request) -> dict[str, Origin]:
    """Return the inputs of token ids that are text in the first row."""
    _, cells = next(rows, (0, {}))
    inputs = request.signature.inputs
    origins: dict[str, Origin] = {}
    for tensor in inputs if request.text else ():
        column = _column([*cells], tensor.name, X, len(inputs))
        if column is not None and isinstance(cells[column], str) and not tensor.figures:
            origins[tensor.name] = "text"
    return origins


def _converters(path: Path, columns: list[str], request: Request) -> dict[str, Cells]:
    signature = request.signature
    converters: dict[str, Cells] = {}
    for output in request.outputs:
        column = _column(columns, output.name, Y, len(signature.outputs))
        if isinstance(output, Answers):
            _check_present(path, output.tasks, columns, "a column for each task of dataset.tasks")
            converters[output.name] = AnswerCells(output.tasks)
        elif column:
            converters[output.name] = TargetCells((column,), output, request.schema)
    for tensor in signature.inputs:
        column = _column(columns, tensor.name, X, len(signature.inputs))
        names = (column,) if column else request.schema.figure_columns or _figure_columns(columns, request)
        _check_present(path, names, columns, f"the training data's {listed(names)}" if names else "")
        if names:
            _check_number(path, names, tensor)
            converters[tensor.name] = InputCells(names, tensor, request)
    return converters


def _figure_columns(columns: list[str], request: Request) -> tuple[str, ...]:
    """Return all columns except the targets, if no column is named after the only input."""
    signature = request.signature
    count = len(signature.outputs)
    targets = [_column(columns, output.name, Y, count) for output in signature.outputs]
    if request.space is not None:
        targets = [*request.space.tasks]
    named = [_column(columns, tensor.name, X, 1) for tensor in signature.inputs]
    if named != [None] or (request.labelled and None in targets):
        return ()
    return tuple(name for name in columns if name not in targets)


def _check_present(path: Path, names: Sequence[str], columns: Sequence[str], expected: str) -> None:
    """Check that a table has all required columns.

    Raises:
        MistifyError: INVALID_DATASET, naming the first missing column.
    """
    present = {*columns}
    missing = [name for name in names if name not in present]
    if missing:
        fix = "name the columns as there"
        raise invalid(Problem(str(path), f"no column {missing[0]}", expected, fix))


def _check_number(path: Path, columns: Sequence[str], tensor: Input) -> None:
    """Refuse more columns than an input has figures, as each column has at least one.

    Raises:
        MistifyError: INVALID_DATASET if there are more columns than figures.
    """
    size = tensor.shape[0] if len(tensor.shape) == 1 else None
    if size is None or len(columns) <= max(size, 1):
        return
    actual = f"{len(columns):,} columns for the input {tensor.name}: {listed(columns)}"
    expected = f"{counted(size, 'column')}, one number in each"
    fix = f"remove columns that are not inputs of the model, such as row numbers ({columns[0]}?)"
    raise invalid(Problem(str(path), actual, expected, fix))


def _column(columns: list[str], name: str, alias: str, count: int) -> str | None:
    return first_of(columns, name, alias if count == 1 else name)


def _converted(path: Path, name: str, row: Row, convert: Cells) -> Array:
    try:
        return convert(row[1])
    except CellError as error:
        column = error.column or name
        problem = Problem(
            str(path), f"row {row[0]}: {column} = {error.value[:80]}", error.expected, error.fix
        )
        raise invalid(problem) from error
