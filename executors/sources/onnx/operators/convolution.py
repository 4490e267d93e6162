"""Convolutions: plain, grouped, depthwise, transposed."""

from collections.abc import Sequence
from typing import Any, Final

import keras
import numpy as np

from executors.sources.onnx.batch import Array
from executors.sources.onnx.builder import Builder, set_weights
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Argument, Node, constant, operator, optional, tensor
from executors.sources.onnx.values import Value
from executors.sources.onnx.windows import Pad, Window, zero_padded

layers = keras.layers

_PLAIN = {1: layers.Conv1D, 2: layers.Conv2D, 3: layers.Conv3D}
_DEPTHWISE = {1: layers.DepthwiseConv1D, 2: layers.DepthwiseConv2D}
_TRANSPOSED = {1: layers.Conv1DTranspose, 2: layers.Conv2DTranspose, 3: layers.Conv3DTranspose}
#: Most groups of a transposed convolution, which is a layer for each.
_MOST_GROUPS: Final = 32

_CROPPING = {1: layers.Cropping1D, 2: layers.Cropping2D, 3: layers.Cropping3D}


@operator("Conv")
def convolution(
    builder: Builder, node: Node, data: Argument, kernel: Argument, bias: Argument = None
) -> Value:
    """Build a convolution; the kernel is [C_out, C_in / groups, *positions]."""
    value = builder.channels_last(tensor(data))
    weights, offset = constant(kernel, "kernel"), optional(bias, "bias")
    rank = weights.ndim - 2
    if rank not in _PLAIN:
        raise UnsupportedNodeError(f"is a convolution over {rank} axes; expected 1, 2 or 3")
    window = Window(node, value.tensor.shape[1:-1], weights.shape[2:])
    padded = value.tensor if window.name else zero_padded(builder, value.tensor, window.padding)
    options = {
        "strides": window.strides,
        "padding": window.name or "valid",
        "dilation_rate": window.dilation,
        "use_bias": offset is not None,
        "name": builder.weighted(node),
    }
    if max(window.strides) > 1 and max(window.dilation) > 1:
        raise UnsupportedNodeError("has both strides and dilations")
    groups, channels = node.get("group", 1), value.tensor.shape[-1]
    if 1 < groups == channels and rank in _DEPTHWISE and len(set(window.strides)) == 1:
        layer, stored = _depthwise(weights, groups, options)
    else:
        layer = _PLAIN[rank](weights.shape[0], weights.shape[2:], groups=groups, **options)
        stored = weights.transpose(*range(2, rank + 2), 1, 0)
    result = layer(padded)
    set_weights(layer, stored, offset)
    return value.with_tensor(result)


def _depthwise(weights: Array, groups: int, options: dict[str, Any]) -> tuple[Any, Array]:
    """Return a layer and its kernel [*positions, C_in, multiplier]."""
    rank = weights.ndim - 2
    multiplier = weights.shape[0] // groups
    if rank == 1:
        options = {**options, "strides": options["strides"][0], "dilation_rate": options["dilation_rate"][0]}
    size = weights.shape[2:] if rank > 1 else weights.shape[2]
    layer = _DEPTHWISE[rank](size, depth_multiplier=multiplier, **options)
    stored = weights.reshape(groups, multiplier, *weights.shape[2:]).transpose(*range(2, rank + 2), 0, 1)
    return layer, stored


@operator("ConvTranspose")
def transposed(
    builder: Builder, node: Node, data: Argument, kernel: Argument, bias: Argument = None
) -> Value:
    """Build a transposed convolution; the kernel is [C_in, C_out / groups, *positions]."""
    value = builder.channels_last(tensor(data))
    weights, offset = constant(kernel, "kernel"), optional(bias, "bias")
    rank, groups = weights.ndim - 2, node.get("group", 1)
    if rank not in _TRANSPOSED:
        raise UnsupportedNodeError(f"is a transposed convolution over {rank} axes; expected 1, 2 or 3")
    if groups > _MOST_GROUPS:
        raise UnsupportedNodeError(f"has {groups} groups; expected at most {_MOST_GROUPS}")
    weights = _dilated(weights, node.get("dilations", [1] * rank))
    if groups == 1:
        return value.with_tensor(_transposed(builder, node, value.tensor, weights, offset))
    offsets = [None] * groups if offset is None else np.split(offset, groups)
    parts = np.split(np.arange(value.tensor.shape[-1]), groups)
    made = [
        _transposed(builder, node, value.tensor[..., part[0] : part[-1] + 1], kernel_, bias_)
        for part, kernel_, bias_ in zip(parts, np.split(weights, groups), offsets, strict=True)
    ]
    return value.with_tensor(layers.Concatenate(name=builder.helper("groups"))(made))


