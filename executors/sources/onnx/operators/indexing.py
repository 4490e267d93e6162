"""Operators that place or select entries by computed indices."""

import keras
import numpy as np

from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Argument, Node, constant, operator, tensor
from executors.sources.onnx.values import Value

layers = keras.layers

#: Most products of entries and of whether an index is theirs, for each example.
_MOST_PRODUCTS = 2**22


def _one_hot(builder: Builder, indices: Value, depth: int) -> Value:
    """Return float32 vectors with a one at each index, which may be negative, along a new last axis."""
    value = builder.as_in_onnx(indices)
    entries = value.tensor
    if entries.dtype != "int32":
        raise UnsupportedNodeError("has indices that are no integers")
    counted = keras.ops.where(keras.ops.less(entries, 0), keras.ops.add(entries, depth), entries)
    return Value(keras.ops.one_hot(counted, depth), (*value.axes, value.rank), not_negative=True)


@operator("OneHot")
def one_hot(builder: Builder, node: Node, indices: Argument, depth: Argument, values: Argument) -> Value:
    """Return vectors with one value at an index, and another one elsewhere."""
    value, size = tensor(indices), int(constant(depth, "depth").reshape(-1)[0])
    off, on = constant(values, "values").reshape(-1)
    made = _one_hot(builder, value, size)
    result = made.tensor
    if (off, on) != (0, 1):
        result = layers.Rescaling(float(on) - float(off), float(off), name=builder.plain(node))(result)
    if np.issubdtype(on.dtype, np.integer):
        result = keras.ops.cast(result, "int32")
    added = node.get("axis", -1) % made.rank
    kept = [axis for axis in range(made.rank) if axis != added]
    axes = (*(kept[axis] for axis in made.axes[:-1]), added)
    return Value(result, axes, not_negative=min(off, on) >= 0)


@operator("GatherElements")
def gather_elements(builder: Builder, node: Node, data: Argument, indices: Argument) -> Value:
    """Select entries along an axis by computed indices, as sums of products with ones and zeros."""
    value, places = builder.as_in_onnx(tensor(data)), builder.as_in_onnx(tensor(indices))
    axis = node.get("axis", 0) % value.rank
    if axis == value.batch or value.axes != places.axes or value.batch != 0:
        raise UnsupportedNodeError("combines the examples of a batch")
    if value.tensor.dtype != "float32":
        raise UnsupportedNodeError("selects integers; expected floats")
    for other in range(1, value.rank):
        if other != axis and places.size(other) != value.size(other):
            raise UnsupportedNodeError("selects along several axes; expected one")
    size = value.size(axis)
    products = size * int(np.prod(places.tensor.shape[1:]))
    if products > _MOST_PRODUCTS:
        raise UnsupportedNodeError(
            f"selects by {products:,} products for each example; expected at most {_MOST_PRODUCTS:,}"
        )
    selects = _one_hot(builder, places, size).tensor
    letters = "abcdefgh"[: value.rank]
    read = letters.replace(letters[axis], "z")
    result = keras.ops.einsum(f"{letters}z,{read}->{letters}", selects, value.tensor)
    return value.with_tensor(result, not_negative=value.not_negative)
