"""Tensors with an axis that merges the batch with other axes, such as that of attention heads.

PyTorch's attention computes `[batch * heads, positions, features]`, and its products `[positions * batch,
features]`. Such a tensor is kept with its axes apart, until a reshape divides the merged axis again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

import numpy as np

from executors.sources.onnx.batch import PROBES, Array, BatchDependent, for_probe
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Argument, Node, constant
from executors.sources.onnx.values import Merged, Places, Value

#: Operators that take tensors with a merged axis as they are.
_DIVIDING: Final = frozenset(["Reshape", "Transpose"])

#: Operators that combine entries at equal positions.
_ENTRYWISE: Final = frozenset(["Add", "Div", "Max", "Min", "Mul", "Pow", "Sub", "Sum"])

#: Operators that combine entries along the last axes only.
_ALONG_LAST: Final = frozenset(["Gemm", "LayerNormalization", "LogSoftmax", "MatMul", "Softmax"])

#: Operators that select or join entries along one axis.
_ALONG_ONE: Final = frozenset(["Concat", "Gather", "Split"])

#: Operators that drop, select or reduce along some axes -> index of the input that lists them.
_ALONG_SOME: Final[Mapping[str, int]] = {
    "Slice": 3,
    "Squeeze": 1,
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), 1),
}

#: Operators of single entries.
_SINGLE: Final = frozenset([
    "Abs", "Cast", "Celu", "Clip", "Dropout", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus",
    "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
])  # fmt: skip

#: From this version on, a softmax is computed along the last axis by default.
_SOFTMAX_ALONG_LAST: Final = 13

_REASON: Final = "merges the batch with another axis"


def merged_to(value: Value, target: Sequence[int | None], reshaped: Callable[..., Value]) -> Merged:
    """Return a tensor in a shape in which one axis, marked with -1, merges the batch with axes next to it.

    Args:
        reshaped: Returns a value in a shape with the batch apart.

    Raises:
        UnsupportedNodeError: The other axes do not divide those before and after the batch.
    """
    if [*target].count(-1) != 1 or None in target:
        raise UnsupportedNodeError(f"{_REASON}, which needs a free batch size in the file, or divides it")
    axis = [*target].index(-1)
    sizes = [size or 1 for size in value.shape]
    outside = [prod(size or 1 for size in part) for part in (target[:axis], target[axis + 1 :])]
    around = [prod(part) for part in (sizes[: value.batch], sizes[value.batch + 1 :])]
    if 0 in outside or any(whole % part for whole, part in zip(around, outside, strict=True)):
        raise UnsupportedNodeError(f"{_REASON}, or divides it")
    before, after = (
        [whole // part] if whole != part else [] for whole, part in zip(around, outside, strict=True)
    )
    apart = reshaped(value, (*target[:axis], *before, None, *after, *target[axis + 1 :]))
    return Merged(apart, axis, len(before), len(after))


def transposed(merged: Merged, order: Sequence[int]) -> Merged:
    """Return a tensor with its axes in another order; nothing moves."""
    placed = [axis for each in order for axis in merged.parts(each)]
    value = replace(merged.value, axes=tuple(placed.index(axis) for axis in merged.value.axes))
    return replace(merged, value=value, axis=[*order].index(merged.axis))


def divides(node: Node, arguments: Sequence[Argument]) -> bool:
    """Check whether an operator takes a tensor with a merged axis as it is."""
    first = arguments[0]
    views = isinstance(first, Merged) and (first.rank == 1 or isinstance(arguments[-1], Places))
    return (node.operator == "Gather" and views) or node.operator in _DIVIDING


def viewed(merged: Merged, indices: Argument, reshaped: Callable[..., Value]) -> Value:
    """Return all entries of a tensor that is a single axis, divided into axes again in any order.

    PyTorch exports views with given strides so: `indices` has the place of each entry.

    Args:
        reshaped: Returns a value in a shape with the batch apart.

    Raises:
        UnsupportedNodeError: Entries are repeated, omitted or moved to other examples.
    """
    entries = prod(merged.value.sizes(1))
    first, second = (for_probe(indices, probe) for probe in (0, 1))
    places = first[0] if isinstance(first, np.ndarray) and first.ndim > 1 else np.zeros(0)
    for probe, array in zip(PROBES, (first, second), strict=True):
        starts = np.arange(probe).reshape(-1, *[1] * places.ndim) * entries
        if not np.array_equal(array, places + starts):
            raise UnsupportedNodeError(f"{_REASON}, or selects examples of a batch")
    steps = [np.diff(places, axis=axis).max(initial=0) for axis in range(places.ndim)]
    order = sorted(range(places.ndim), key=lambda axis: -steps[axis])
    if not np.array_equal(places.transpose(order).reshape(-1), np.arange(entries)):
        raise UnsupportedNodeError(f"{_REASON}, and repeats or omits entries")
    value = reshaped(merged.value, (None, *(places.shape[axis] for axis in order)))
    placed = [0, *(axis + 1 for axis in order)]
    return replace(value, axes=tuple(placed[axis] for axis in value.axes))


def apart(node: Node, arguments: Sequence[Argument]) -> tuple[Node, list[Argument], Merged]:
    """Return a node and its inputs with the merged axes apart, and one of these inputs.

    Raises:
        UnsupportedNodeError: The operator combines entries along the merged axis, or its inputs merge
            different axes.
    """
    merged = [argument for argument in arguments if isinstance(argument, Merged)]
    like, kind = merged[0], node.operator
    known = kind in _ENTRYWISE | _ALONG_LAST | _ALONG_ONE | _ALONG_SOME.keys() | _SINGLE
    alike = all(each.layout == like.layout for each in merged)
    if not known or not alike or any(isinstance(argument, Value) for argument in arguments):
        raise UnsupportedNodeError(_REASON)
    if kind in _ALONG_LAST:
        node = _along_last(node, like, arguments)
    if kind in _ALONG_ONE:
        node, like = _along_one(node, like, arguments)
    if kind in _ALONG_SOME:
        node, arguments, like = _along_some(node, like, arguments)
    return node, [_part(each, like, kind in _ENTRYWISE) for each in arguments], like


def _along_one(node: Node, like: Merged, arguments: Sequence[Argument]) -> tuple[Node, Merged]:
    """Return a node with the axis of the separate axes, and the layout of its result."""
    axis = node.get("axis", 0) % like.rank
    joins_constant = node.operator == "Concat" and not all(isinstance(each, Merged) for each in arguments)
    if axis == like.axis or joins_constant or not isinstance(arguments[0], Merged):
        raise UnsupportedNodeError(_REASON)
    (place,) = like.parts(axis)
    index = arguments[1] if node.operator == "Gather" else None
    drops = isinstance(index, np.ndarray) and index.ndim == 0
    result = replace(like, axis=like.axis - 1) if drops and axis < like.axis else like
    return replace(node, attributes={**node.attributes, "axis": place}), result


def _along_some(
    node: Node, like: Merged, arguments: Sequence[Argument]
) -> tuple[Node, Sequence[Argument], Merged]:
    """Return a node and its inputs with the numbers of the separate axes, and the layout of its result."""
    place = _ALONG_SOME[node.operator]
    listed = arguments[place] if place < len(arguments) else None
    axes = node.get("axes") if listed is None else constant(listed, "axes").reshape(-1).tolist()
    chosen = [axis % like.rank for axis in axes or range(like.rank)]
    if like.axis in chosen:
        raise UnsupportedNodeError(_REASON)
    separate = [part for axis in chosen for part in like.parts(axis)]
    drops = node.operator == "Squeeze" or (node.operator != "Slice" and not node.get("keepdims", 1))
    dropped = sum(axis < like.axis for axis in chosen) if drops else 0
    changed = [np.array(separate) if index == place else each for index, each in enumerate(arguments)]
    if listed is None:
        node = replace(node, attributes={**node.attributes, "axes": separate})
    return node, arguments if listed is None else changed, replace(like, axis=like.axis - dropped)


def _along_last(node: Node, like: Merged, arguments: Sequence[Argument]) -> Node:
    """Return a node whose axis is counted from the end; the merged axis has to be another one."""
    old_softmax = node.version < _SOFTMAX_ALONG_LAST and node.operator in ("Softmax", "LogSoftmax")
    axis = node.get("axis", 1 if old_softmax else -1)
    axis = axis - like.rank if axis >= 0 else axis
    by_constant = [isinstance(argument, Merged) for argument in arguments[:2]] == [True, False]
    first = -2 if node.operator == "MatMul" and not by_constant else axis
    if like.axis >= like.rank + first or node.get("transA"):
        raise UnsupportedNodeError(_REASON)
    return replace(node, attributes={**node.attributes, "axis": axis})


def _part(argument: Argument, like: Merged, spread: bool) -> Argument:
    if isinstance(argument, Merged):
        return argument.value
    if not spread or argument is None or isinstance(argument, Value | Places):
        return argument
    array: Array = argument.constant if isinstance(argument, BatchDependent) else argument
    array = array.reshape((1,) * (like.rank - array.ndim) + array.shape)
    if array.shape[like.axis] != 1:
        raise UnsupportedNodeError("has a constant that differs along the batch")
    return np.expand_dims(array, tuple(range(like.axis, like.axis + like.before + like.after)))


def together(result: Any, like: Merged) -> Any:
    """Return the results of a node with the axes merged as those of an input."""
    if isinstance(result, list):
        return [together(each, like) for each in result]
    return replace(like, value=result) if isinstance(result, Value) else result
