"""Execution of networks within LiteRT's separate process (`isolation`), without TensorFlow."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.litert import Interpreter, OpResolverType
from mistify.package.manifest import TensorInfo

Array = npt.NDArray[Any]

#: Number of networks that stay open, so that two can be compared.
_OPEN: Final = 2


@dataclass(frozen=True)
class NetworkDescription:
    """The tensors of a network.

    Attributes:
        inputs: Input -> name, dtype and shape; -1 is the batch.
        outputs: Output -> name, dtype and shape; -1 is the batch.
        example_elements: Number of elements of the largest tensor for one example.
    """

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    example_elements: int


def describe(network: Path, signature: str) -> NetworkDescription:
    """Return the tensors of a network's signature, including those of its branches."""
    interpreter, run = _opened(network, signature)
    graphs = map(interpreter.get_tensor_details, range(interpreter.num_subgraphs()))
    return NetworkDescription(
        inputs=described(run.get_input_details()),
        outputs=described(run.get_output_details()),
        example_elements=max(map(_elements, chain.from_iterable(graphs))),
    )


def run(network: Path, signature: str, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return the outputs of a network by name, as it stores them.

    Args:
        inputs: Values of any type by the names of inputs. They get the types of the network's here, because
            those of data, such as bytes for images, are smaller to send.
    """
    runner = _opened(network, signature)[1]
    stored = {
        name: info.quantized(inputs[name]) for name, info in described(runner.get_input_details()).items()
    }
    outputs: Mapping[str, Array] = runner(**stored)
    return outputs


def signature_names(network: bytes) -> Collection[str]:
    """Return the names of a network's signatures."""
    return list(Interpreter(model_content=network, num_threads=1).get_signature_list())


def shapes(network: bytes) -> dict[int, tuple[int, ...]]:
    """Return the shapes of a network's tensors by index, for batch 1.

    The shapes are known after running an example of zeros. All inputs are set, because LiteRT does not clear
    memory, and old content may be an invalid index into a table.
    """
    interpreter = Interpreter(
        model_content=network, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter.allocate_tensors()
    for entry in interpreter.get_input_details():
        interpreter.set_tensor(entry["index"], np.zeros(entry["shape"], entry["dtype"]))
    interpreter.invoke()
    return {
        entry["index"]: tuple(int(size) for size in entry["shape"])
        for entry in interpreter.get_tensor_details()
    }


@dataclass(frozen=True)
class ExampleTensors:
    """The tensors of a graph after running one example.

    Attributes:
        shapes: Index of a tensor -> its shape.
        shape_values: Index of a tensor -> its values, for tensors that may be shapes: integers with at most
            one axis.
    """

    shapes: Mapping[int, list[int]]
    shape_values: Mapping[int, Array]


def run_example(network: bytes, signature: str, graph: int) -> ExampleTensors:
    """Run an example of zeros through a signature, and return the tensors of its graph."""
    interpreter = Interpreter(
        model_content=network,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    run = interpreter.get_signature_runner(signature)
    run(**{name: np.zeros(one["shape"], one["dtype"]) for name, one in run.get_input_details().items()})
    tensors = {one["index"]: one for one in interpreter.get_tensor_details(graph)}
    values: dict[int, Array] = {}
    for index, one in tensors.items():
        if np.issubdtype(one["dtype"], np.integer) and len(one["shape"]) <= 1:
            with suppress(ValueError):  # nothing has been written there
                values[index] = interpreter.get_tensor(index, graph)
    return ExampleTensors(
        {index: [int(size) for size in one["shape"]] for index, one in tensors.items()}, values
    )


def ranges(network: bytes, signature: str, inputs: Mapping[str, Array]) -> dict[int, tuple[float, float]]:
    """Run examples through a signature, and return the range of each float tensor by index."""
    interpreter = Interpreter(
        model_content=network,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    run = interpreter.get_signature_runner(signature)
    run(**{name: inputs[name].astype(one["dtype"]) for name, one in run.get_input_details().items()})
    reached: dict[int, tuple[float, float]] = {}
    for entry in interpreter.get_tensor_details():
        if entry["dtype"] == np.float32:
            with suppress(ValueError):  # nothing has been written there
                values = interpreter.get_tensor(entry["index"])
                if values.size:
                    reached[entry["index"]] = float(values.min()), float(values.max())
    return reached


@lru_cache(maxsize=_OPEN)
def _opened(network: Path, signature: str) -> tuple[Any, Any]:
    """Return the interpreter of a network and the runner of a signature."""
    interpreter = Interpreter(model_path=str(network), num_threads=1)
    return interpreter, interpreter.get_signature_runner(signature)


def _elements(entry: Mapping[str, Any]) -> int:
    """Return the number of elements of a tensor per example; 0 if it does not grow with the batch."""
    return prod(map(int, entry["shape"])) if -1 in entry["shape_signature"] else 0


def described(details: Mapping[str, Mapping[str, Any]]) -> dict[str, TensorInfo]:
    """Return the inputs or outputs of a signature by name, from LiteRT's own description."""
    return {name: _describe(name, entry) for name, entry in details.items()}


def _describe(name: str, entry: Mapping[str, Any]) -> TensorInfo:
    dtype = np.dtype(entry["dtype"])
    sizes = [int(size) for size in entry["shape"]]
    shape = (-1, *sizes[1:]) if sizes else ()
    scale, zero_point = entry["quantization"]
    if not scale:
        return TensorInfo(name=name, dtype=dtype.name, shape=shape)
    return TensorInfo(
        name=name, dtype=dtype.name, shape=shape, scale=float(scale), zero_point=int(zero_point)
    )