def _dilated(kernel: Array, dilations: Sequence[int]) -> Array:
    """Return a kernel [C_in, C_out, *positions] with zeros between its positions."""
    sizes = [(size - 1) * step + 1 for size, step in zip(kernel.shape[2:], dilations, strict=True)]
    result = np.zeros((*kernel.shape[:2], *sizes), kernel.dtype)
    steps = (slice(None, None, step) for step in dilations)
    result[(slice(None), slice(None), *steps)] = kernel
    return result


def _transposed(builder: Builder, node: Node, data: Any, weights: Array, offset: Array | None) -> Any:
    """Return the result [n, *positions, C_out] of a transposed convolution without groups or dilation."""
    rank, sizes = weights.ndim - 2, data.shape[1:-1]
    strides = tuple(node.get("strides", [1] * rank))
    full = [
        (size - 1) * step + extent
        for size, step, extent in zip(sizes, strides, weights.shape[2:], strict=True)
    ]
    wanted = _cropping(node, sizes, strides, weights.shape[2:])
    named = [
        (start, size * step) == (max(extent - step, 0) // 2, end) and extent >= step
        for (start, end), size, step, extent in zip(wanted, sizes, strides, weights.shape[2:], strict=True)
    ]
    options = {"padding": "same" if all(named) else "valid", "use_bias": offset is not None}
    layer = _TRANSPOSED[rank](
        weights.shape[1], weights.shape[2:], strides=strides, name=builder.weighted(node), **options
    )
    result = layer(data)
    set_weights(layer, weights.transpose(*range(2, rank + 2), 1, 0), offset)
    if not all(named):
        crops = [(start, length - start - end) for (start, end), length in zip(wanted, full, strict=True)]
        result = _cropped(builder, result, crops, offset)
    return result


def _cropping(node: Node, sizes: Any, strides: tuple[int, ...], kernel: tuple[int, ...]) -> list[Pad]:
    """Return the first position of the full output that is kept, and the number of positions that are."""
    rank = len(kernel)
    extra = node.get("output_padding", [0] * rank)
    pads, mode = node.get("pads", [0] * 2 * rank), node.get("auto_pad", "NOTSET")
    lengths = node.get("output_shape")
    if lengths is None and mode.startswith("SAME"):
        lengths = [size * step for size, step in zip(sizes, strides, strict=True)]
    kept = []
    for axis in range(rank):
        full = (sizes[axis] - 1) * strides[axis] + kernel[axis] + extra[axis]
        if lengths is None:
            start, end = (0, 0) if mode == "VALID" else (pads[axis], pads[axis + rank])
        else:
            total = max(full - lengths[axis - rank], 0)
            start = total // 2 if mode == "SAME_UPPER" else total - total // 2
            end = full - start - lengths[axis - rank]
        kept.append((start, full - start - end))
    return kept


def _cropped(builder: Builder, result: Any, crops: list[Pad], bias: Array | None) -> Any:
    """Return a full output without some positions; more than it has are those of the bias alone."""
    beyond = [(0, max(0, -after)) for _, after in crops]
    if any(after for _, after in beyond):
        if bias is not None and np.any(bias):
            raise UnsupportedNodeError("makes positions beyond its kernel and has a bias")
        result = zero_padded(builder, result, beyond)
    crops = [(before, max(0, after)) for before, after in crops]
    if all(crop == (0, 0) for crop in crops):
        return result
    cropping = tuple(crops) if len(crops) > 1 else crops[0]
    return _CROPPING[len(crops)](cropping, name=builder.helper("crop"))(result)
