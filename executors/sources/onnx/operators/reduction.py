"""Means, sums and extremes along axes."""

import keras

from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Argument, Node, operator, optional, tensor
from executors.sources.onnx.values import Value

#: Operator -> function of `keras.ops`.
_FUNCTIONS = {
    "ReduceMax": "max",
    "ReduceMean": "mean",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceSum": "sum",
}


def _positions_pooled(builder: Builder, node: Node, value: Value, axes: list[int]) -> Value | None:
    """Return a mean over all positions of an image as a pooling layer; None for other reductions."""
    if node.operator != "ReduceMean" or value.rank != 4 or axes != [2, 3]:
        return None
    value = builder.channels_last(value)
    layer = keras.layers.GlobalAveragePooling2D(keepdims=True, name=builder.plain(node))
    return value.with_tensor(layer(value.tensor), not_negative=value.not_negative)


@operator(*_FUNCTIONS)
def reduce(builder: Builder, node: Node, data: Argument, axes: Argument = None) -> Value:
    """Reduce axes, which are an attribute in early versions; all but the batch by default."""
    value = builder.ordered(tensor(data))
    listed = optional(axes, "axes")
    chosen = node.get("axes") if listed is None else [int(axis) for axis in listed.reshape(-1)]
    if chosen is None and node.get("noop_with_empty_axes", 0):
        return value
    reduced = sorted({axis % value.rank for axis in (chosen or range(value.rank))})
    if value.batch in reduced:
        raise UnsupportedNodeError("combines the examples of a batch")
    result = _positions_pooled(builder, node, value, reduced)
    if result is None:
        places = sorted(value.position(axis) for axis in reduced)
        made = getattr(keras.ops, _FUNCTIONS[node.operator])(value.tensor, axis=tuple(places), keepdims=True)
        result = value.with_tensor(made, not_negative=value.not_negative)
    return result if node.get("keepdims", 1) else without(builder, result, reduced)


@operator("ArgMax", "ArgMin")
def position_of_extreme(builder: Builder, node: Node, data: Argument) -> Value:
    """Return the index of the largest or smallest entry along an axis."""
    value = builder.ordered(tensor(data))
    axis = node.get("axis", 0) % value.rank
    if axis == value.batch:
        raise UnsupportedNodeError("combines the examples of a batch")
    find = keras.ops.argmax if node.operator == "ArgMax" else keras.ops.argmin
    place, entries = value.position(axis), value.tensor
    if node.get("select_last_index", 0):
        reversed_ = find(keras.ops.flip(entries, axis=place), axis=place, keepdims=True)
        result = value.with_tensor(keras.ops.subtract(value.size(axis) - 1, reversed_))
    else:
        result = value.with_tensor(find(entries, axis=place, keepdims=True))
    return result if node.get("keepdims", 1) else without(builder, result, [axis])


def without(builder: Builder, value: Value, axes: list[int]) -> Value:
    """Return a value without some ONNX axes of size 1."""
    value = builder.ordered(value)
    kept = [place for place, axis in enumerate(value.axes) if axis not in axes]
    shape = [value.tensor.shape[place] for place in kept]
    left = sorted(value.axes[place] for place in kept)
    tensor_ = builder.reshaped(value.tensor, shape[1:])
    return Value(
        tensor_, tuple(left.index(value.axes[place]) for place in kept), not_negative=value.not_negative
    )
