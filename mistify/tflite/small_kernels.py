"""Small kernels of networks whose weights are integers, but whose activations are floats."""

from collections.abc import Iterator
from math import prod
from typing import Any, Final

from ai_edge_litert import schema_py_generated as schema

from mistify.tflite.combining import read_network
from mistify.tflite.constants import constant_content, drop_unused_buffers, is_constant, replace_constant
from mistify.tflite.packing import packed

__all__ = ["with_float_kernels"]

_Builtin: Final = schema.BuiltinOperator

#: Operators that read an activation, and then a kernel.
_KINDS: Final = (_Builtin.CONV_2D, _Builtin.DEPTHWISE_CONV_2D, _Builtin.FULLY_CONNECTED)

_HYBRID: Final = (schema.TensorType.FLOAT32, schema.TensorType.INT8)


def with_float_kernels(network: bytes, floats: bytes, least: int) -> bytes:
    """Return a network whose small kernels are those of the same network in float32.

    The converter keeps small kernels in float32, because integers save less time in them than rounding the
    activations takes. Those of a slice may have been large before it was cut.

    Args:
        network: Content of the `.tflite`.
        floats: Content of the `.tflite` of the same network in float32. A graph for which it has other
            operators stays as it is.
        least: Kernels with fewer elements become floats, unless activations are integers as well.
    """
    model, source = read_network(network), read_network(floats)
    replaced: dict[int, list[Any]] = {}
    contents: dict[int, Any] = {}
    for kernel, original in _pairs(model, source):
        if prod(kernel.shape) < least:
            replaced.setdefault(kernel.buffer, []).append(kernel)
            contents[kernel.buffer] = constant_content(source, original)
    for buffer, kernels in replaced.items():
        for kernel in kernels:
            kernel.type, kernel.quantization = schema.TensorType.FLOAT32, None
        replace_constant(model, kernels, contents[buffer])
    drop_unused_buffers(model)
    return packed(model)


def _pairs(model: Any, source: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the kernels of operators that read floats, and the same kernels of a network in float32."""
    for graph, other in zip(model.subgraphs, source.subgraphs, strict=True):
        own, others = _linear(model, graph), _linear(source, other)
        shapes, expected = ([list(kernel.shape) for _, kernel in operators] for operators in (own, others))
        if shapes != expected:
            continue
        for (activation, kernel), (_, original) in zip(own, others, strict=True):
            if (activation.type, kernel.type) == _HYBRID and is_constant(model, kernel):
                yield kernel, original


def _linear(model: Any, graph: Any) -> list[tuple[Any, Any]]:
    """Return the activation and the kernel of each linear operator of a graph."""
    return [
        (graph.tensors[operator.inputs[0]], graph.tensors[operator.inputs[1]])
        for operator in graph.operators
        if model.operatorCodes[operator.opcodeIndex].builtinCode in _KINDS
    ]
