"""Signatures with batch 1 in addition to signatures with a free batch, because accelerators cannot resize.

Each has a separate graph, a copy that shares the weights of the original one. Shapes that LiteRT computes at
run time in the original are constants in the copy.
"""

from copy import copy
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils

from mistify.package.manifest import fixed_batch_signature
from mistify.tflite.combining import shape_of
from mistify.tflite.packing import packed
from mistify_server.worker.packaging.tflite.runner import Example

#: Operators that prevent fixed shapes: their shapes depend on values, or belong to other graphs.
_UNFIXABLE = frozenset({"WHERE", "UNIQUE", "IF", "WHILE"})

_INTEGERS = (schema.TensorType.INT32, schema.TensorType.INT64)


def with_fixed_batch(network: bytes) -> bytes:
    """Add a signature with fixed shapes for each one with a free batch, where shapes can be fixed.

    Their graphs and signatures come last in the file, so that `mistify.tflite.resizable` can omit them.
    """
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(network))
    for free in list(model.signatureDefs):
        graph = model.subgraphs[free.subgraphIndex]
        if any(_name(model, operator) in _UNFIXABLE for operator in graph.operators):
            continue
        key = free.signatureKey.decode()
        fixed = _fixed(model, graph, Example(network, key, free.subgraphIndex))
        signature = copy(free)
        signature.signatureKey = fixed.name = fixed_batch_signature(key).encode()
        signature.subgraphIndex = len(model.subgraphs)
        model.subgraphs.append(fixed)
        model.signatureDefs.append(signature)
    return packed(model)


def _fixed(model: Any, graph: Any, example: Example) -> Any:
    """Return a copy of a graph for one example, and add buffers of new constants to the model."""
    computed = _computed_of_shapes(model, graph)
    operators = [one for one in graph.operators if not computed.issuperset(one.outputs)]
    constants = computed.intersection(index for one in operators for index in one.inputs)
    fixed = copy(graph)
    fixed.operators = operators
    shapes = example.shapes()
    fixed.tensors = [_tensor(tensor, shapes.get(index)) for index, tensor in enumerate(graph.tensors)]
    for index in constants:
        fixed.tensors[index] = copy(fixed.tensors[index])
        fixed.tensors[index].buffer = len(model.buffers)
        model.buffers.append(schema.BufferT(data=example.value(index).ravel().view(np.uint8)))
    return fixed


def _tensor(tensor: Any, shape: list[int] | None) -> Any:
    """Return a tensor with a fixed shape, or the tensor itself if it already has that shape."""
    if shape is None or (tensor.shapeSignature is None and list(tensor.shape) == shape):
        return tensor
    fixed = copy(tensor)
    fixed.shape, fixed.shapeSignature = shape, None
    return fixed


def _computed_of_shapes(model: Any, graph: Any) -> set[int]:
    """Return the indices of integer tensors that are computed from shapes."""
    constants = {
        index for index, one in enumerate(graph.tensors) if model.buffers[one.buffer].data is not None
    }
    computed: set[int] = set()
    for operator in graph.operators:
        inputs = {index for index in operator.inputs if index >= 0}
        of_shapes = inputs & computed and inputs <= computed | constants
        if _name(model, operator) == "SHAPE" or of_shapes:
            computed.update(index for index in operator.outputs if _is_shape(graph.tensors[index]))
    return computed - set(graph.outputs)


def _is_shape(tensor: Any) -> bool:
    """Return whether a tensor may be a shape or an element of one."""
    return tensor.type in _INTEGERS and len(shape_of(tensor)) <= 1


def _name(model: Any, operator: Any) -> str | None:
    name: str | None = flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex)
    return name
