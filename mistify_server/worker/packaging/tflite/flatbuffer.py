"""The parts of a converted network: its operators, their tensors, and its kernels."""

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from mistify.config.package.compression import GZIP, VALUES, ZEROS
from mistify.costs.budget import Costs
from mistify.tflite.combining import shape_of

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
    model = flatbuffer_utils.read_model_from_bytearray(network)
    graph = model.subgraphs[number]
    for operator in graph.operators:
        yield Operator(
            flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex) or "CUSTOM",
            tuple(_tensor(model, graph, index) for index in operator.inputs if index >= 0),
            tuple(_tensor(model, graph, index) for index in operator.outputs),
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
    model = flatbuffer_utils.read_model_from_bytearray(network)
    places = {
        tensor.buffer: (graph, index)
        for graph in model.subgraphs
        for index, tensor in enumerate(graph.tensors)
    }
    for graph, index in places.values():
        tensor = _tensor(model, graph, index)
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


def _tensor(model: Any, graph: Any, index: int) -> FlatbufferTensor:
    entry = graph.tensors[index]
    kind = flatbuffer_utils.type_to_name(entry.type)
    shape = shape_of(entry)
    name = (entry.name or b"").decode()
    scales = None if entry.quantization is None else entry.quantization.scale
    scale = 0.0 if scales is None else float(np.max(scales, initial=0.0))
    stored = model.buffers[entry.buffer].data
    content = None
    if stored is not None and kind in _WEIGHTS:
        content = np.asarray(stored, np.uint8).view(_WEIGHTS[kind]).reshape(shape)
    return FlatbufferTensor(int(index), kind, shape, content, stored is not None, name, scale)
