"""The constants of a network: their content, replaced or scaled."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

__all__ = ["constant_content", "drop_unused_buffers", "is_constant", "replace_constant", "scaled_constant"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

_TYPES: Final[Mapping[int, type[np.generic]]] = {
    schema.TensorType.FLOAT32: np.float32,
    schema.TensorType.FLOAT16: np.float16,
    schema.TensorType.INT8: np.int8,
    schema.TensorType.INT32: np.int32,
}


def constant_content(model: Any, tensor: Any) -> Array:
    """Return a constant in the shape of its tensor; copy it before changes, as it may be part of a file."""
    data = np.asarray(model.buffers[tensor.buffer].data, np.uint8)
    return data.view(_TYPES[tensor.type]).reshape(tensor.shape)


def is_constant(model: Any, tensor: Any) -> bool:
    """Check whether a tensor has a content of numbers in the file."""
    data, kind = model.buffers[tensor.buffer].data, _TYPES.get(tensor.type)
    return data is not None and kind is not None and len(data) == np.dtype(kind).itemsize * prod(tensor.shape)


def replace_constant(model: Any, tensors: Sequence[Any], content: Array) -> None:
    """Give tensors separate buffers, because other tensors may share their buffers."""
    for tensor in tensors:
        tensor.buffer, tensor.shape = len(model.buffers), np.array(content.shape, np.int32)
    model.buffers.append(schema.BufferT(data=np.ascontiguousarray(content).reshape(-1).view(np.uint8)))


def scaled_constant(content: Array, quantization: Any, axis: int, scale: Floats) -> Array:
    """Return a constant times a scale for each entry of an axis; of integers, the quantization steps."""
    if np.issubdtype(content.dtype, np.integer):
        steps = np.broadcast_to(np.asarray(quantization.scale, np.float32), scale.shape)
        quantization.scale, quantization.quantizedDimension = steps * scale, axis
        quantization.zeroPoint = np.zeros(scale.size, np.int64)
        return content
    factors = scale.reshape([-1 if number == axis else 1 for number in range(content.ndim)])
    return np.multiply(content, factors, dtype=np.float32).astype(content.dtype, copy=False)


def drop_unused_buffers(model: Any) -> None:
    """Empty unused buffers; the numbers of the others do not change."""
    used = {tensor.buffer for graph in model.subgraphs for tensor in graph.tensors}
    used |= {entry.buffer for entry in model.metadata or ()}
    for number, buffer in enumerate(model.buffers):
        if number not in used:
            buffer.data = None
