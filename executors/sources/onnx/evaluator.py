"""ONNX's reference evaluator, without the mistakes of its version 1.23.

`findings/onnx_reference_*.sh` show what ONNX Runtime and the specification say instead.
"""

from collections.abc import Mapping
from math import ceil, floor
from typing import Any, Final

import numpy as np
from onnx import ModelProto, NodeProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_attention import Attention_23
from onnx.reference.ops.op_pad import Pad_18
from onnx.reference.ops.op_rnn import RNN_14

from executors.sources.onnx.batch import Array

#: From this version on, a softmax is computed along one axis.
_SOFTMAX_ALONG_AXIS: Final = 13

#: From this version on, attention is an operator.
_ATTENTION: Final = 23

#: From this version on, the evaluator resizes.
_RESIZES: Final = 11

#: From this version on, the amounts of padding are inputs.
_PADS_BY_INPUTS: Final = 11

#: From this version on, the evaluator's batch norms use the stored statistics.
_STORED_STATISTICS: Final = 14


def evaluator(model: ModelProto) -> ReferenceEvaluator:
    """Return an evaluator for a model; some operators are computed by the classes of this module."""
    version = next(each.version for each in model.opset_import if not each.domain)
    corrected: list[type[OpRun]] = [
        *(AveragePool, ConvTranspose, GatherElements, GlobalMaxPool),
        *(LRN, LpNormalization, RNN),
    ]
    if version >= _ATTENTION:
        corrected.append(Attention)
    if version < _STORED_STATISTICS:
        corrected.append(BatchNormalization)
    if version >= _PADS_BY_INPUTS:
        corrected.append(Pad)
    if version < _RESIZES:
        corrected += [Resize, Upsample]
    if version < _SOFTMAX_ALONG_AXIS:
        corrected += [Softmax, LogSoftmax]
    if not any(_returns_indices(node) for node in model.graph.node):
        corrected.append(MaxPool)
    return ReferenceEvaluator(model, new_ops=corrected)


def _returns_indices(node: NodeProto) -> bool:
    return node.op_type == "MaxPool" and len(node.output) > 1


class Attention(Attention_23):  # type: ignore[misc]
    """Attention; the evaluator applies a causal mask to one query only if a mask is the same for all."""

    def _run(
        self, query: Array, key: Array, value: Array, mask: Array | None = None, *others: Any, **options: Any
    ) -> tuple[Array, ...]:
        if mask is not None:
            mask = np.broadcast_to(mask, (*mask.shape[:-2], query.shape[-2], mask.shape[-1]))
        made: tuple[Array, ...] = super()._run(query, key, value, mask, *others, **options)
        return made


class BatchNormalization(OpRun):  # type: ignore[misc]
    """The norm with the stored statistics; before version 14, the evaluator uses those of the batch."""

    def _run(self, x: Array, *stored: Array, epsilon: float = 1e-5, **_: Any) -> tuple[Array]:
        scale, bias, mean, variance = (each.reshape(-1, *[1] * (x.ndim - 2)) for each in stored)
        return (((x - mean) / np.sqrt(variance + epsilon) * scale + bias).astype(x.dtype),)


class LogSoftmax(OpRun):  # type: ignore[misc]
    """The logarithm over all axes from one on, as before version 13."""

    def _run(self, x: Array, axis: int = 1) -> tuple[Array]:
        if not any(each.name == "axis" for each in self.onnx_node.attribute):
            axis = 1  # the evaluator passes the default of the newest version
        first = axis % x.ndim
        axes = tuple(range(first, x.ndim))
        shifted = x - x.max(axis=axes, keepdims=True)
        return (shifted - np.log(np.exp(shifted).sum(axis=axes, keepdims=True)),)


class Softmax(LogSoftmax):
    """The probabilities over all axes from one on, as before version 13."""

    def _run(self, x: Array, axis: int = 1) -> tuple[Array]:
        return (np.exp(super()._run(x, axis)[0]),)


