"""The files with which devices exchange tuned weights: small, and checked before use (paper 5.1).

A file is a deflated safetensors file of float16 with all even bytes before the odd ones: this groups signs
and exponents, which compress well. Differences from the packaged weights would not be smaller, because tuning
changes weights by about their own magnitude.
"""

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.manifest import TunableTensor

Tunable = Mapping[str, TunableTensor]
Weights = Mapping[str, NDArray[np.float16] | NDArray[np.float32]]

#: The allowed types of weights.
_DTYPES: Final[dict[str, np.dtype[np.float16] | np.dtype[np.float32]]] = {
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
}

_LARGEST_HALF: Final = float(np.finfo(np.float16).max)

#: Norms may differ from the packaged ones by this factor, plus or minus this root mean square.
_NORM_FACTOR: Final = 10.0
_NORM_SLACK: Final = 0.3

#: Maximum bytes of a file's header: per tensor in addition to its name, and in total.
_HEADER_BYTES_PER_TENSOR: Final = 256
_HEADER_BYTES: Final = 4096


class _Tensor(TypedDict):
    """A tensor as returned by safetensors."""

    dtype: str
    shape: Sequence[int]
    data: bytes


def write_weights(weights: Weights) -> bytes:
    """Return a file with weights by name; tensors outside the range of float16 stay float32."""
    data = save({name: _narrowed(values) for name, values in weights.items()})
    return zlib.compress(data[0::2] + data[1::2], 9)


def most_bytes(tunable: Tunable) -> int:
    """Return the maximum size of a file with the weights of a package, in bytes."""
    most = _most_unpacked(tunable)
    return most + most // 1000 + 64


def read_weights(path: Path, tunable: Tunable) -> dict[str, NDArray[np.float32]]:
    """Read and check the weights in a file from another device; decompress at most the package's own size.

    Args:
        path: A file written by `write_weights`.
        tunable: The package's weights that peers may exchange.

    Returns:
        Name -> weight.

    Raises:
        MistifyError: INVALID_PUBLICATION with every problem: the format is wrong, or the weights do not fit
            the package (other names or shapes, numbers that are not finite, norms far from the packaged
            ones).
    """
    weights: dict[str, NDArray[np.float32]] = {}
    try:
        unpacked = _unpacked(path.read_bytes(), _most_unpacked(tunable))
        tensors: dict[str, _Tensor] = dict(deserialize(unpacked))  # type: ignore[no-untyped-call]
    except (zlib.error, SafetensorError, ValueError) as error:
        fix = "send what write_weights makes"
        problems = [Problem("weights", f"a file that cannot be read ({error})", "deflated safetensors", fix)]
    else:
        problems = list(_header_problems(tensors, tunable))
        if not problems:
            weights = {name: _widened(tensors[name]) for name in tunable}
    problems += [
        problem for name, values in weights.items() for problem in _problems(name, values, tunable[name])
    ]
    if problems:
        raise MistifyError(ErrorCode.INVALID_PUBLICATION, "the weights cannot be used", problems)
    return weights


def _narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """Return values in the smallest sufficient type, in row-major order, which safetensors expects."""
    fits = bool((np.abs(values) <= _LARGEST_HALF).all())
    return values.astype(_DTYPES["F16" if fits else "F32"], order="C")


def _widened(tensor: _Tensor) -> NDArray[np.float32]:
    values: NDArray[Any] = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]])
    return values.reshape(tensor["shape"]).astype(np.float32)


def _most_unpacked(tunable: Tunable) -> int:
    numbers = sum(math.prod(tensor.shape) for tensor in tunable.values())
    names = sum(6 * len(name) + _HEADER_BYTES_PER_TENSOR for name in tunable)
    return max(dtype.itemsize for dtype in _DTYPES.values()) * numbers + names + _HEADER_BYTES


def _unpacked(content: bytes, most: int) -> bytes:
    """Return the decompressed content as a safetensors file.

    Raises:
        zlib.error: It is not deflated.
        ValueError: It is truncated, or longer than `most`.
    """
    inflating = zlib.decompressobj()
    data = np.frombuffer(inflating.decompress(content, most + 1), np.uint8)
    if len(data) > most:
        raise ValueError(f"more than {most:,} bytes")
    if not inflating.eof or inflating.unused_data:
        raise ValueError("cut off, or something follows it")
    joined = np.empty_like(data)
    half = (len(data) + 1) // 2
    joined[0::2], joined[1::2] = data[:half], data[half:]
    return joined.tobytes()


def _header_problems(tensors: Mapping[str, _Tensor], tunable: Tunable) -> Iterator[Problem]:
    """Yield the problems of names, types and shapes."""
    for name in sorted(set(tensors) - set(tunable)):
        yield Problem(f"weights[{name!r}]", "a tensor", "none of this name in the package", "leave it out")
    for name, expected in tunable.items():
        place = f"weights[{name!r}]"
        if name not in tensors:
            yield Problem(place, "nothing", f"a tensor of shape {expected.shape}", "add it")
            continue
        dtype, shape = tensors[name]["dtype"], tuple(tensors[name]["shape"])
        if dtype not in _DTYPES:
            yield Problem(place, dtype, " or ".join(_DTYPES), "convert it")
        if shape != expected.shape:
            yield Problem(
                place, f"the shape {shape}", f"{expected.shape}", "send the tuned weights unchanged"
            )


def _problems(name: str, values: NDArray[np.float32], tensor: TunableTensor) -> Iterator[Problem]:
    """Yield the problems of a weight's values."""
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
