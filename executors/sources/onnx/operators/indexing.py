"""Operators that place or select entries by computed indices."""

from dataclasses import replace
from math import prod

import keras
import numpy as np

from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.operators.places import by_example, one_hot_of, selecting
from executors.sources.onnx.operators.selection import gather
from executors.sources.onnx.operators.shapes import reshaped_to
from executors.sources.onnx.registry import Argument, Node, constant, operator, tensor
from executors.sources.onnx.values import Places, Value

layers = keras.layers


@operator("OneHot")
def one_hot(builder: Builder, node: Node, indices: Argument, depth: Argument, values: Argument) -> Value:
    """Return vectors with one value at an index, and another one elsewhere."""
    value, size = tensor(indices), int(constant(depth, "depth").reshape(-1)[0])
    off, on = constant(values, "values").reshape(-1)
    made = one_hot_of(builder, value, size)
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
    for other in range(1, value.rank):
        if other != axis and places.size(other) != value.size(other):
            raise UnsupportedNodeError("selects along several axes; expected one")
    selects = selecting(builder, value, axis, places)
    letters = "abcdefgh"[: value.rank]
    read = letters.replace(letters[axis], "z")
    result = keras.ops.einsum(f"{letters}z,{read}->{letters}", selects, value.tensor)
    return value.with_tensor(result, not_negative=value.not_negative)


@operator("GatherND")
def gather_nd(builder: Builder, node: Node, data: Argument, indices: Argument) -> Value:
    """Select entries by constant indices along the first axes, or by a computed one in each example."""
    value, leading = tensor(data), node.get("batch_dims", 0)
    if isinstance(indices, Places) and not leading:
        return by_example(builder, value, indices)
    if isinstance(indices, Value) and leading == 1 and indices.shape[-1] == 1:
        within = reshaped_to(builder, indices, indices.shape[:-1])
        return by_example(builder, value, Places(within, None))
    chosen = constant(indices, "index")
    depth = chosen.shape[-1]
    if leading or value.batch < depth:
        raise UnsupportedNodeError("selects examples of a batch")
    sizes = [int(size or 1) for size in value.shape[:depth]]
    places = np.ravel_multi_index(tuple(np.moveaxis(chosen % sizes, -1, 0)), sizes)
    flat = reshaped_to(builder, value, (prod(sizes), *value.shape[depth:]))
    selected: Value = gather(builder, replace(node, attributes={"axis": 0}), flat, np.asarray(places))
    return selected