class LRN(OpRun):  # type: ignore[misc]
    """The normalization of all channels; the evaluator stops after as many as there are examples."""

    def _run(
        self, x: Array, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1
    ) -> tuple[Array]:
        before, after = (size - 1) // 2, size // 2
        squares = np.pad(x**2, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
        sums = np.lib.stride_tricks.sliding_window_view(squares, size, axis=1).sum(-1)
        return ((x / (bias + alpha / size * sums) ** beta).astype(x.dtype),)


class LpNormalization(OpRun):  # type: ignore[misc]
    """The division by a norm; for p = 1, the evaluator divides by the sum."""

    def _run(self, x: Array, axis: int | None = None, p: int | None = None) -> tuple[Array]:
        norm = np.linalg.norm(x, ord=p or 2, axis=-1 if axis is None else axis, keepdims=True)
        return (np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)).astype(x.dtype),)


class AveragePool(OpRun):  # type: ignore[misc]
    """Means over windows; with `ceil_mode`, the evaluator moves the windows."""

    def _run(
        self, x: Array, kernel_shape: list[int], count_include_pad: int | None = 0, **options: Any
    ) -> tuple[Array]:
        padding = _padding(x.shape[2:], kernel_shape, **options)
        counted = np.ones_like(x[:1, :1])
        if count_include_pad:
            counted = np.pad(counted, [(0, 0), (0, 0), *(each[:2] for each in padding)], constant_values=1)
            whole = _windows(counted, kernel_shape, [(0, 0, each[2]) for each in padding], 0.0, **options)
        else:
            whole = _windows(counted, kernel_shape, padding, 0.0, **options)
        axes = tuple(range(-len(kernel_shape), 0))
        sums = _windows(x, kernel_shape, padding, 0.0, **options).sum(axes)
        return ((sums / whole.sum(axes)).astype(x.dtype),)


class ConvTranspose(OpRun):  # type: ignore[misc]
    """Transposed convolutions; with groups, the evaluator selects the wrong weights and channels."""

    def _run(
        self, x: Array, kernel: Array, bias: Array | None = None, group: int | None = 1, **options: Any
    ) -> tuple[Array]:
        groups, positions, sizes = group or 1, kernel.shape[2:], x.shape[2:]
        rank = len(positions)
        strides, dilations = (options.get(name) or [1] * rank for name in ("strides", "dilations"))
        spans = [(size - 1) * step + 1 for size, step in zip(positions, dilations, strict=True)]
        full = [(size - 1) * step + span for size, step, span in zip(sizes, strides, spans, strict=True)]
        channels = kernel.shape[1] * groups
        made = np.zeros((len(x), channels, *full), x.dtype)
        grouped = x.reshape(len(x), groups, -1, *sizes)
        kernels = kernel.reshape(groups, -1, *kernel.shape[1:])
        for place in np.ndindex(*positions):
            part = np.einsum("ngc...,gcm->ngm...", grouped, kernels[(..., *place)])
            starts = [index * step for index, step in zip(place, dilations, strict=True)]
            ends = [
                start + (size - 1) * step + 1
                for start, size, step in zip(starts, sizes, strides, strict=True)
            ]
            made[(slice(None), slice(None), *map(slice, starts, ends, strides))] += part.reshape(
                len(x), channels, *sizes
            )
        kept = [_kept(axis, sizes[axis] * strides[axis], full[axis], options) for axis in range(rank)]
        result = np.zeros((len(x), channels, *(length for _, length in kept)), x.dtype)
        entries = made[(slice(None), slice(None), *(slice(start, start + size) for start, size in kept))]
        result[tuple(map(slice, entries.shape))] = entries
        return (result if bias is None else result + bias.reshape(-1, *[1] * rank),)


