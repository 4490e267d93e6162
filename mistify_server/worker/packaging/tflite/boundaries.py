"""Integers between the blocks of an int8 network: each block reads what the one before writes.

The converter gives every graph float inputs and outputs, which it quantizes and dequantizes. Between two
blocks both operators are left out if the scales are the same except for rounding. If they differ, because a
variant has a range of its own, the operator stays and converts integers to integers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

#: Scales that differ by less, as a share, are of the same range, measured before and behind a boundary.
_ROUNDING: Final = 1e-4


@dataclass(frozen=True)
class _Conversion:
    """The operator at an end of a graph, between its float tensor there and integers.

    Attributes:
        operator: QUANTIZE or DEQUANTIZE.
        floats: Number of the float tensor.
        integers: Number of the int8 tensor.
        tensors: The graph's inputs, or its outputs.
        named: The inputs or outputs of the signature.
    """

    graph: Any
    operator: Any
    floats: int
    integers: int
    tensors: list[int]
    named: list[Any]

    @property
    def quantization(self) -> Any:
        """The scale and zero point of the integers."""
        return self.graph.tensors[self.integers].quantization

    def is_near(self, quantization: Any) -> bool:
        """Return whether a scale and zero point equal those of the integers, except for rounding.

        The answer is no if an output has the values of the graph's input, which is settled already: operators
        such as concatenations and poolings may need them to be equal.
        """
        own, first = self.quantization, self.graph.tensors[self.graph.inputs[0]]
        if self.tensors is self.graph.outputs and _is_int8(first) and _equal(first.quantization, own):
            return _equal(own, quantization)
        near = np.allclose(own.scale, quantization.scale, rtol=_ROUNDING, atol=0)
        return near and np.array_equal(own.zeroPoint, quantization.zeroPoint)

    def leave_out(self, quantization: Any) -> None:
        """Let the integers be the input or output.

        Args:
            quantization: A scale and zero point near those of the integers, shared by all tensors that have
                the same ones.
        """
        own = self.quantization
        self.graph.operators.remove(self.operator)
        for tensor in self.graph.tensors:
            if _equal(tensor.quantization, own):
                tensor.quantization = quantization
        self.tensors[:] = [self.integers]
        (self.named[0].tensorIndex,) = self.tensors

    def go_between(self, quantization: Any, code: int) -> None:
        """Let the input or output be integers of another scale and zero point.

        Args:
            code: Number of the operator QUANTIZE, which takes integers as well.
        """
        tensor = self.graph.tensors[self.floats]
        tensor.type, tensor.quantization = schema.TensorType.INT8, quantization
        self.operator.opcodeIndex = code
        self.operator.builtinOptionsType = schema.BuiltinOptions.NONE
        self.operator.builtinOptions = None


def pass_integers(network: Any, writers: Iterable[str], readers: Iterable[str]) -> None:
    """Let the graphs of a network pass each other int8 instead of floats, if all of them can.

    Args:
        network: Returned by `read_network`, with a graph for each block; it is changed.
        writers: Signatures of the blocks that write a tensor; the first one's scale is that of all.
        readers: Signatures of the blocks that read it.
    """
    by_key = {signature.signatureKey.decode(): signature for signature in network.signatureDefs}
    conversions = [_written(network, by_key[key]) for key in writers]
    conversions += [_read(network, by_key[key]) for key in readers]
    ends = [end for end in conversions if end is not None]
    if len(ends) < len(conversions):
        return
    quantization = ends[0].quantization
    for end in ends:
        if end.is_near(quantization):
            end.leave_out(quantization)
        else:
            end.go_between(quantization, _code(network, "QUANTIZE"))


def _read(network: Any, signature: Any) -> _Conversion | None:
    """Return the operator that quantizes a graph's input, if nothing else reads that, nor is it an output."""
    graph = network.subgraphs[signature.subgraphIndex]
    (read,) = graph.inputs
    readers = [operator for operator in graph.operators if read in operator.inputs]
    if len(readers) != 1 or read in graph.outputs or _name(network, readers[0]) != "QUANTIZE":
        return None
    made = readers[0].outputs[0]
    if not _is_int8(graph.tensors[made]):
        return None
    return _Conversion(graph, readers[0], read, made, graph.inputs, signature.inputs)


def _written(network: Any, signature: Any) -> _Conversion | None:
    """Return the operator that makes a graph's output from integers, if nothing else needs that."""
    graph = network.subgraphs[signature.subgraphIndex]
    (returned,) = graph.outputs
    makers = [operator for operator in graph.operators if returned in operator.outputs]
    read = any(returned in operator.inputs for operator in graph.operators)
    if len(makers) != 1 or read or _name(network, makers[0]) != "DEQUANTIZE":
        return None
    made = makers[0].inputs[0]
    if not _is_int8(graph.tensors[made]):
        return None
    return _Conversion(graph, makers[0], returned, made, graph.outputs, signature.outputs)


def _is_int8(tensor: Any) -> bool:
    return bool(tensor.type == schema.TensorType.INT8)


def _equal(one: Any, other: Any) -> bool:
    """Return whether a tensor has the scales and zero points of another, to the last bit."""
    if one is None or one.scale is None:
        return False
    return np.array_equal(one.scale, other.scale) and np.array_equal(one.zeroPoint, other.zeroPoint)


def _code(network: Any, name: str) -> int:
    names = [flatbuffer_utils.opcode_to_name(network, number) for number in range(len(network.operatorCodes))]
    return names.index(name)


def _name(network: Any, operator: Any) -> str | None:
    name: str | None = flatbuffer_utils.opcode_to_name(network, operator.opcodeIndex)
    return name
