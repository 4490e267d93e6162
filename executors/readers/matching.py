"""Matching of arrays from files to a model's inputs and outputs; reports all problems at once."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from executors.data.dataset import Dataset
from executors.data.errors import invalid
from executors.data.storage import Array
from executors.outputs.objectives import (
    IGNORED,
    NUMBER_CLASSES,
    Binary,
    Categorical,
    OutputObjective,
    class_count,
    expected_classes,
    objective_of,
)
from executors.readers.formats import Answers, Arrays, Request, Schema, X, Y, first_of, fits
from executors.structure.signature import Activation, Input, Output, Tensor
from mistify.errors import Problem
from mistify.parsing.validation import InvalidValue
from mistify.wording import listed

#: Examples checked for NaN at a time.
_BLOCK = 1_000

#: The fix for targets that do not exist.
_RELABEL: Final = "relabel the examples"


def matched_to_model(arrays: Arrays, request: Request, source: str) -> Dataset:
    """Return the data with a model's names, in its order.

    Args:
        arrays: The arrays by their names in the file.
        source: Name of the data in errors.

    Raises:
        MistifyError: INVALID_DATASET with every problem.
    """
    signature = request.signature
    groups: tuple[tuple[Sequence[Tensor], str], ...] = ((signature.inputs, X), (request.outputs, Y))
    called = {
        tensor: first_of(list(arrays), tensor.name, alias if len(tensors) == 1 else tensor.name)
        for tensors, alias in groups
        for tensor in tensors
    }
    missing = [tensor.name for tensor, name in called.items() if name is None]
    if missing:
        raise invalid(_missing(source, arrays, request, missing))
    named = {tensor: (name, arrays[name]) for tensor, name in called.items() if name is not None}
    problems = list(_uneven(source, dict(named.values())))
    targets: dict[str, Array] = {}
    for tensor, (name, array) in named.items():
        if isinstance(tensor, Input):
            problems += _unfit_inputs(source, name, array, tensor)
        elif isinstance(tensor, Output):
            targets[tensor.name], wrong = _target(source, name, array, tensor, request.schema)
            problems += wrong
    if not problems:
        for output in request.outputs:
            problems += _few_names(source, targets[output.name], output, request)
    if problems:
        raise invalid(*problems)
    inputs = {tensor.name: _channels_last(named[tensor][1], tensor) for tensor in signature.inputs}
    return Dataset(inputs, targets, request.schema.classes)


def _channels_last(array: Array, wanted: Input) -> Array:
    """Return an input with the channels at the end."""
    if wanted.channels_first and fits(array.shape[1:], wanted.data_shapes[0]):
        return np.moveaxis(array, 1, -1)
    return array


def check_shape(source: str, name: str, array: Array, wanted: Tensor) -> None:
    """Refuse an array with a shape or type that the model cannot take; its values need not have been read.

    Args:
        source: Name of the data in errors.
        name: Name of the array in errors.
        array: An array of which only shape and type are used.
        wanted: The input or output of the model.

    Raises:
        MistifyError: INVALID_DATASET.
    """
    if isinstance(wanted, Output):
        problems = _misshapen_target(source, name, array, wanted)
    else:
        problems = _misshapen_inputs(source, name, array, wanted)
    if mismatches := list(problems):
        raise invalid(*mismatches)


def _missing(source: str, arrays: Arrays, request: Request, missing: list[str]) -> Problem:
    inputs, outputs = request.signature.inputs, request.outputs
    actual = f"no array {' and none '.join(missing)}, but {listed([*arrays]) if arrays else 'none at all'}"
    needed = [tensor.name for tensor in (*inputs, *outputs)]
    aliases = [alias for alias, tensors in ((X, inputs), (Y, outputs)) if tensors]
    one = len(needed) == len(aliases)
    also = f" (or {' and '.join(aliases)})" if one else ""
    fix = "name the data as the model's inputs and outputs"
    if outputs and not {tensor.name for tensor in outputs} - {*missing}:
        fix += ', or give only inputs as "unlabelled"'
    return Problem(source, actual, f"{' and '.join(needed)}{also}", fix)


def check_training_targets(data: Dataset, outputs: Sequence[Output], source: str) -> None:
    """Refuse one-hot training data for logits.

    They would be learned as figures, or as independent answers, with scores that say little about classes.
    Other data are read as the training data are: a few examples can have one answer each by chance.

    Args:
        data: The training data.
        outputs: The outputs for which they have targets.
        source: Name of the data in errors.

    Raises:
        MistifyError: INVALID_DATASET with every such output.
    """
    problems = [
        Problem(source, f"one-hot {output.name}", expected_classes(output), NUMBER_CLASSES)
        for output in outputs
        if output.activation is Activation.NONE and _is_one_hot(data.targets[output.name], output)
    ]
    if problems:
        raise invalid(*problems)


def _is_one_hot(targets: Array, output: Output) -> bool:
    if targets.ndim < 2 or targets.shape[-1] < 2 or not fits(targets.shape[1:], output.shape):
        return False
    blocks = (targets[at : at + _BLOCK] for at in range(0, len(targets), _BLOCK))
    return all(np.isin(block, (0, 1)).all() and (block.sum(axis=-1) == 1).all() for block in blocks)


def _uneven(source: str, arrays: Arrays) -> Iterator[Problem]:
    lengths = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(lengths) > 1 or 0 in lengths:
        shapes = " and ".join(f"{name} of shape {array.shape}" for name, array in arrays.items())
        yield Problem(source, shapes, "the same number of rows in each, at least one", "check the arrays")


def _unfit_inputs(source: str, name: str, array: Array, wanted: Input) -> Iterator[Problem]:
    """Yield the problems of inputs: a wrong shape, a wrong type, or NaN."""
    yield from _misshapen_inputs(source, name, array, wanted)
    whole = np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_
    floats = np.issubdtype(array.dtype, np.floating)
    if "float" not in wanted.dtype and not whole:
        yield Problem(source, f"{name} of type {array.dtype}", "integers", f"cast {name} to {wanted.dtype}")
    elif not (whole or floats):
        yield Problem(
            source, f"{name} of type {array.dtype}", "integers or floats", f"cast {name} to float32"
        )
    elif floats and (problems := list(_not_finite(source, name, array))):
        yield from problems
    elif wanted.ids is not None:
        yield from _unknown_ids(source, name, array, wanted.ids)


def _misshapen_inputs(source: str, name: str, array: Array, wanted: Tensor) -> Iterator[Problem]:
    shapes = wanted.data_shapes if isinstance(wanted, Input) else (wanted.shape,)
    if array.ndim and not any(fits(array.shape[1:], shape) for shape in shapes):
        written = (", ".join("any" if size is None else str(size) for size in shape) for shape in shapes)
        fix = f"reshape {name} to the shape of the input"
        if fits((*array.shape[2:], *array.shape[1:2]), wanted.shape):  # reshaping would mix the channels
            fix = (
                f"move its channels to the end, numpy.moveaxis({name}, 1, -1), or name an ONNX file or a "
                'PyTorch function with "?layout=channels_first"'
            )
        expected = " or ".join(f"[examples, {each}]" for each in written)
        yield Problem(source, f"{name} of shape {array.shape}", expected, fix)


def _not_finite(source: str, name: str, array: Array) -> Iterator[Problem]:
    for at in range(0, len(array) if array.ndim else 0, _BLOCK):
        fits = np.abs(array[at : at + _BLOCK]) <= np.finfo(np.float32).max
        if not fits.all():
            row = at + int(np.argwhere(~fits)[0][0])
            what = (
                "a number outside the range of float32"
                if np.isfinite(array[row]).all()
                else "NaN or infinity"
            )
            yield Problem(source, f"{what} in {name}[{row}]", "finite figures", "drop or repair the example")
            return


def _unknown_ids(source: str, name: str, array: Array, count: int) -> Iterator[Problem]:
    for at in range(0, len(array) if array.ndim else 0, _BLOCK):
        wrong = (array[at : at + _BLOCK] < 0) | (array[at : at + _BLOCK] >= count)
        if wrong.any():
            row = at + int(np.argwhere(wrong)[0][0])
            token = array[row][wrong[row - at]][0] if array.ndim > 1 else array[row]
            yield Problem(
                source, f"{token} in {name}[{row}]", f"ids 0 to {count - 1}", "use the model's own vocabulary"
            )
            return


def _target(
    source: str, name: str, array: Array, output: Output, schema: Schema
) -> tuple[Array, list[Problem]]:
    """Return targets converted to their type, and their problems."""
    array = _without_column(array)
    if array.dtype == np.bool_:
        array = array.astype(np.int64)
    if array.ndim == 0:
        return array, []  # reported as a lack of rows
    if not np.issubdtype(array.dtype, np.number) or np.issubdtype(array.dtype, np.complexfloating):
        fix = f"number the classes from 0, or cast {name}"
        return array, [Problem(source, f"{name} of type {array.dtype}", "numbers", fix)]
    trained = _as_in_training(array, output, schema)
    try:
        objective = objective_of(output, trained)
    except InvalidValue as error:
        also = "" if trained.dtype == array.dtype else ", as in the training data"
        actual = f"{name} of shape {trained.shape} and type {trained.dtype}{also}"
        return trained, [Problem(source, actual, error.expected, error.fix)]
    problems = (
        list(_not_finite(source, name, trained))
        or list(_fractions(source, name, trained, output, schema))
        or list(_out_of_range(source, name, trained, objective, output))
    )
    whole = isinstance(objective, Categorical | Binary)
    return trained if problems else trained.astype(np.int64 if whole else np.float32), problems


def _misshapen_target(source: str, name: str, array: Array, output: Output) -> Iterator[Problem]:
    """Yield the problem of a target with a shape of neither classes nor figures."""
    if not array.ndim:
        return
    if isinstance(output, Answers):
        count = len(output.tasks)
        if array.shape[1:] != (count,):
            expected = f"an answer to each of the {count} tasks of dataset.tasks, [n, {count}]"
            fix = "list a task for each column there"
            yield Problem(source, f"{name} of shape {array.shape}", expected, fix)
        return
    shape = _without_column(array).shape
    classes, figures = (np.broadcast_to(kind(0), shape) for kind in (np.int64, np.float32))
    if _refusal(output, classes) and (error := _refusal(output, figures)):
        actual = f"{name} of shape {array.shape} and type {array.dtype}"
        yield Problem(source, actual, error.expected, error.fix)


def _refusal(output: Output, target: Array) -> InvalidValue | None:
    """Return the reason why a target does not fit an output, or None."""
    try:
        objective_of(output, target)
    except InvalidValue as error:
        return error
    return None


def _without_column(array: Array) -> Array:
    """Return targets [n] for a column [n, 1]."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _as_in_training(array: Array, output: Output, schema: Schema) -> Array:
    """Convert targets to the type of the training data's, if possible.

    The training data distinguish classes from figures if the output's activation does not. For a sigmoid, the
    targets themselves do: 0 or 1, possibly as floats, or figures in between.
    """
    if output.activation is Activation.SIGMOID:
        return array.astype(np.int64) if _are_whole(array) else array
    if output.activation is not Activation.NONE or output.name not in schema.whole:
        return array
    if schema.whole[output.name]:
        return array.astype(np.int64) if _are_whole(array) else array
    return array.astype(np.float32) if np.issubdtype(array.dtype, np.integer) else array


