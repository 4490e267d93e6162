"""Pooling over windows and over all positions."""

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


@operator("GlobalAveragePool", "GlobalMaxPool")
def over_all_positions(builder: Builder, node: Node, data: Argument) -> Value:
    """Build a mean or maximum over all positions, which keeps their axes."""
    value = builder.channels_last(tensor(data))
    kind = _GLOBAL.get((node.operator, value.rank - 2))
    if kind is None:
        raise UnsupportedNodeError(f"pools over {value.rank - 2} axes; expected 1 or 2")
    result = kind(keepdims=True, name=builder.plain(node))(value.tensor)
    return value.with_tensor(result, not_negative=value.not_negative)


@operator("MaxPool")
def maximum(builder: Builder, node: Node, data: Argument) -> Value:
    """Build maxima over windows, whose padding never is the maximum."""
    value, window, options = _prepared(builder, node, data, _MAXIMA)
    padded = value.tensor
    if window.name is None:
        padded = _padded_for_maxima(builder, value, window)
    layer = _MAXIMA[len(window.kernel)](padding=window.name or "valid", **options)
    return value.with_tensor(layer(padded), not_negative=value.not_negative)


def _padded_for_maxima(builder: Builder, value: Value, window: Window) -> Any:
    """Return a padded tensor: with zeros if nothing is negative, and otherwise with copies of its borders.

    A window that reads copies also reads what they repeat. The lowest float instead would ruin the range of
    an integer tensor.
    """
    if value.not_negative:
        return zero_padded(builder, value.tensor, window.padding)
    return border_repeated(value.tensor, [(0, 0), *window.padding, (0, 0)])


@operator("AveragePool")
def mean(builder: Builder, node: Node, data: Argument) -> Value:
    """Build means over windows, with or without their padding."""
    value, window, options = _prepared(builder, node, data, _MEANS)
    make = _MEANS[len(window.kernel)]
    counted = bool(node.get("count_include_pad", 0))
    if window.name == "valid" or (window.name == "same" and not counted):
        return value.with_tensor(make(padding=window.name, **options)(value.tensor))
    result = make(padding="valid", **options)(zero_padded(builder, value.tensor, window.padding))
    counts = _counts(window, counted)
    whole = np.prod(window.kernel)
    if np.any(counts != whole):
        result = keras.ops.multiply(result, (whole / counts).astype(np.float32)[None, ..., None])
    return value.with_tensor(result)


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


def _prepared(
    builder: Builder, node: Node, data: Argument, kinds: dict[int, Any]
) -> tuple[Value, Window, dict[str, Any]]:
    value = builder.channels_last(tensor(data))
    kernel = node.get("kernel_shape")
    if len(kernel) not in kinds:
        raise UnsupportedNodeError(f"pools over {len(kernel)} axes; expected 1 or 2")
    if max(node.get("dilations", [1])) > 1:
        raise UnsupportedNodeError("pools over positions that are not adjacent, by dilations")
    window = Window(node, value.tensor.shape[1:-1], kernel)
    options = {"pool_size": tuple(kernel), "strides": window.strides, "name": builder.plain(node)}
    return value, window, options
