"""Integer tensors between the blocks of an int8 network.

The converter gives every graph float inputs and outputs with QUANTIZE and DEQUANTIZE operators. Between two
blocks, both operators are removed if the scales are equal except for rounding. If they differ, because a
variant has its own range, the operator stays and converts integers to integers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

#: Maximum relative difference of scales from the same range, measured on both sides of a boundary.
_ROUNDING: Final = 1e-4


@dataclass(frozen=True)
class _Conversion:
    """The operator between a float input or output of a graph and integers.

    Attributes:
        operator: QUANTIZE or DEQUANTIZE.
        floats: Index of the float tensor.
        integers: Index of the int8 tensor.
        tensors: The graph's inputs or outputs.
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
        """Return whether scale and zero point equal those of the integers, except for rounding.

        An output that shares the quantization of the graph's input, which is already fixed, has to match
        exactly: operators such as concatenation and pooling may require them to be equal.
        """
        own, first = self.quantization, self.graph.tensors[self.graph.inputs[0]]
        if self.tensors is self.graph.outputs and _is_int8(first) and _equal(first.quantization, own):
            return _equal(own, quantization)
        near = np.allclose(own.scale, quantization.scale, rtol=_ROUNDING, atol=0)
        return near and np.array_equal(own.zeroPoint, quantization.zeroPoint)

    def leave_out(self, quantization: Any) -> None:
        """Make the integers the input or output, and remove the operator.

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
        """Make integers with another scale and zero point the input or output.

        Args:
            code: Index of the operator QUANTIZE, which also accepts integers.
        """
        tensor = self.graph.tensors[self.floats]
        tensor.type, tensor.quantization = schema.TensorType.INT8, quantization
        self.operator.opcodeIndex = code
        self.operator.builtinOptionsType = schema.BuiltinOptions.NONE
        self.operator.builtinOptions = None


def pass_integers(network: Any, writers: Iterable[str], readers: Iterable[str]) -> None:
    """Make the graphs of a network exchange int8 instead of floats, if all of them can.

    Args:
        network: A network from `read_network` with one graph per block; modified in place.
        writers: Signatures of the blocks that write a tensor; the first one determines the scale.
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
    """Return the operator that quantizes a graph's input, if the input has no other use."""
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
    """Return the operator that dequantizes a graph's output, if the output has no other use."""
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
    """Return whether two tensors have exactly the same scales and zero points."""
    if one is None or one.scale is None:
        return False
    return np.array_equal(one.scale, other.scale) and np.array_equal(one.zeroPoint, other.zeroPoint)


def _code(network: Any, name: str) -> int:
    names = [flatbuffer_utils.opcode_to_name(network, number) for number in range(len(network.operatorCodes))]
    return names.index(name)


def _name(network: Any, operator: Any) -> str | None:
    name: str | None = flatbuffer_utils.opcode_to_name(network, operator.opcodeIndex)
    return name
