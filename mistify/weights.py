"""Tuned weights on their way between devices: safetensors, checked before anybody uses them (paper 5.1)."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.manifest import TunableTensor

Tunable = Mapping[str, TunableTensor]
Weights = Mapping[str, NDArray[np.float16] | NDArray[np.float32]]

#: How weights may be written: name in the file -> bytes of a number.
_DTYPES: Final = {"F16": 2, "F32": 4}

#: Norms may differ from the packaged ones by this factor, give or take this root mean square.
_NORM_FACTOR: Final = 10.0
_NORM_SLACK: Final = 0.1

#: Of a file's header: for each tensor beside its name, and for all.
_HEADER_BYTES_PER_TENSOR: Final = 256
_HEADER_BYTES: Final = 4096


def write_weights(weights: Weights) -> bytes:
    """Weights by name as the bytes of a safetensors file."""
    data: bytes = save(dict(weights))
    return data


def most_bytes(tunable: Tunable) -> int:
    """The most that a file with the weights of a package can take."""
    numbers = sum(math.prod(tensor.shape) for tensor in tunable.values())
    names = sum(6 * len(name) + _HEADER_BYTES_PER_TENSOR for name in tunable)
    return max(_DTYPES.values()) * numbers + names + _HEADER_BYTES


def read_weights(path: Path, tunable: Tunable) -> dict[str, NDArray[np.float32]]:
    """The weights in a file that somebody else has made.

    Args:
        path: a safetensors file, float16 or float32.
        tunable: what the package says of its weights.

    Raises:
        MistifyError: INVALID_PUBLICATION, it is no such file, or its weights do not fit the package: other
            names or shapes, numbers that are not finite, norms far from the packaged ones. Every problem is
            told.
    """
    problems: list[Problem] = []
    weights: dict[str, NDArray[np.float32]] = {}
    try:
        with safe_open(str(path), framework="numpy") as file:
            problems += _header_problems(file, tunable)
            if not problems:
                weights = {name: file.get_tensor(name).astype(np.float32, copy=False) for name in tunable}
    except SafetensorError as error:
        problems.append(Problem("weights", f"a file that cannot be read ({error})", "safetensors", "save so"))
    problems += [
        problem for name, values in weights.items() for problem in _problems(name, values, tunable[name])
    ]
    if problems:
        raise MistifyError(ErrorCode.INVALID_PUBLICATION, "the weights cannot be used", problems)
    return weights


def _header_problems(file: Any, tunable: Tunable) -> Iterator[Problem]:
    """What is wrong with names, types and shapes."""
    given = set(file.keys())
    for name in sorted(given - set(tunable)):
        yield Problem(f"weights[{name!r}]", "a tensor", "none of this name in the package", "leave it out")
    for name, tensor in tunable.items():
        place = f"weights[{name!r}]"
        if name not in given:
            yield Problem(place, "nothing", f"a tensor of shape {tensor.shape}", "add it")
            continue
        found = file.get_slice(name)
        if found.get_dtype() not in _DTYPES:
            yield Problem(place, found.get_dtype(), " or ".join(_DTYPES), "convert it")
        if tuple(found.get_shape()) != tensor.shape:
            shape = tuple(found.get_shape())
            yield Problem(place, f"the shape {shape}", f"{tensor.shape}", "send what was tuned, as it is")


def _problems(name: str, values: NDArray[np.float32], tensor: TunableTensor) -> Iterator[Problem]:
    """What is wrong with numbers."""
    place = f"weights[{name!r}]"
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        yield Problem(place, f"{count} NaN or infinite", "finite numbers", "tune at a lower learning rate")
        return
    norm = float(np.linalg.norm(values.astype(np.float64)))
    slack = _NORM_SLACK * math.sqrt(values.size)
    lowest, highest = max(0.0, tensor.norm - slack) / _NORM_FACTOR, (tensor.norm + slack) * _NORM_FACTOR
    if not lowest <= norm <= highest:
        expected = f"{lowest:.4g} to {highest:.4g}; the packaged one is {tensor.norm:.4g}"
        yield Problem(place, f"a norm of {norm:.4g}", expected, "tune from the package's weights")
