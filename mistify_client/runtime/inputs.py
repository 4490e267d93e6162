"""The inputs of an inference, checked against the network."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.manifest import TensorInfo
from mistify.parsing.validation import unknown_name

Array = npt.NDArray[Any]

#: Positional argument: an array, or arrays by input name.
Argument = npt.ArrayLike | Mapping[str, npt.ArrayLike]


def bind(
    inputs: Sequence[TensorInfo],
    positional: Sequence[Argument],
    named: Mapping[str, npt.ArrayLike],
    *,
    finite: bool = False,
) -> dict[str, Array]:
    """Return the array of each input, in the network's dtype.

    Arrays keep their values; numbers in lists become the nearest floats, or integers if they are integers. An
    integer input takes integers of its own dtype unchanged; anything else is a value, which is quantized.

    Args:
        inputs: The network's inputs in order; -1 in a shape is any size, at least 1.
        positional: The first arrays, in the order of the inputs; or one mapping with all arrays by name.
        named: The other arrays, by name.
        finite: Reject infinity and NaN, which requires a pass over all values.

    Returns:
        Name -> array of the input's shape and dtype.

    Raises:
        MistifyError: INVALID_DATASET with every mismatch.
    """
    fitting = _fitting(inputs, positional, named)
    if fitting is not None:
        if finite:
            _require_finite(fitting)
        return fitting
    if len(positional) == 1 and isinstance(positional[0], Mapping):
        return bind(inputs, (), _only_mapping(positional[0], named), finite=finite)
    arrays = checked(inputs, positional, named)
    if finite:
        _require_finite(arrays)
    return {info.name: _stored(info, arrays[info.name]) for info in inputs}


def checked(
    inputs: Sequence[TensorInfo], positional: Sequence[Argument], named: Mapping[str, npt.ArrayLike]
) -> dict[str, Array]:
    """Check the array of each input and return it or a view of it, for callers with too much data to copy.

    Args:
        inputs: The network's inputs in order.
        positional: The first arrays, in the order of the inputs.
        named: The other arrays, by name.

    Raises:
        MistifyError: INVALID_DATASET with every mismatch.
    """
    arguments, problems = _by_name(inputs, positional, named)
    arrays: dict[str, Array] = {}
    for info in inputs:
        if info.name in arguments:
            arrays[info.name], misfits = _as_array(info, arguments[info.name])
            problems += misfits
    if not problems:
        problems += _unequal_batches(inputs, arrays)
    if problems:
        raise _input_error(*problems)
    return arrays


def _require_finite(arrays: Mapping[str, Array]) -> None:
    problems = [problem for name, array in arrays.items() for problem in _not_finite(name, array)]
    if problems:
        raise _input_error(*problems)


def _not_finite(name: str, array: Array) -> Iterator[Problem]:
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        place = tuple(map(int, wrong[0]))
        others = (
            f", one of {len(wrong):,} of {array.size:,} values that are not finite" if len(wrong) > 1 else ""
        )
        at = ", ".join(map(str, place))
        fix = "repair or leave out the example"
        yield Problem(f"{name}[{at}]", f"{array[place]}{others}", "a finite number", fix)


def _input_error(*problems: Problem) -> MistifyError:
    return MistifyError(ErrorCode.INVALID_DATASET, "the input does not fit the network", problems)


def _only_mapping(
    arrays: Mapping[str, npt.ArrayLike], named: Mapping[str, npt.ArrayLike]
) -> Mapping[str, npt.ArrayLike]:
    """Return a mapping of inputs, which must be the only argument."""
    if named:
        fix = "put all inputs into the dict"
        raise _input_error(Problem("inputs", f"a dict, and also {', '.join(named)}", "a dict alone", fix))
    return arrays


def _fitting(
    inputs: Sequence[TensorInfo], positional: Sequence[Argument], named: Mapping[str, npt.ArrayLike]
) -> dict[str, Array] | None:
    """Return the arrays if all fit unchanged, as most do; a full check may take longer than an inference."""
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
        if info.source_shape is not None and _has_shape(array, info.source_shape):
            return None
        fitting[info.name] = array
    return fitting


def _stored(info: TensorInfo, array: Array) -> Array:
    stored = array if array.dtype == info.dtype else info.quantized(array)
    return np.ascontiguousarray(stored)


def _by_name(
    inputs: Sequence[TensorInfo], positional: Sequence[Argument], named: Mapping[str, npt.ArrayLike]
) -> tuple[dict[str, Argument], list[Problem]]:
    """Return the argument for each input, and the problems of missing, unknown and duplicate ones."""
    infos = {info.name: info for info in inputs}
    order = f"{len(infos)} ({', '.join(infos)})"
    problems = [
        Problem(str(name), f"an array of {_described(array)}", *unknown_name(str(name), infos))
        for name, array in named.items()
        if name not in infos
    ]
    if len(positional) > len(infos):
        problems.append(Problem("inputs", f"{len(positional)}", order, "leave out the others"))
    arguments: dict[str, Argument] = dict(zip(infos, positional, strict=False))
    twice = [name for name in named if name in arguments]
    problems += [Problem(name, "two arrays", "one", "give it by position or by name") for name in twice]
    arguments |= {name: array for name, array in named.items() if name in infos}
    missing = [info for name, info in infos.items() if name not in arguments]
    fix = f"the network takes {order}"
    problems += [Problem(info.name, "nothing", f"an array of {_expected(info)}", fix) for info in missing]
    return arguments, problems


def _as_array(info: TensorInfo, value: Argument) -> tuple[Array, list[Problem]]:
    """Return an input as an array, and its problems."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return np.empty(0), [Problem(info.name, "uneven lists", _expected(info), "give an array")]
    if not hasattr(value, "dtype"):
        array = _typed(array, np.dtype(_values(info)))
    if info.source_shape is not None and _has_shape(array, info.source_shape):
        array = np.moveaxis(array, 1, -1)
    return array, list(_misfits(info, array))


