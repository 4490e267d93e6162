"""Means, sums, running sums, norms and extremes along axes."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import keras

from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Argument, Node, constant, operator, optional, tensor
from executors.sources.onnx.values import Value


def _sum(entries: Any, axis: tuple[int, ...], *, of: Callable[[Any], Any]) -> Any:
    """Return the sum of a function of the entries."""
    return keras.ops.sum(of(entries), axis=axis, keepdims=True)


def _l2_norm(entries: Any, axis: tuple[int, ...]) -> Any:
    return keras.ops.sqrt(_sum(entries, axis, of=keras.ops.square))


def _log_sum(entries: Any, axis: tuple[int, ...]) -> Any:
    return keras.ops.log(keras.ops.sum(entries, axis=axis, keepdims=True))


#: Operator -> function of a tensor and of the places that it reduces to size 1.
_REDUCTIONS: Final[dict[str, Callable[[Any, tuple[int, ...]], Any]]] = {
    "ReduceL1": partial(_sum, of=keras.ops.abs),
    "ReduceL2": _l2_norm,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": partial(keras.ops.logsumexp, keepdims=True),
    "ReduceMax": partial(keras.ops.max, keepdims=True),
    "ReduceMean": partial(keras.ops.mean, keepdims=True),
    "ReduceMin": partial(keras.ops.min, keepdims=True),
    "ReduceProd": partial(keras.ops.prod, keepdims=True),
    "ReduceSum": partial(keras.ops.sum, keepdims=True),
    "ReduceSumSquare": partial(_sum, of=keras.ops.square),
}

#: Results of integers would be rounded.
_OF_FLOATS: Final = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")

_NOT_NEGATIVE: Final = ("ReduceL1", "ReduceL2", "ReduceSumSquare")
_OF_ANY_SIGN: Final = ("ReduceLogSum", "ReduceLogSumExp")


def _positions_pooled(builder: Builder, node: Node, value: Value, axes: list[int]) -> Value | None:
    """Return a mean over all positions of an image as a pooling layer; None for other reductions."""
    if node.operator != "ReduceMean" or value.rank != 4 or axes != [2, 3]:
        return None
    value = builder.channels_last(value)
    layer = keras.layers.GlobalAveragePooling2D(keepdims=True, name=builder.plain(node))
    return value.with_tensor(layer(value.tensor), not_negative=value.not_negative)


@operator(*_REDUCTIONS)
def reduce(builder: Builder, node: Node, data: Argument, axes: Argument = None) -> Value:
    """Reduce axes, which are an attribute in early versions; all but the batch by default."""
    value = builder.ordered(tensor(data))
    if node.operator in _OF_FLOATS and value.tensor.dtype != "float32":
        raise UnsupportedNodeError("reduces integers; expected floats")
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
        made = _REDUCTIONS[node.operator](value.tensor, tuple(places))
        keeps_sign = value.not_negative and node.operator not in _OF_ANY_SIGN
        result = value.with_tensor(made, not_negative=keeps_sign or node.operator in _NOT_NEGATIVE)
    return result if node.get("keepdims", 1) else without(builder, result, reduced)


@operator("CumSum")
def running_sum(builder: Builder, node: Node, data: Argument, axis: Argument) -> Value:
    """Sum the entries up to each one along an axis, from either end, with or without the entry itself."""
    value = builder.ordered(tensor(data))
    summed = int(constant(axis, "axis").reshape(-1)[0]) % value.rank
    if summed == value.batch:
        raise UnsupportedNodeError("combines the examples of a batch")
    place, entries, backwards = value.position(summed), value.tensor, bool(node.get("reverse", 0))
    if backwards:
        entries = keras.ops.flip(entries, axis=place)
    if node.get("exclusive", 0):
        pads = [(1 if each == place else 0, 0) for each in range(value.rank)]
        before = (slice(None),) * place + (slice(0, value.size(summed)),)
        entries = keras.ops.pad(entries, pads)[before]
    sums = keras.ops.cumsum(entries, axis=place)
    result = keras.ops.flip(sums, axis=place) if backwards else sums
    return value.with_tensor(result, not_negative=value.not_negative)


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
