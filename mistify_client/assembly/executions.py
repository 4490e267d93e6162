"""The two ways to run a block in LiteRT."""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mistify.litert import open_compiled
from mistify.package.manifest import SIGNATURE, fixed_batch_signature
from mistify.tflite.resizable import fixed_shapes, resizable
from mistify.tflite.session import Session
from mistify_client.assembly.mapped_weights import mapped_weights

Array = npt.NDArray[Any]

#: Tensors [batch, ...] by name, in the network's dtypes.
Tensors = Mapping[str, Array]

#: Computes outputs from inputs.
Run = Callable[[Tensors], dict[str, Array]]


class Execution(StrEnum):
    """LiteRT's `Interpreter`, which runs the graph for any batch size, or its `CompiledModel`.

    The latter supports accelerators; it runs one example at a time, with the graph of fixed shapes.
    """

    INTERPRETER = "interpreter"
    COMPILED = "compiled"


def part_that_runs(content: bytes | mmap, execution: Execution) -> bytes:
    """Return the part of a `.tflite` file that an execution needs.

    Raises:
        ValueError: It is not a `.tflite` file.
    """
    return resizable(content) if execution is Execution.INTERPRETER else fixed_shapes(content)


def open_network(network: bytes, execution: Execution, threads: int, weights: Path | None = None) -> Run:
    """Load a `.tflite` file with the signatures of packages, and return a function that runs it.

    Args:
        network: The part of the file returned by `part_that_runs`.
        weights: The directory of `mapped_weights`, for `CompiledModel`; None to pack the weights into memory.

    Returns:
        A function for one thread at a time, from inputs by name to outputs by name.

    Raises:
        ValueError: The network cannot be loaded.
        RuntimeError: The network cannot be loaded.
    """
    if execution is Execution.INTERPRETER:
        return Session(network, threads)
    mapped = None if weights is None else mapped_weights(weights, network)
    if mapped is None:
        return _Compiled(open_compiled(network, threads))
    return _Compiled(open_compiled(mapped.network, threads, mapped.weights))


class _Compiled:
    """A network that runs one example at a time, in preallocated buffers."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._key = fixed_batch_signature(SIGNATURE)
        if self._key not in self._model.get_signature_list():
            raise ValueError(f"it has no signature {self._key}, because its shapes cannot be fixed")
        self._takes = self._model.get_input_tensor_details(self._key)
        self._gives = self._model.get_output_tensor_details(self._key)
        self._inputs = {
            name: self._model.create_input_buffer_by_name(self._key, name) for name in self._takes
        }
        self._outputs = {
            name: self._model.create_output_buffer_by_name(self._key, name) for name in self._gives
        }

    def __call__(self, tensors: Tensors) -> dict[str, Array]:
        """Return the outputs [batch, ...] by name.

        Raises:
            ValueError: The inputs have other shapes or types, which LiteRT would not detect.
        """
        (count, *others) = {len(array) for array in tensors.values()}
        if others:
            raise ValueError(
                f"the inputs have {count} and {others[0]} rows; expected the same number for each"
            )
        rows = [
            self._one({name: array[row : row + 1] for name, array in tensors.items()}) for row in range(count)
        ]
        return {name: np.concatenate([row[name] for row in rows]) for name in self._outputs}

    def _one(self, example: Tensors) -> dict[str, Array]:
        for name, buffer in self._inputs.items():
            array, expected = example[name], self._takes[name]
            shape, dtype = tuple(expected["shape"]), np.dtype(expected["dtype"])
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(f"{name} is {array.dtype} {array.shape}; expected {dtype} {shape}")
            buffer.write(array)
        self._model.run_by_name(self._key, self._inputs, self._outputs)
        return {name: self._read(name) for name in self._outputs}

    def _read(self, name: str) -> Array:
        shape, dtype = self._gives[name]["shape"], np.dtype(self._gives[name]["dtype"])
        output: Array = self._outputs[name].read(math.prod(shape), dtype).reshape(shape)
        return output
