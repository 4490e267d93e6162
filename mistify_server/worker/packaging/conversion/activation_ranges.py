"""Ranges of an integer network's activations that suit its slices, rather than the network as a whole.

A network whose units are all open serves no task, and its activations reach further than those of slices:
with their scales, a small slice would use a few of 256 integers. So each activation gets the union of the
ranges that it has in slices converted by themselves.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from mistify.package.cut_places import TensorPlace
from mistify.tflite.combining import read_network
from mistify.tflite.packing import packed
from mistify_server.worker.packaging.conversion.pairing import builtin_code, paired

#: The integers that an activation has.
_LOWEST, _HIGHEST = -128, 127

#: The position of the activation among the inputs of an operator whose kernel is the one beside it.
_ACTIVATION: Final = {schema.BuiltinOperator.TRANSPOSE_CONV: 2}


class _Range(NamedTuple):
    """The least and the largest value of an activation."""

    least: float
    largest: float

    @classmethod
    def of(cls, quantization: Any) -> "_Range":
        scale, zero = float(quantization.scale[0]), int(quantization.zeroPoint[0])
        return cls((_LOWEST - zero) * scale, (_HIGHEST - zero) * scale)

    def union(self, other: "_Range") -> "_Range":
        return _Range(min(self.least, other.least), max(self.largest, other.largest))

    def quantization(self) -> Any:
        """Return the scale and zero point of the integers; zero is one of them exactly."""
        scale = np.float32((self.largest - self.least) / (_HIGHEST - _LOWEST))
        zero = int(np.clip(round(_LOWEST - self.least / scale), _LOWEST, _HIGHEST))
        return schema.QuantizationParametersT(scale=np.array([scale], np.float32), zeroPoint=np.array([zero]))


def with_ranges_of(network: bytes, slices: Iterable[bytes]) -> bytes:
    """Return an int8 network whose activations have the ranges that they have in slices of it.

    Args:
        network: Content of the `.tflite`, converted in int8.
        slices: Narrower networks, each converted in the same way. One for which the converter uses other
            operators does not count.
    """
    whole = read_network(network)
    ranges = _ranges(whole, slices)
    before = {place: tensor.quantization for place, tensor in _activations(whole)}
    for place, tensor in _activations(whole):
        if place in ranges:
            tensor.quantization = ranges[place].quantization()
    _rescale_biases(whole, before)
    return packed(whole)


def _ranges(whole: Any, slices: Iterable[bytes]) -> dict[TensorPlace, _Range]:
    """Return the union of the ranges that each activation has in slices."""
    ranges: dict[TensorPlace, _Range] = {}
    for content in slices:
        narrower = read_network(content)
        try:
            pairs = [
                paired(whole, own, narrower, other)
                for own, other in zip(whole.subgraphs, narrower.subgraphs, strict=True)
            ]
        except ValueError:
            continue
        for (graph, number), _ in _activations(whole):
            tensor = narrower.subgraphs[graph].tensors[pairs[graph][number]]
            own_range = _Range.of(tensor.quantization)
            ranges[graph, number] = ranges.get((graph, number), own_range).union(own_range)
    return ranges


def _activations(network: Any) -> Iterator[tuple[TensorPlace, Any]]:
    """Yield the int8 tensors that are computed, or given, when a network runs."""
    for graph, own in enumerate(network.subgraphs):
        for number, tensor in enumerate(own.tensors):
            is_constant = network.buffers[tensor.buffer].data is not None
            if tensor.type == schema.TensorType.INT8 and not is_constant:
                yield (graph, number), tensor


def _rescale_biases(network: Any, before: dict[TensorPlace, Any]) -> None:
    """Give biases the scale of their activation's new one times the kernel's."""
    for graph, own in enumerate(network.subgraphs):
        for operator in own.operators:
            position = _ACTIVATION.get(builtin_code(network, operator), 0)
            activation = (graph, int(operator.inputs[position]))
            if activation not in before:
                continue
            new, old = own.tensors[activation[1]].quantization, before[activation]
            factor = float(new.scale[0]) / float(old.scale[0])
            for number in operator.inputs:
                if number >= 0 and _is_bias(network, own.tensors[number]):
                    _rescale(network, own.tensors[number], factor)


def _is_bias(network: Any, tensor: Any) -> bool:
    quantized = tensor.quantization is not None and tensor.quantization.scale is not None
    return (
        tensor.type == schema.TensorType.INT32
        and quantized
        and network.buffers[tensor.buffer].data is not None
    )


def _rescale(network: Any, tensor: Any, factor: float) -> None:
    """Multiply a bias's scale by a factor, and keep its values; its buffer may be others' as well."""
    integers = np.asarray(network.buffers[tensor.buffer].data, np.uint8).view(np.int32)
    tensor.buffer = len(network.buffers)
    content = np.round(integers / factor).astype(np.int32)
    network.buffers.append(schema.BufferT(data=content.view(np.uint8)))
    old = tensor.quantization
    tensor.quantization = schema.QuantizationParametersT(
        scale=(np.asarray(old.scale) * factor).astype(np.float32),
        zeroPoint=old.zeroPoint,
        quantizedDimension=old.quantizedDimension,
    )