def _kept(axis: int, same: int, full: int, options: Mapping[str, Any]) -> tuple[int, int]:
    """Return the first position of a transposed convolution that is kept on an axis, and how many are."""
    mode, lengths, extra = (options.get(name) for name in ("auto_pad", "output_shape", "output_padding"))
    full += extra[axis] if extra else 0
    if lengths or mode in ("SAME_UPPER", "SAME_LOWER"):
        length = lengths[axis] if lengths else same
        dropped = max(0, full - length)
        return dropped // 2 if mode == "SAME_UPPER" else dropped - dropped // 2, length
    pads = options.get("pads")
    before, after = (pads[axis], pads[axis + len(pads) // 2]) if pads else (0, 0)
    return before, full - before - after


class GatherElements(OpRun):  # type: ignore[misc]
    """The entries at indices; the evaluator takes those that are too large modulo the size."""

    def _run(self, x: Array, indices: Array, axis: int | None = None) -> tuple[Array]:
        return (np.take_along_axis(x, indices.astype(np.int64), axis or 0),)


class GlobalMaxPool(OpRun):  # type: ignore[misc]
    """Maxima over all positions; for signals, the evaluator reduces the channels as well."""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class MaxPool(OpRun):  # type: ignore[misc]
    """Maxima over windows.

    With SAME_LOWER, the evaluator omits the last window; with `ceil_mode`, it moves them if there is padding.
    """

    def _run(self, x: Array, kernel_shape: list[int], **options: Any) -> tuple[Array]:
        padding = _padding(x.shape[2:], kernel_shape, **options)
        axes = tuple(range(-len(kernel_shape), 0))
        return (_windows(x, kernel_shape, padding, -np.inf, **options).max(axes).astype(x.dtype),)


class Pad(Pad_18):  # type: ignore[misc]
    """Padding by amounts that may be negative and then remove entries; the evaluator refuses these."""

    def _run(
        self,
        x: Array,
        pads: Array,
        filling: Any = None,
        axes: Array | None = None,
        mode: str | None = None,
    ) -> tuple[Array]:
        chosen = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in axes]
        for axis, before, after in zip(chosen, pads, pads[len(chosen) :], strict=False):
            x = x.take(range(max(0, -before), x.shape[axis] - max(0, -after)), axis)
        made: tuple[Array] = super()._run(x, np.maximum(pads, 0), filling, axes, mode)
        return made


class Resize(OpRun):  # type: ignore[misc]
    """Resizing to positions divided by the scale, as before version 11; the evaluator has none."""

    def _run(self, x: Array, scales: Any, mode: str | None = None, **_: Any) -> tuple[Array]:
        result = x
        for axis, scale in enumerate(map(float, scales)):
            places = np.arange(floor(x.shape[axis] * scale)) / scale
            before = np.floor(places).astype(np.int64)
            near, far = (
                result.take(np.minimum(each, x.shape[axis] - 1), axis) for each in (before, before + 1)
            )
            shares = (places - before).reshape(-1, *[1] * (x.ndim - axis - 1))
            result = near + shares * (far - near) if mode == "linear" else near
        return (result.astype(x.dtype),)


class Upsample(Resize):
    """The same operation by its earlier name."""


class RNN(RNN_14):  # type: ignore[misc]
    """A simple recurrent layer; the evaluator has no ReLU for it."""

    def choose_act(self, name: str, alpha: float | None, beta: float | None) -> Any:
        """Return an activation function."""
        return _relu if name.lower() == "relu" else super().choose_act(name, alpha, beta)


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _padding(
    sizes: tuple[int, ...],
    kernel_shape: list[int],
    *,
    auto_pad: str | None = None,
    pads: list[int] | None = None,
    ceil_mode: int | None = 0,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    **_: Any,
) -> list[tuple[int, int, int]]:
    """Return, for each axis, the padding before, after, and beyond it for a last window."""
    rank, result = len(sizes), []
    for axis, (size, kernel) in enumerate(zip(sizes, kernel_shape, strict=True)):
        stride, span = (strides or [1] * rank)[axis], (kernel - 1) * (dilations or [1] * rank)[axis] + 1
        before, after = (pads or [0] * 2 * rank)[axis], (pads or [0] * 2 * rank)[axis + rank]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            total = max(0, (ceil(size / stride) - 1) * stride + span - size)
            before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            after = total - before
        beyond = 0
        if ceil_mode:
            windows = ceil((size + before + after - span) / stride) + 1
            if (windows - 1) * stride >= size + before:  # it would begin in the padding
                windows -= 1
            beyond = max(0, (windows - 1) * stride + span - size - before - after)
        result.append((before, after, beyond))
    return result


def _windows(
    x: Array,
    kernel_shape: list[int],
    padding: list[tuple[int, int, int]],
    filling: float,
    *,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    **_: Any,
) -> Array:
    """Return the windows [examples, channels, *windows, *kernel] of padded data."""
    rank = len(kernel_shape)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    spans = [(kernel - 1) * each + 1 for kernel, each in zip(kernel_shape, dilations, strict=True)]
    widths = [(0, 0), (0, 0), *((before, after + beyond) for before, after, beyond in padding)]
    padded = np.pad(x, widths, constant_values=filling)
    views = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None, None, each) for each in (*strides, *dilations)]
    return views[(slice(None), slice(None), *steps)]