def _has_shape(array: Array, shape: Sequence[int]) -> bool:
    return array.ndim == len(shape) and all(
        expected in (-1, actual) for expected, actual in zip(shape, array.shape, strict=True)
    )


def _typed(array: Array, dtype: np.dtype[Any]) -> Array:
    """Convert untyped numbers, such as those in lists, to another dtype if it can represent them.

    Floats can represent all numbers, approximately; integers represent integers within their range.
    """
    if dtype.kind == "f" and array.dtype.kind in "iuf":
        return array.astype(dtype)
    if dtype.kind in "iu" and array.dtype.kind in "iu":
        typed = array.astype(dtype)
        return typed if np.array_equal(typed, array) else array
    return array


def _misfits(info: TensorInfo, array: Array) -> Iterator[Problem]:
    values = _values(info)
    if array.dtype != info.dtype and not np.can_cast(array.dtype, values, "safe"):
        fix = f"convert it, for example with .astype(numpy.{values})"
        yield Problem(info.name, str(array.dtype), f"{values}, or what it can hold exactly", fix)
    if not _has_shape(array, info.shape):
        fix = "reshape it"
        if array.shape in [tuple(shape[1:]) for shape in _shapes(info)]:
            fix = "add the batch dimension: array[numpy.newaxis]"
        elif array.ndim > 2 and _has_shape(np.moveaxis(array, 1, -1), info.shape):
            fix = "move the channels to the end: numpy.moveaxis(array, 1, -1)"  # reshaping would mix them
        yield Problem(info.name, f"shape {array.shape}", f"shape {_shape(info)}", fix)
    elif not array.size:
        yield Problem(info.name, f"shape {array.shape}", "at least one example", "leave the call out")


def _values(info: TensorInfo) -> str:
    """Return the type of the values that an input takes; a quantized input takes floats as well."""
    return info.dtype if info.scale is None else "float32"


def _shapes(info: TensorInfo) -> list[Sequence[int]]:
    return [info.shape] if info.source_shape is None else [info.shape, info.source_shape]


def _shape(info: TensorInfo) -> str:
    shapes = _shapes(info)
    written = (", ".join("batch" if size == -1 else str(size) for size in shape) for shape in shapes)
    return " or ".join(f"({shape})" for shape in written)


def _expected(info: TensorInfo) -> str:
    return f"{_values(info)} of shape {_shape(info)}"


def _described(value: npt.ArrayLike) -> str:
    return f"shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def _unequal_batches(inputs: Sequence[TensorInfo], arrays: Mapping[str, Array]) -> Iterator[Problem]:
    batches = {info.name: len(arrays[info.name]) for info in inputs if info.shape[:1] == (-1,)}
    if len(set(batches.values())) > 1:
        sizes = ", ".join(f"{name}: {batch}" for name, batch in batches.items())
        yield Problem(
            "inputs", f"batches of {sizes}", "equal batches", "give all inputs the same number of examples"
        )
