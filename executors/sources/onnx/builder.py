"""Keras layers for the nodes of an ONNX graph, and the changes of layout between them."""

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import keras
import numpy as np

from executors.sources.onnx import names
from executors.sources.onnx.batch import Array
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Node
from executors.sources.onnx.values import Value
from executors.structure import keras_internals

layers = keras.layers

_LIMITS: Final = np.iinfo(np.int32)


class Builder:
    """Makes named layers, and brings values into the layouts that these need.

    Args:
        reserved: Names of the network's inputs and outputs, which no layer may take.
        batch: The batch size of the file; None if it is free.
    """

    def __init__(self, reserved: Sequence[str], batch: int | None = None) -> None:
        self._names = names.Names(list(reserved))
        self.batch = batch

    def weighted(self, node: Node, weight: int = 1) -> str:
        """Return a name for a layer with weights.

        Args:
            weight: Index of the node's input with its main weight.
        """
        return self._names.unique(names.of_weight(node.inputs[weight], node.name, node.operator))

    def plain(self, node: Node) -> str:
        """Return a name for a layer without weights."""
        return self._names.unique(names.of_node(node.name, node.operator))

    def helper(self, kind: str) -> str:
        """Return a name for a layer that changes a layout, such as `permute`."""
        return self._names.unique(kind)

    def name_operations(self, outputs: Sequence[Any]) -> None:
        """Rename the operations that lead to tensors: Keras's own names for them may be those of layers."""
        seen: set[int] = set()
        left = list(outputs)
        while left:
            tensor = left.pop()
            call = keras_internals.making_call(tensor)
            if id(call) in seen:
                continue
            seen.add(id(call))
            operation = call.operation
            if keras_internals.is_operation(operation):
                operation.name = self._names.unique(type(operation).__name__.lower())
            left += call.arguments.keras_tensors

    def channels_last(self, value: Value) -> Value:
        """Return a value whose ONNX axis 1, the channels, stands last."""
        if value.rank == 2 and value.batch == 0:
            return value
        return self.moved_last(value, 1)

    def moved_last(self, value: Value, axis: int) -> Value:
        """Return a value in which an ONNX axis stands last."""
        axis %= value.rank
        if value.order is not None and axis == value.rank - 1:
            value = self.ordered(value)
        if value.axes[-1] == axis:
            return value
        if axis == value.batch:
            raise UnsupportedNodeError("combines the examples of a batch")
        others = sorted(other for other in value.axes[1:] if other != axis)
        return self.laid_out(value, (value.batch, *others, axis))

    def laid_out(self, value: Value, axes: Sequence[int]) -> Value:
        """Return a value with its axes at other positions, the batch first."""
        value, axes = self.ordered(value), tuple(axes)
        if value.axes == axes:
            return value
        if axes[0] != value.batch:
            raise UnsupportedNodeError("moves the batch between other axes")
        moves = [value.axes.index(axis) for axis in axes]
        shape = value.tensor.shape
        moved = [position for position in moves if shape[position] != 1]
        if moved == sorted(moved):  # only axes of size 1 move
            tensor = self.reshaped(value.tensor, [shape[position] for position in moves[1:]])
        else:
            tensor = layers.Permute(tuple(moves[1:]), name=self.helper("permute"))(value.tensor)
        return Value(tensor, axes, not_negative=value.not_negative)

    def ordered(self, value: Value) -> Value:
        """Return a value without a deferred order of its last axis."""
        if value.flattened is None:
            return value
        apart = self.apart(value)
        source = self.laid_out(apart, (apart.batch, *_others(apart)))
        tensor = self.reshaped(source.tensor, value.tensor.shape[1:])
        return Value(tensor, value.axes, not_negative=value.not_negative)

    def apart(self, value: Value) -> Value:
        """Return a value that was flattened with its axes apart again; any other value as it is."""
        before = value.flattened
        if before is None:
            return value
        tensor = self.reshaped(value.tensor, before.tensor.shape[1:])
        return Value(tensor, before.axes, not_negative=value.not_negative)

    def as_in_onnx(self, value: Value) -> Value:
        """Return a value with the axes in ONNX's order, except for the batch, which stays first."""
        return self.laid_out(value, (value.batch, *_others(value)))

    def reshaped(self, tensor: Any, shape: Sequence[int | None]) -> Any:
        """Return a tensor in another shape, which is given without the batch.

        Successive reshapes become one.
        """
        shape = tuple(shape)
        call = keras_internals.making_call(tensor)
        while isinstance(call.operation, layers.Reshape | layers.Flatten):
            (tensor,) = call.arguments.keras_tensors
            call = keras_internals.making_call(tensor)
        if tuple(tensor.shape[1:]) == shape:
            return tensor
        return layers.Reshape(shape, name=self.helper("reshape"))(tensor)

    def constant(self, array: Array, like: Value) -> Array:
        """Return a constant that is broadcast to a value, with its axes where those of the value stand."""
        if array.ndim > like.rank:
            raise UnsupportedNodeError(f"broadcasts its data to {array.ndim} axes")
        array = array.reshape((1,) * (like.rank - array.ndim) + array.shape)
        if array.shape[like.batch] != 1:
            raise UnsupportedNodeError("has a constant that differs along the batch")
        array = array.transpose(like.axes)
        if like.order is not None and array.shape[-1] > 1:
            array = array[..., like.order]
        return as_float(array)

    def per_channel(self, array: Array, like: Value) -> Array | None:
        """Return a constant as a value for each entry of the last axis; None if other axes vary as well."""
        if not 1 < like.rank >= array.ndim:
            return None
        placed = self.constant(array, like)
        channels = like.tensor.shape[-1]
        if placed.size != placed.shape[-1] or placed.size not in (1, channels):
            return None
        return np.broadcast_to(placed.reshape(-1), (channels,))


def _others(value: Value) -> list[int]:
    return sorted(value.axes[1:])


def as_float(array: Array) -> Array:
    """Return an array with float32 for other floats, and int32 for other integers.

    Raises:
        UnsupportedNodeError: An integer needs more than 32 bits.
    """
    kind = array.dtype.kind
    if kind == "f" or array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if kind not in "iu":
        return array
    if array.size and not _LIMITS.min <= array.min() <= array.max() <= _LIMITS.max:
        raise UnsupportedNodeError("has a constant of integers that need more than 32 bits")
    return array.astype(np.int32)


def set_weights(layer: keras.layers.Layer, *weights: Array | None) -> None:
    """Set the weights of a layer, without those that are None."""
    layer.set_weights([as_float(np.asarray(weight)) for weight in weights if weight is not None])


def count(shape: Sequence[int | None]) -> int:
    """Return the number of entries of a shape at batch size 1."""
    return prod(size or 1 for size in shape)
