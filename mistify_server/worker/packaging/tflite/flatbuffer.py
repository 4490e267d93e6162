"""The parts of a converted network: its operators, their tensors, and its kernels."""

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from mistify.config.package.compression import GZIP, VALUES, ZEROS
from mistify.costs.budget import Costs

#: Names of operators and types by their numbers.
_OPERATORS: Final[dict[int, str]] = {
    number: name for name, number in vars(schema.BuiltinOperator).items() if name.isupper()
}
_TYPES: Final[dict[int, str]] = {
    number: name for name, number in vars(schema.TensorType).items() if name.isupper()
}

#: Types in which kernel weights may be stored.
_WEIGHTS = {"FLOAT32": np.float32, "FLOAT16": np.float16, "INT8": np.int8}


@dataclass(frozen=True)
class FlatbufferTensor:
    """A tensor of a network.

    Attributes:
        index: Index of the tensor in the network.
        type: LiteRT's name of the type, such as `FLOAT32`.
        shape: The sizes, with batch 1 if the batch is free.
        content: Values of weights; None for other tensors.
        is_constant: Whether its values are in the file, such as weights, shapes, axes or paddings.
        name: The converter's name, which contains the name of the original layer.
        scale: The largest step between its integers; 0 if it has none.
    """

    index: int
    type: str
    shape: tuple[int, ...]
    content: npt.NDArray[Any] | None
    is_constant: bool
    name: str
    scale: float


@dataclass(frozen=True)
class Operator:
    """An operator with its input and output tensors, without missing optional inputs."""

    name: str
    inputs: tuple[FlatbufferTensor, ...]
    outputs: tuple[FlatbufferTensor, ...]

    def shaped(self, shapes: Mapping[int, tuple[int, ...]]) -> "Operator":
        """Return the operator with new shapes of its tensors, given by index."""
        inputs, outputs = (
            tuple(replace(tensor, shape=shapes[tensor.index]) for tensor in tensors)
            for tensors in (self.inputs, self.outputs)
        )
        return Operator(self.name, inputs, outputs)


def operators(network: bytes, number: int = 0) -> Iterator[Operator]:
    """Yield the operators of a network for any batch, in order of execution.

    Args:
        network: A `.tflite`.
        number: Index of the graph.
    """
    # Tables are read in place: unpacking all of them would take most of the time of a small package.
    model = schema.Model.GetRootAs(network, 0)
    graph = model.Subgraphs(number)
    codes = [_name_of(model.OperatorCodes(place)) for place in range(model.OperatorCodesLength())]
    tensor = cache(partial(_tensor, network, model, graph))
    for place in range(graph.OperatorsLength()):
        operator = graph.Operators(place)
        inputs = (operator.Inputs(at) for at in range(operator.InputsLength()))
        outputs = (operator.Outputs(at) for at in range(operator.OutputsLength()))
        yield Operator(
            codes[operator.OpcodeIndex()],
            tuple(tensor(index) for index in inputs if index >= 0),
            tuple(map(tensor, outputs)),
        )


@dataclass(frozen=True)
class SignatureGraph:
    """The graph that a signature runs.

    Attributes:
        number: Index of the graph.
        name: Name of the graph; that of the signature if it has none.
        inputs: Index of a tensor -> name of the input.
        outputs: Index of a tensor -> name of the output.
    """

    number: int
    name: str
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]


def graph_of(network: bytes, signature: str) -> SignatureGraph:
    """Return the graph of a signature that the network has."""
    model = schema.Model.GetRootAs(network, 0)
    entries = (model.SignatureDefs(number) for number in range(model.SignatureDefsLength()))
    entry = next(entry for entry in entries if entry.SignatureKey().decode() == signature)
    number = int(entry.SubgraphIndex())
    name = (model.Subgraphs(number).Name() or b"").decode() or signature
    inputs = (entry.Inputs(place) for place in range(entry.InputsLength()))
    outputs = (entry.Outputs(place) for place in range(entry.OutputsLength()))
    return SignatureGraph(number, name, _names(inputs), _names(outputs))


def _names(tensors: Iterable[Any]) -> dict[int, str]:
    return {int(tensor.TensorIndex()): tensor.Name().decode() for tensor in tensors}


def ends(network: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the indices of a network's input tensors and of its output tensors."""
    graph = schema.Model.GetRootAs(network, 0).Subgraphs(0)
    return tuple(map(int, graph.InputsAsNumpy())), tuple(map(int, graph.OutputsAsNumpy()))


def kernels(network: bytes) -> Iterator[npt.NDArray[Any]]:
    """Yield the stored weights of a network: constants with at least two axes, each once."""
    model = schema.Model.GetRootAs(network, 0)
    places = {}
    for graph in map(model.Subgraphs, range(model.SubgraphsLength())):
        for index in range(graph.TensorsLength()):
            places[graph.Tensors(index).Buffer()] = graph, index
    for graph, index in places.values():
        tensor = _tensor(network, model, graph, index)
        if tensor.content is not None and sum(size > 1 for size in tensor.shape) > 1:
            yield tensor.content


def measured_compression(network: bytes) -> Costs:
    """Return the costs of a network on the axes of compression."""
    stored = list(kernels(network))
    zeros = sum(int((kernel == 0).sum()) for kernel in stored)
    return {
        ZEROS: zeros / max(sum(kernel.size for kernel in stored), 1),
        VALUES: float(max(map(_values, stored), default=0)),
        GZIP: float(len(gzip.compress(network, mtime=0))),
    }


def _values(kernel: npt.NDArray[Any]) -> int:
    """Return the number of distinct values."""
    # Compare their bits: NumPy 2.4 sorts float16 incorrectly on processors with AVX512-FP16.
    return len(np.unique(kernel.view(f"u{kernel.itemsize}")))


def _name_of(code: Any) -> str:
    """Return the name of an operator; files of earlier versions have its code in another field."""
    return _OPERATORS.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), "CUSTOM")


def _tensor(network: bytes, model: Any, graph: Any, index: int) -> FlatbufferTensor:
    entry = graph.Tensors(index)
    kind = _TYPES[entry.Type()]
    shape = tuple(map(int, entry.ShapeAsNumpy())) if entry.ShapeLength() else ()
    name = (entry.Name() or b"").decode()
    quantization = entry.Quantization()
    scales = quantization.ScaleAsNumpy() if quantization is not None and quantization.ScaleLength() else 0.0
    stored = _stored(network, model.Buffers(entry.Buffer()))
    content = None
    if stored is not None and kind in _WEIGHTS:
        content = stored.view(_WEIGHTS[kind]).reshape(shape)
    scale = float(np.max(scales, initial=0.0))
    return FlatbufferTensor(int(index), kind, shape, content, stored is not None, name, scale)


def _stored(network: bytes, buffer: Any) -> npt.NDArray[np.uint8] | None:
    """Return the bytes of a buffer, which lie outside of the tables in large files; None without any."""
    if buffer.Offset():
        return np.frombuffer(network, np.uint8, buffer.Size(), buffer.Offset())
    return None if buffer.DataIsNone() else np.asarray(buffer.DataAsNumpy(), np.uint8)
