"""Differences between the tensors of two networks, within LiteRT's separate process (`isolation`)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod, sqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.litert import Interpreter, OpResolverType
from mistify_server.worker.packaging.tflite.execution import described

Array = npt.NDArray[Any]

#: Maximum size in bytes of the tensors of both networks together, which all stay in memory, and the size up
#: to which several examples run at once.
_MOST_BYTES: Final = 1 << 29
_BATCH_BYTES: Final = 1 << 26

#: Maximum number of examples that run at once.
_AT_ONCE: Final = 8


@dataclass(frozen=True)
class NetworkGraphAt:
    """A network with the signature to run and the index of its graph."""

    network: bytes
    signature: str
    graph: int


@dataclass(frozen=True)
class TensorErrors:
    """The relative errors of tensors.

    Attributes:
        by_tensor: Index of a tensor -> root mean square of its difference from its counterpart, relative to
            the counterpart's root mean square.
        examples: Number of examples behind them; 0 if the tensors are too large.
    """

    by_tensor: Mapping[int, float]
    examples: int


def tensor_errors(
    own: NetworkGraphAt,
    other: NetworkGraphAt,
    pairs: Sequence[tuple[int, int]],
    inputs: Mapping[str, Array],
    seconds: float,
) -> TensorErrors:
    """Run examples through two networks, and compare their tensors.

    Args:
        own: The network with errors.
        other: The network without errors.
        pairs: Index of a tensor of the one, and of its counterpart in the other. Pairs of other types than
            numbers with fractions, or of different shapes, are left out of the result.
        inputs: Input -> examples [n, ...] as floats.
        seconds: Time after which no further examples are started.
    """
    deadline = time.monotonic() + seconds
    ours, theirs = _Observed(own), _Observed(other)
    each = ours.example_bytes + theirs.example_bytes
    if each > _MOST_BYTES:
        return TensorErrors({}, 0)
    sums = np.zeros((len(pairs), 2))
    known = np.ones(len(pairs), bool)
    at_once, count = max(1, min(_AT_ONCE, _BATCH_BYTES // max(each, 1))), len(next(iter(inputs.values())))
    done = 0
    while done < count and (done == 0 or time.monotonic() < deadline):
        # The first example tells how long the others take.
        batch = slice(done, done + (at_once if done else 1))
        examples = {name: array[batch] for name, array in inputs.items()}
        ours(examples)
        theirs(examples)
        for place, (tensor, counterpart) in enumerate(pairs):
            values, expected = ours.value(tensor), theirs.value(counterpart)
            if values is None or expected is None or values.shape != expected.shape:
                known[place] = False
            elif known[place]:
                sums[place] += np.square(values - expected).sum(), np.square(expected).sum()
        done = min(batch.stop, count)
    errors = {tensor: _relative(*sums[place]) for place, (tensor, _) in enumerate(pairs) if known[place]}
    return TensorErrors({tensor: error for tensor, error in errors.items() if isfinite(error)}, done)


def _relative(squared_error: float, squared: float) -> float:
    """Return a relative error; infinite for errors of a tensor of zeros."""
    if squared_error == 0:
        return 0.0
    return sqrt(squared_error / squared) if squared else float("inf")


class _Observed:
    """A network that keeps the values of all its tensors; runs LiteRT's own kernels on one thread."""

    def __init__(self, at: NetworkGraphAt) -> None:
        self._interpreter = Interpreter(
            model_content=at.network,
            num_threads=1,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
        self._run = self._interpreter.get_signature_runner(at.signature)
        self._inputs = described(self._run.get_input_details())
        self._graph = at.graph
        self._details = {one["index"]: one for one in self._interpreter.get_tensor_details(at.graph)}

    @property
    def example_bytes(self) -> int:
        """The size of all tensors for one example, weights included."""
        sizes = (
            prod(map(int, one["shape"])) * np.dtype(one["dtype"]).itemsize for one in self._details.values()
        )
        return sum(sizes)

    def __call__(self, inputs: Mapping[str, Array]) -> None:
        self._run(**{name: info.quantized(inputs[name]) for name, info in self._inputs.items()})

    def value(self, tensor: int) -> Array | None:
        """Return the numbers that a tensor represents; None if it has none with fractions."""
        scale, zero_point = self._details[tensor]["quantization"]
        if not scale and self._details[tensor]["dtype"] != np.float32:
            return None
        try:
            stored: Array = self._interpreter.get_tensor(tensor, self._graph).astype(np.float64)
        except ValueError:  # nothing has been written there
            return None
        return np.asarray((stored - zero_point) * scale) if scale else stored
