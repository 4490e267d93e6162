"""Operators that select, join, repeat or pad entries along axes."""

from collections.abc import Mapping
from functools import partial
from itertools import zip_longest
from math import ceil
from typing import Any

import keras
import numpy as np

from executors.sources.onnx.batch import Array, BatchDependent, Size, sizes_of
from executors.sources.onnx.builder import Builder, as_float, set_weights
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.merged import viewed
from executors.sources.onnx.operators.places import by_example, numbered_by_example
from executors.sources.onnx.operators.reduction import without
from executors.sources.onnx.operators.shapes import reshaped_to
from executors.sources.onnx.registry import Argument, Node, constant, operator, optional, tensor
from executors.sources.onnx.values import Merged, Places, Value
from executors.sources.onnx.windows import Pad, border_repeated, wrapped, zero_padded

layers = keras.layers

#: An end of a range that is not before the last entry; tf2onnx writes this one.
_TO_THE_END = 10**9


def selected(value: Value, axis: int, entries: slice) -> Value:
    """Return the entries of a value along an ONNX axis."""
    key = (slice(None),) * value.position(axis) + (entries,)
    return value.with_tensor(value.tensor[key], not_negative=value.not_negative)


@operator("Concat")
def concatenate(builder: Builder, node: Node, *arguments: Argument) -> Value | Places:
    """Join tensors along an axis."""
    places = numbered_by_example(builder, node, arguments)
    if places is not None:
        return places
    like = builder.ordered(next(argument for argument in arguments if isinstance(argument, Value)))
    axis = node.get("axis") % like.rank
    values = [
        builder.ordered(argument)
        if isinstance(argument, Value)
        else _spread(builder, constant(argument, "part"), like, axis)
        for argument in arguments
    ]
    if any(value.batch != like.batch for value in values) or axis == like.batch:
        raise UnsupportedNodeError("joins tensors along the batch")
    tensors = [builder.laid_out(value, like.axes).tensor for value in values]
    if len(tensors) == 1:
        return like
    position = like.position(axis)
    last = -1 if position == like.rank - 1 else position
    # Keras declares integers as floats unless the layer has their type.
    layer = layers.Concatenate(axis=last, name=builder.plain(node), dtype=tensors[0].dtype)
    return like.with_tensor(layer(tensors), not_negative=all(value.not_negative for value in values))


def _spread(builder: Builder, array: Array, like: Value, axis: int) -> Value:
    """Return a constant for each example of a batch, such as a class token: it is added to zeros."""
    zeros = selected(like, axis, slice(0, 1)).tensor * 0
    return like.with_tensor(keras.ops.add(zeros, builder.constant(array, like)))


@operator("Expand")
def expand(builder: Builder, node: Node, data: Argument, shape: Argument) -> Value:
    """Repeat entries along axes of size 1."""
    value = builder.ordered(tensor(data))
    if isinstance(shape, Value | Merged | Places) or shape is None:
        raise UnsupportedNodeError("has a computed shape; expected a constant")
    requested = sizes_of(shape)
    sizes: list[Size] = [*[1] * (value.rank - len(requested)), *requested]
    if len(sizes) > value.rank or sizes[value.batch] not in (1, None):
        raise UnsupportedNodeError("adds axes, or repeats the examples of a batch")
    result = value.tensor
    for position, axis in enumerate(value.axes[1:], 1):
        if sizes[axis] not in (1, value.shape[axis]):
            result = keras.ops.repeat(result, int(sizes[axis] or 1), axis=position)
    return value.with_tensor(result, not_negative=value.not_negative)


@operator("Tile")
def tile(builder: Builder, node: Node, data: Argument, repeats: Argument) -> Value:
    """Repeat a tensor along axes, as a whole."""
    value = builder.ordered(tensor(data))
    if isinstance(repeats, Value | Merged | Places) or repeats is None:
        raise UnsupportedNodeError("has computed repeats; expected constants")
    copies = [1 if size is None else int(size) for size in sizes_of(repeats)]
    if copies[value.batch] != 1:
        raise UnsupportedNodeError("repeats the examples of a batch")
    if max(copies) == 1:
        return value
    result = keras.ops.tile(value.tensor, [copies[axis] for axis in value.axes])
    return value.with_tensor(result, not_negative=value.not_negative)


@operator("Split")
def split(builder: Builder, node: Node, data: Argument, sizes: Argument = None) -> list[Value]:
    """Divide a tensor along an axis, by given sizes or evenly."""
    value, listed = builder.ordered(tensor(data)), optional(sizes, "sizes")
    axis = node.get("axis", 0) % value.rank
    lengths = node.get("split") if listed is None else [int(size) for size in listed]
    if axis == value.batch:
        raise UnsupportedNodeError("divides the batch")
    if not lengths:
        length = ceil(value.size(axis) / len(node.outputs))
        rest = value.size(axis) - length * (len(node.outputs) - 1)
        lengths = [length] * (len(node.outputs) - 1) + [rest]
    ends = np.cumsum(lengths)
    return [
        selected(value, axis, slice(int(end) - length, int(end)))
        for length, end in zip(lengths, ends, strict=True)
    ]