def _are_whole(array: Array) -> bool:
    return bool((np.isfinite(array) & (array == np.floor(array))).all())


def _fractions(source: str, name: str, array: Array, output: Output, schema: Schema) -> Iterator[Problem]:
    """Yield the problem of figures if the training data have classes."""
    if output.activation is Activation.NONE and schema.whole.get(output.name):
        wrong = array != np.floor(array)
        yield from _first(source, name, array, wrong, "whole numbers, as in the training data")


def _out_of_range(
    source: str, name: str, target: Array, objective: OutputObjective, output: Output
) -> Iterator[Problem]:
    if isinstance(objective, Categorical):
        lowest = IGNORED if target.ndim > 1 else 0
        wrong = (target < lowest) | (target >= (output.shape[-1] or 0))
        expected = f"classes 0 to {(output.shape[-1] or 0) - 1}"
        if lowest == IGNORED:
            expected += f", or {IGNORED} for ignored positions"
    elif isinstance(objective, Binary):
        known = (target == 0) | (target == 1)
        wrong, expected = ~known, "0 or 1, or floats if the output is a number"
        if isinstance(output, Answers):
            wrong, expected = ~known & (target != IGNORED), f"0 or 1, or {IGNORED} for unknown"
    elif output.activation is Activation.SIGMOID:
        wrong, expected = (target < 0) | (target > 1), "numbers from 0 to 1, as from a sigmoid"
    else:
        return
    begin_at_1 = isinstance(objective, Categorical) and _begin_at_1(target, output.shape[-1] or 0)
    fix = "subtract 1 from all of them: classes begin at 0" if begin_at_1 else _RELABEL
    yield from _first(source, name, target, wrong, expected, fix=fix)


def _begin_at_1(target: Array, classes: int) -> bool:
    """Return whether the first class of targets is 1, and the last one equals the number of classes."""
    return target.size > 0 and bool(target.min() == 1 and target.max() == classes)


def _first(
    source: str, name: str, target: Array, wrong: Array, expected: str, *, fix: str = _RELABEL
) -> Iterator[Problem]:
    """Yield the problem of the first wrong target."""
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        shown = ", ".join(map(str, place))
        yield Problem(source, f"{name}[{shown}] = {target[place]}", expected, fix)


def _few_names(source: str, target: Array, output: Output, request: Request) -> Iterator[Problem]:
    """Refuse names for only some of the classes, because classes are numbered in the order of all names."""
    names, classes = (
        request.schema.classes.get(output.name, ()),
        class_count(objective_of(output, target), output),
    )
    if 0 < len(names) < classes:
        yield Problem(
            source, f"names of {len(names)} classes of {output.name}", f"names of all {classes}",
            "write the numbers of the classes, or add examples of the others",
        )  # fmt: skip
