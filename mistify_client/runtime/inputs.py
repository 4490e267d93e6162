"""The inputs of an inference, checked against those of the network."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.manifest import TensorInfo

Array = npt.NDArray[Any]


def bind(
    inputs: Sequence[TensorInfo], positional: Sequence[npt.ArrayLike], named: Mapping[str, npt.ArrayLike]
) -> dict[str, Array]:
    """Return the array of each input, in the dtype of the network.

    An integer input takes integers of its own dtype as they are; anything else is a value, and quantized.

    Args:
        inputs: those of the network, in order; -1 in a shape is any size, at least 1.
        positional: the first arrays, in the order of the inputs.
        named: the other arrays, by name.

    Returns:
        Name -> array of the input's shape and dtype.

    Raises:
        MistifyError: INVALID_DATASET with everything that does not fit.
    """
    fitting = _fitting(inputs, positional, named)
    if fitting is not None:
        return fitting
    arrays = checked(inputs, positional, named)
    return {info.name: _stored(info, arrays[info.name]) for info in inputs}


def checked(
    inputs: Sequence[TensorInfo], positional: Sequence[npt.ArrayLike], named: Mapping[str, npt.ArrayLike]
) -> dict[str, Array]:
    """Check the array of each input and return it as it is, for callers with too many examples for a copy.

    Args:
        inputs: those of the network, in order.
        positional: the first arrays, in the order of the inputs.
        named: the other arrays, by name.

    Raises:
        MistifyError: as `bind`.
    """
    arrays, problems = _by_name([info.name for info in inputs], positional, named)
    for info in inputs:
        if info.name in arrays:
            problems += _misfits(info, arrays[info.name])
    if not problems:
        problems += _unequal_batches(inputs, arrays)
    if problems:
        raise MistifyError(ErrorCode.INVALID_DATASET, "the input does not fit the network", problems)
    return arrays


def _fitting(
    inputs: Sequence[TensorInfo], positional: Sequence[npt.ArrayLike], named: Mapping[str, npt.ArrayLike]
) -> dict[str, Array] | None:
    """Return the arrays if all fit as they are, as most do; an inference may take less time than checking."""
    if len(positional) + len(named) != len(inputs):
        return None
    fitting: dict[str, Array] = {}
    batch = 0
    for place, info in enumerate(inputs):
        array = positional[place] if place < len(positional) else named.get(info.name)
        if type(array) is not np.ndarray or array.dtype != info.dtype or not array.flags.c_contiguous:
            return None
        batch = batch or len(array) if array.ndim else 0
        if not batch or info.shape[:1] != (-1,) or array.shape != (batch, *info.shape[1:]):
            return None
        fitting[info.name] = array
    return fitting


def _stored(info: TensorInfo, array: Array) -> Array:
    stored = array if array.dtype == info.dtype else info.quantized(array)
    return np.ascontiguousarray(stored)


def _by_name(
    names: Sequence[str], positional: Sequence[npt.ArrayLike], named: Mapping[str, npt.ArrayLike]
) -> tuple[dict[str, Array], list[Problem]]:
    expected = f"{len(names)} ({', '.join(names)})"
    problems = [
        Problem(name, "an array", f"one of {', '.join(names)}", "use the name of an input")
        for name in named
        if name not in names
    ]
    if len(positional) > len(names):
        problems.append(Problem("inputs", f"{len(positional)}", expected, "leave out the others"))
    arrays = dict(zip(names, positional, strict=False))
    twice = [name for name in named if name in arrays]
    problems += [Problem(name, "two arrays", "one", "give it by position or by name") for name in twice]
    arrays |= {name: array for name, array in named.items() if name in names}
    missing = [name for name in names if name not in arrays]
    problems += [Problem(name, "nothing", "an array", f"the network takes {expected}") for name in missing]
    return {name: np.asarray(array) for name, array in arrays.items()}, problems


def _misfits(info: TensorInfo, array: Array) -> Iterator[Problem]:
    values = info.dtype if info.scale is None else "float32"
    if array.dtype != info.dtype and not np.can_cast(array.dtype, values, "safe"):
        fix = f"convert it, for example with .astype(numpy.{values})"
        yield Problem(info.name, str(array.dtype), f"{values}, or what it can hold exactly", fix)
    sizes = zip(info.shape, array.shape, strict=False)
    if array.ndim != len(info.shape) or not all(expected in (-1, actual) for expected, actual in sizes):
        shape = f"({', '.join('batch' if size == -1 else str(size) for size in info.shape)})"
        fix = "reshape it"
        if array.shape == tuple(info.shape[1:]):
            fix = "add the batch dimension: array[numpy.newaxis]"
        yield Problem(info.name, f"shape {array.shape}", f"shape {shape}", fix)
    elif not array.size:
        yield Problem(info.name, f"shape {array.shape}", "at least one example", "leave the call out")


def _unequal_batches(inputs: Sequence[TensorInfo], arrays: Mapping[str, Array]) -> Iterator[Problem]:
    batches = {info.name: len(arrays[info.name]) for info in inputs if info.shape[:1] == (-1,)}
    if len(set(batches.values())) > 1:
        sizes = ", ".join(f"{name}: {batch}" for name, batch in batches.items())
        yield Problem("inputs", f"batches of {sizes}", "equal batches", "give every input as many examples")
