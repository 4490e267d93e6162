"""Pooling over windows and over all positions."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from executors.sources.onnx.batch import Array
from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Argument, Node, operator, tensor
from executors.sources.onnx.values import Value
from executors.sources.onnx.windows import Window, border_repeated, zero_padded

layers = keras.layers

_MAXIMA = {1: layers.MaxPooling1D, 2: layers.MaxPooling2D}
_MEANS = {1: layers.AveragePooling1D, 2: layers.AveragePooling2D}
_GLOBAL = {
    ("GlobalAveragePool", 1): layers.GlobalAveragePooling1D,
    ("GlobalAveragePool", 2): layers.GlobalAveragePooling2D,
    ("GlobalMaxPool", 1): layers.GlobalMaxPooling1D,
    ("GlobalMaxPool", 2): layers.GlobalMaxPooling2D,
}

#: Returns a pooled tensor [n, *positions, channels] for a window over one or two axes.
_Pool = Callable[[Any, Window], Any]


@operator("GlobalAveragePool", "GlobalMaxPool")
def over_all_positions(builder: Builder, node: Node, data: Argument) -> Value:
    """Build a mean or maximum over all positions, which keeps their axes."""
    value = builder.channels_last(tensor(data))
    positions, entries = value.rank - 2, value.tensor
    if positions == 3:
        depth, height, width, channels = entries.shape[1:]
        entries = builder.reshaped(entries, (depth * height, width, channels))
    kind = _GLOBAL.get((node.operator, min(positions, 2)))
    if kind is None or positions > 3:
        raise UnsupportedNodeError(f"pools over {positions} axes; expected 1 to 3")
    result = kind(keepdims=True, name=builder.plain(node))(entries)
    result = builder.reshaped(result, [1] * positions + [result.shape[-1]])
    return value.with_tensor(result, not_negative=value.not_negative)


@operator("MaxPool")
def maximum(builder: Builder, node: Node, data: Argument) -> Value:
    """Build maxima over windows, whose padding never is the maximum."""
    value = builder.channels_last(tensor(data))

    def pool(entries: Any, window: Window) -> Any:
        if window.name is None:
            entries = _padded_for_maxima(builder, entries, window, value.not_negative)
        return _layer(builder, node, _MAXIMA, window, window.name or "valid")(entries)

    return value.with_tensor(_pooled(builder, node, value, pool), not_negative=value.not_negative)


def _padded_for_maxima(builder: Builder, entries: Any, window: Window, not_negative: bool) -> Any:
    """Return a padded tensor: with zeros if nothing is negative, and otherwise with copies of its borders.

    A window that reads copies also reads what they repeat. The lowest float instead would ruin the range of
    an integer tensor.
    """
    if not_negative:
        return zero_padded(builder, entries, window.padding)
    return border_repeated(entries, [(0, 0), *window.padding, (0, 0)])


@operator("AveragePool")
def mean(builder: Builder, node: Node, data: Argument) -> Value:
    """Build means over windows, with or without their padding."""
    value = builder.channels_last(tensor(data))
    counted = bool(node.get("count_include_pad", 0))

    def pool(entries: Any, window: Window) -> Any:
        if window.name == "valid" or (window.name == "same" and not counted):
            return _layer(builder, node, _MEANS, window, window.name)(entries)
        padded = zero_padded(builder, entries, window.padding)
        result = _layer(builder, node, _MEANS, window, "valid")(padded)
        counts, whole = _counts(window, counted), np.prod(window.kernel)
        if np.any(counts != whole):
            result = keras.ops.multiply(result, (whole / counts).astype(np.float32)[None, ..., None])
        return result

    return value.with_tensor(_pooled(builder, node, value, pool))


def _pooled(builder: Builder, node: Node, value: Value, pool: _Pool) -> Any:
    """Return a pooled tensor; volumes are pooled along their first two axes, and then along the third."""
    kernel = node.get("kernel_shape")
    if len(kernel) > 3:
        raise UnsupportedNodeError(f"pools over {len(kernel)} axes; expected 1 to 3")
    if max(node.get("dilations", [1])) > 1:
        raise UnsupportedNodeError("pools over positions that are not adjacent, by dilations")
    window = Window(node, value.tensor.shape[1:-1], kernel)
    if len(kernel) < 3:
        return pool(value.tensor, window)
    depth, height, width, channels = value.tensor.shape[1:]
    planes = builder.reshaped(value.tensor, (depth, height, width * channels))
    planes = _unless_single(pool, planes, window.part(0, 2))
    depth, height = planes.shape[1:3]
    rows = builder.reshaped(planes, (depth * height, width, channels))
    rows = _unless_single(pool, rows, window.part(2, 3, rows=depth * height))
    return builder.reshaped(rows, (depth, height, rows.shape[2], channels))


def _unless_single(pool: _Pool, entries: Any, window: Window) -> Any:
    """Return a pooled tensor, or the tensor itself if each window is one of its positions."""
    single = max(*window.kernel, *window.strides) == 1 and window.name == "valid"
    return entries if single else pool(entries, window)


def _layer(
    builder: Builder, node: Node, kinds: Mapping[int, Any], window: Window, padding: str
) -> keras.layers.Layer:
    return kinds[len(window.kernel)](
        tuple(window.kernel), strides=tuple(window.strides), padding=padding, name=builder.plain(node)
    )


def _counts(window: Window, counts_padding: bool) -> Array:
    """Return how many positions count in each window: those that a rounded-up size adds never do."""
    total = np.ones(())
    for axis, (before, after) in enumerate(window.padding):
        size, declared = window.sizes[axis], window.declared[axis]
        counted = np.zeros(before + size + after)
        first, last = (0, size + sum(declared)) if counts_padding else (before, before + size)
        counted[first:last] = 1
        steps = range(0, len(counted) - window.kernel[axis] + 1, window.strides[axis])
        counts = np.array([counted[step : step + window.kernel[axis]].sum() for step in steps])
        total = np.multiply.outer(total, counts)
    return total
