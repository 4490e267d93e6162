"""A network converted once, into whose file the widths and weights of networks like it are written.

Writing takes milliseconds, conversion half a second or more. The file is the one that the converter makes:
`template_making` accepts a template only if it gives a second conversion to the bit.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from executors.structure import Structure, Widths
from executors.structure.folding import folded_weights
from mistify.package.cut_places import TensorPlace
from mistify.tflite.packing import packed
from mistify_server.worker.packaging.conversion.template_sizes import Size

Array = npt.NDArray[Any]

#: Weights of layers, batch norm folded, in their order, by the name of the layer.
FoldedWeights = Mapping[str, Sequence[Array]]

#: The name of a layer, and the number of one of its weights.
WeightKey = tuple[str, int]

#: The largest int8, and the largest float16, to which the converter clips weights.
_HIGHEST: Final = 127
_LARGEST_HALF: Final = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class FollowingSize:
    """A length of an axis, or an element of a constant that holds a shape, which follows the widths.

    Attributes:
        tensor: The tensor with the axis, or the constant.
        index: The axis, or the place of the element in the flattened constant.
        size: The size at any widths.
    """

    tensor: TensorPlace
    index: int
    size: Size


@dataclass(frozen=True)
class HeldWeight:
    """The weight that a constant holds.

    Attributes:
        layer: The name of its layer.
        number: Its number among those of the layer.
        order: The order of its axes in the constant.
    """

    layer: str
    number: int
    order: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class WrittenConstant:
    """A constant of the file that is written for each network.

    Attributes:
        tensors: The tensors that hold it, usually one in each graph.
        held: The weight that it holds, or an array of the only number that it holds, such as the bias of a
            layer without one.
        is_kernel: Whether only linear operators read it, as their kernel.
    """

    tensors: tuple[TensorPlace, ...]
    held: HeldWeight | Array
    is_kernel: bool


@dataclass(frozen=True, eq=False)
class ConversionTemplate:
    """A converted network, and what its file holds where.

    Attributes:
        network: Read from its file; it must not be changed.
        lengths: The lengths of axes that follow the widths.
        elements: The elements of constant shapes that follow the widths.
        constants: The constants that depend on weights or widths, each with a buffer of its own.
        fixed: Weights that networks must have in common, as the converter may compute constants from them.
        least_kernel: Number of elements below which a kernel is stored in float32; 0 without a limit.
    """

    network: Any
    lengths: tuple[FollowingSize, ...]
    elements: tuple[FollowingSize, ...]
    constants: tuple[WrittenConstant, ...]
    fixed: Mapping[WeightKey, Array]
    least_kernel: int = 0

    def written(self, structure: Structure) -> bytes | None:
        """Return the `.tflite` of a network; None if it needs the converter.

        Args:
            structure: The structure of the network, which has its weights, and the template's architecture.
        """
        return self.with_weights(folded_weights(structure.graph), structure.widths)

    def with_weights(self, weights: FoldedWeights, widths: Widths) -> bytes | None:
        """Return the `.tflite` with other weights and widths; None if it needs the converter."""
        if not all(_same_values(weights[layer][at], array) for (layer, at), array in self.fixed.items()):
            return None
        model = _copied(self.network)
        small = {one: _is_small(model, one, self.least_kernel) for one in self.constants}
        self._resize(model, widths)
        for one in self.constants:
            if small[one] and not _is_small(model, one, self.least_kernel):
                return None  # the converter would store it as integers
            _write(model, one, weights, self.least_kernel)
        return packed(model)

    def _resize(self, model: Any, widths: Widths) -> None:
        """Set the sizes that follow the widths."""
        for graph in model.subgraphs:
            for tensor in graph.tensors:
                tensor.shape, tensor.shapeSignature = map(_writable, (tensor.shape, tensor.shapeSignature))
        for one in self.lengths:
            tensor = _tensor(model, one.tensor)
            tensor.shape[one.index] = one.size.at(widths)
            if tensor.shapeSignature is not None:
                tensor.shapeSignature[one.index] = one.size.at(widths)
        for one in self.elements:
            buffer = model.buffers[_tensor(model, one.tensor).buffer]
            content = np.array(buffer.data, np.uint8).view(np.int32)
            content[one.index] = one.size.at(widths)
            buffer.data = content.view(np.uint8)


def _copied(network: Any) -> Any:
    """Return a network whose tensors and buffers can be changed; reading it from its file takes longer."""
    model = copy(network)
    model.buffers, model.subgraphs = list(map(copy, network.buffers)), list(map(copy, network.subgraphs))
    for graph in model.subgraphs:
        graph.tensors = list(map(copy, graph.tensors))
    return model


def _writable(sizes: Any) -> Any:
    return None if sizes is None else np.array(sizes, np.int32)


def _tensor(model: Any, place: TensorPlace) -> Any:
    graph, number = place
    return model.subgraphs[graph].tensors[number]


def _is_small(model: Any, constant: WrittenConstant, least: int) -> bool:
    """Check whether a constant is a kernel of fewer elements than a number."""
    return constant.is_kernel and prod(_tensor(model, constant.tensors[0]).shape) < least


def _write(model: Any, constant: WrittenConstant, weights: FoldedWeights, least_kernel: int) -> None:
    """Write a constant into tensors that have its shape."""
    tensors, held = [_tensor(model, place) for place in constant.tensors], constant.held
    first = tensors[0]
    if isinstance(held, HeldWeight):
        kind, quantization = first.type, first.quantization
        if kind == schema.TensorType.INT8 and _is_small(model, constant, least_kernel):
            kind, quantization = schema.TensorType.FLOAT32, None
        values = weights[held.layer][held.number].transpose(held.order).reshape(first.shape)
        content, quantization = encoded(values, kind, quantization)
        for tensor in tensors:
            tensor.type, tensor.quantization = kind, quantization
    else:
        content = np.full(first.shape, held)
    model.buffers[first.buffer].data = np.ascontiguousarray(content).reshape(-1).view(np.uint8)


def encoded(values: Array, kind: int, quantization: Any) -> tuple[Array, Any]:
    """Return a weight as the converter stores it, with its quantization.

    Args:
        values: The weight, in the shape of its tensor.
        kind: The type of the tensor, a `schema.TensorType`: float32, float16 or int8.
        quantization: The quantization of a tensor like it; with several scales, each output channel has one.
    """
    match kind:
        case schema.TensorType.FLOAT16:
            return np.clip(values, -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16), quantization
        case schema.TensorType.INT8:
            return _quantized(values, quantization)
        case _:
            return values.astype(np.float32, copy=False), quantization


def _quantized(values: Array, quantization: Any) -> tuple[Array, Any]:
    """Return integers, symmetric around zero, and their scales."""
    channels = quantization.quantizedDimension if len(quantization.scale) > 1 else None
    others = tuple(axis for axis in range(values.ndim) if axis != channels)
    largest = np.abs(values).max(axis=others, keepdims=True).astype(np.float64)
    steps = np.where(largest > 0, largest / _HIGHEST, 1.0)
    in_steps = values / steps
    integers = np.trunc(in_steps + np.copysign(0.5, in_steps)).astype(np.int8)
    scale = steps.astype(np.float32).ravel()
    stored = schema.QuantizationParametersT(
        scale=scale,
        zeroPoint=np.zeros(scale.size, np.int64),
        quantizedDimension=quantization.quantizedDimension,
    )
    return integers, stored


def _same_values(one: Array, other: Array) -> bool:
    """Check whether arrays are equal, or have the same number everywhere, perhaps in another shape."""
    if one.shape == other.shape:
        return bool(np.array_equal(one, other))
    first = other.flat[0]
    return one.ndim == other.ndim and bool(np.all(one == first) and np.all(other == first))
