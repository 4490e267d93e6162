"""Linear operators of a network: convolutions and products, with their kernel and bias."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from mistify.tflite.constants import constant_content, replace_constant, scaled_constant

__all__ = ["LinearOperator", "linear_operator", "transform"]

Floats = npt.NDArray[np.float32]

_Builtin: Final = schema.BuiltinOperator

#: Kind -> the axis of the kernel that numbers output channels; the inputs with the kernel and the bias.
_KINDS: Final[Mapping[int, tuple[int, int, int]]] = {
    _Builtin.CONV_2D: (0, 1, 2),
    _Builtin.DEPTHWISE_CONV_2D: (3, 1, 2),
    _Builtin.FULLY_CONNECTED: (0, 1, 2),
    _Builtin.TRANSPOSE_CONV: (0, 1, 3),
}

_FLOATS: Final = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16)


@dataclass(frozen=True, eq=False)
class LinearOperator:
    """A linear operator whose kernel and bias are constants that no other operator of its graph reads.

    Attributes:
        kernel: The tensor that stores the kernel, perhaps in float16 or int8.
        bias: The tensor that stores the bias, perhaps in float16.
        axis: The kernel's axis of output channels.
        output: Number of the tensor that it computes.
    """

    kernel: Any
    bias: Any
    axis: int
    output: int

    def values(self, model: Any) -> tuple[Floats, Floats]:
        """Return the kernel [channels, ...] and the bias [channels] in float32."""
        kernel = constant_content(model, self.kernel).astype(np.float32)
        kernel = np.moveaxis(kernel, self.axis, 0)
        if self.kernel.type not in _FLOATS:
            steps = np.asarray(self.kernel.quantization.scale, np.float32)
            kernel = kernel * steps.reshape(-1, *[1] * (kernel.ndim - 1))
        return kernel, constant_content(model, self.bias).astype(np.float32)


def transform(model: Any, operators: Sequence[LinearOperator], scale: Floats, shift: Floats) -> None:
    """Make operators compute `scale * y + shift` in place of y, both [channels].

    Args:
        operators: Copies of one operator in several graphs; they go on sharing their constants.
    """
    first = operators[0]
    kernel, bias = constant_content(model, first.kernel), constant_content(model, first.bias)
    quantization = first.kernel.quantization
    kernel = scaled_constant(kernel, quantization, first.axis, scale)
    for operator in operators:
        operator.kernel.quantization = quantization
    replace_constant(model, [operator.kernel for operator in operators], kernel)
    replace_constant(
        model, [operator.bias for operator in operators], (bias * scale + shift).astype(bias.dtype)
    )


def linear_operator(model: Any, graph: Any, number: int) -> LinearOperator | None:
    """Return a linear operator of a graph by its number; None if it is not one, or shares its constants.

    Args:
        model: Returned by `read_network`.
        graph: One of the network's graphs.
        number: Number of the operator in the graph.
    """
    operator = graph.operators[number]
    kind = _KINDS.get(model.operatorCodes[operator.opcodeIndex].builtinCode)
    if kind is None:
        return None
    axis, *inputs = kind
    stored = [_stored(model, graph, operator, place) for place in inputs]
    if any(tensor is None for tensor in stored):
        return None
    kernel, bias = stored
    return LinearOperator(kernel, bias, axis, int(operator.outputs[0]))


def _stored(model: Any, graph: Any, operator: Any, place: int) -> Any:
    """Return the tensor that stores an operator's own input; None if it is not a constant, or is shared."""
    number = int(operator.inputs[place]) if place < len(operator.inputs) else -1
    if number < 0 or _readers(graph, number) != 1:
        return None
    if model.buffers[graph.tensors[number].buffer].data is None:
        widened = _widened_from(model, graph, number)
        if widened is None or _readers(graph, widened) != 1:
            return None
        number = widened
    tensor = graph.tensors[number]
    return tensor if tensor.type in (*_FLOATS, schema.TensorType.INT8) else None


def _readers(graph: Any, tensor: int) -> int:
    return sum(int(np.sum(np.asarray(one.inputs) == tensor)) for one in graph.operators)


def _widened_from(model: Any, graph: Any, tensor: int) -> int | None:
    """Return the constant from which DEQUANTIZE computes a tensor; None if another operator does."""
    for operator in graph.operators:
        if tensor in operator.outputs:
            code = model.operatorCodes[operator.opcodeIndex].builtinCode
            number = int(operator.inputs[0])
            stored = model.buffers[graph.tensors[number].buffer].data is not None
            return number if code == _Builtin.DEQUANTIZE and stored else None
    return None