@operator("Slice")
def slices(builder: Builder, node: Node, data: Argument, *ranges: Argument) -> Value:
    """Select a range along axes; the ranges are attributes in early versions."""
    value = builder.ordered(tensor(data))
    names = ("starts", "ends", "axes", "steps")
    first, last, chosen, strides = (
        _listed(node, name, argument) for name, argument in zip_longest(names, ranges)
    )
    chosen, strides = chosen or list(range(len(first))), strides or [1] * len(first)
    for axis, start, end, step in zip(chosen, first, last, strides, strict=True):
        if axis % value.rank == value.batch:
            if (start, step) != (0, 1) or end < _TO_THE_END:
                raise UnsupportedNodeError("selects examples of a batch")
            continue
        value = _range(value, axis, start, end, step)
    return value


def _listed(node: Node, attribute: str, argument: Argument) -> list[int]:
    if isinstance(argument, BatchDependent):
        return [_TO_THE_END if size is None else size for size in sizes_of(argument)]
    array = optional(argument, attribute)
    return list(node.get(attribute, [])) if array is None else [int(entry) for entry in array.reshape(-1)]


def _range(value: Value, axis: int, start: int, end: int, step: int) -> Value:
    size = value.size(axis)
    before_first = step < 0 and end < -size
    entries = range(size)[slice(start, None if before_first else end, step)]
    if len(entries) == size and step == 1:
        return value
    stop = entries.stop if entries.stop >= 0 else None
    return selected(value, axis, slice(entries.start, stop, step))


@operator("Gather")
def gather(builder: Builder, node: Node, data: Argument, indices: Argument) -> Value:
    """Look up rows of a constant table, or select entries by constant indices."""
    if isinstance(indices, Places):
        return by_example(builder, data, indices)
    if isinstance(data, Merged):
        return viewed(data, indices, partial(reshaped_to, builder))
    if isinstance(indices, Value):
        return _embedded(builder, node, constant(data, "table"), indices)
    value, chosen = builder.ordered(tensor(data)), constant(indices, "index")
    axis = node.get("axis", 0) % value.rank
    if axis == value.batch:
        raise UnsupportedNodeError("selects examples of a batch")
    size = value.size(axis)
    picked = chosen.reshape(-1) % size
    if picked.size == 1:
        result = selected(value, axis, slice(int(picked[0]), int(picked[0]) + 1))
    else:
        result = value.with_tensor(
            keras.ops.take(value.tensor, picked.astype(np.int32), axis=value.position(axis)),
            not_negative=value.not_negative,
        )
    if not chosen.ndim:
        return without(builder, result, [axis])
    return reshaped_to(builder, result, (*value.shape[:axis], *chosen.shape, *value.shape[axis + 1 :]))


def _embedded(builder: Builder, node: Node, table: Array, indices: Value) -> Value:
    if table.ndim != 2 or node.get("axis", 0) != 0:
        raise UnsupportedNodeError("looks up entries of a table that is no matrix")
    layer = layers.Embedding(*table.shape, name=builder.weighted(node, 0))
    result = layer(indices.tensor)
    set_weights(layer, as_float(table))
    return Value(result, (*indices.axes, indices.rank))


@operator("Pad")
def pad(builder: Builder, node: Node, data: Argument, *options: Argument) -> Value:
    """Add entries around a tensor: a constant, a reflection, the border, or the other end; or remove some."""
    value = builder.ordered(tensor(data))
    pads, fill, axes = (*options, *[None] * 3)[:3]
    amounts, filling, listed = _listed(node, "pads", pads), optional(fill, "value"), optional(axes, "axes")
    chosen = range(value.rank) if listed is None else [int(axis) % value.rank for axis in listed]
    by_axis = {axis: (amounts[place], amounts[place + len(chosen)]) for place, axis in enumerate(chosen)}
    if by_axis.get(value.batch, (0, 0)) != (0, 0):
        raise UnsupportedNodeError("pads the batch")
    value = _cropped(node, value, by_axis)
    placed = [
        (max(before, 0), max(after, 0))
        for before, after in (by_axis.get(axis, (0, 0)) for axis in value.axes)
    ]
    if all(amount == (0, 0) for amount in placed):
        return value
    constant_ = float(filling.reshape(-1)[0]) if filling is not None else float(node.get("value", 0.0))
    return value.with_tensor(
        _padded(builder, node, value, placed, constant_), not_negative=value.not_negative and constant_ >= 0
    )


def _cropped(node: Node, value: Value, pads: Mapping[int, Pad]) -> Value:
    """Return a value without the entries that negative pads remove."""
    for axis, (before, after) in pads.items():
        if min(before, after) < 0:
            if node.get("mode", "constant") != "constant":
                raise UnsupportedNodeError("removes entries at one end, and repeats others")
            size = value.size(axis)
            value = selected(value, axis, slice(max(0, -before), size - max(0, -after)))
    return value


def _padded(builder: Builder, node: Node, value: Value, pads: list[Pad], fill: float) -> Any:
    mode = node.get("mode", "constant")
    if mode == "constant" and fill == 0 and value.rank in (3, 4) and pads[-1] == (0, 0):
        return zero_padded(builder, value.tensor, pads[1:-1])
    if mode == "constant":
        return keras.ops.pad(value.tensor, pads, mode="constant", constant_values=fill)
    if mode == "reflect":
        return keras.ops.pad(value.tensor, pads, mode="reflect")
    if mode == "edge":
        return border_repeated(value.tensor, pads)
    if mode == "wrap":
        return wrapped(builder, value.tensor, pads)
    raise UnsupportedNodeError(f"pads with mode {mode!r}")
