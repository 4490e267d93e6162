"""Entries that each example selects by indices of its own."""

from collections.abc import Sequence
from math import prod
from typing import Any

import keras
import numpy as np

from executors.sources.onnx.batch import PROBES, BatchDependent
from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.operators.shapes import reshaped_to
from executors.sources.onnx.registry import Argument, Node, tensor
from executors.sources.onnx.values import Merged, Places, Value

#: Most products of entries and of whether an index is theirs, for each example.
_MOST_PRODUCTS = 2**22


def one_hot_of(builder: Builder, indices: Value, depth: int) -> Value:
    """Return float32 vectors with a one at each index, which may be negative, along a new last axis."""
    value = builder.as_in_onnx(indices)
    entries = value.tensor
    if entries.dtype != "int32":
        raise UnsupportedNodeError("has indices that are no integers")
    counted = keras.ops.where(keras.ops.less(entries, 0), keras.ops.add(entries, depth), entries)
    return Value(keras.ops.one_hot(counted, depth), (*value.axes, value.rank), not_negative=True)


def selecting(builder: Builder, value: Value, axis: int, places: Value) -> Any:
    """Return vectors with a one at each place along an axis, whose products with the entries select them.

    Raises:
        UnsupportedNodeError: The entries are integers, or there would be too many products.
    """
    if value.tensor.dtype != "float32":
        raise UnsupportedNodeError("selects integers; expected floats")
    size = value.size(axis)
    products = size * int(np.prod(places.tensor.shape[1:]))
    if products > _MOST_PRODUCTS:
        raise UnsupportedNodeError(
            f"selects by {products:,} products for each example; expected at most {_MOST_PRODUCTS:,}"
        )
    return one_hot_of(builder, places, size).tensor


def numbered_by_example(builder: Builder, node: Node, arguments: Sequence[Argument]) -> Places | None:
    """Return computed indices to which `Add` or `Concat` adds the numbers of their examples, if it does."""
    numbers = next((each for each in arguments if isinstance(each, BatchDependent)), None)
    value = next((each for each in arguments if isinstance(each, Value)), None)
    if numbers is None or value is None or len(arguments) != 2 or value.tensor.dtype != "int32":
        return None
    step = _step(numbers, value)
    if node.operator != "Concat" or step is None:
        return None if step is None else Places(value, step)
    last = value.rank - 1
    ahead = arguments[0] is numbers and node.get("axis") in (-1, last)
    if not ahead or step != 1 or value.batch == last or value.size(last) != 1:
        return None
    return Places(reshaped_to(builder, value, value.shape[:-1]), None)


def _step(numbers: BatchDependent, like: Value) -> int | None:
    """Return the number by which those of successive examples differ; None for other constants."""
    steps = set()
    for batch, array in zip(PROBES, numbers.values, strict=True):
        counted = np.arange(batch).reshape([batch if axis == like.batch else 1 for axis in range(like.rank)])
        if array.ndim > like.rank or array.size < batch:
            return None
        step = int(array.reshape(-1)[-1]) // (batch - 1)
        whole = array.reshape((1,) * (like.rank - array.ndim) + array.shape)
        if not np.array_equal(whole, np.broadcast_to(counted * step, whole.shape)):
            return None
        steps.add(step)
    return steps.pop() if len(steps) == 1 else None


def by_example(builder: Builder, data: Argument, places: Places) -> Value:
    """Return the entries of a tensor [n, entries, ...] at places [n, ...] of each example, as a product.

    Raises:
        UnsupportedNodeError: The places are those of other axes than the second one.
    """
    if isinstance(data, Merged):
        if (data.axis, data.before, data.after) != (0, 0, 1) or places.size != data.value.size(1):
            raise UnsupportedNodeError("merges the batch with another axis")
        data = data.value
    elif places.size is not None:
        raise UnsupportedNodeError("selects examples of a batch")
    value, indices = builder.as_in_onnx(tensor(data)), builder.as_in_onnx(places.value)
    if value.batch or indices.batch:
        raise UnsupportedNodeError("combines the examples of a batch")
    selects = selecting(builder, value, 1, indices)
    kept, rest = list(indices.tensor.shape[1:]), list(value.tensor.shape[2:])
    rows = builder.reshaped(value.tensor, (value.size(1), prod(rest)))
    selects = builder.reshaped(selects, (prod(kept), value.size(1)))
    result = builder.reshaped(keras.ops.matmul(selects, rows), (*kept, *rest))
    return Value(result, tuple(range(1 + len(kept) + len(rest))), not_negative=value.not_negative)
