"""Tensors of an ONNX graph as Keras tensors whose axes stand in another order.

Keras needs channels last, ONNX has them second. Instead of transposing tensors, a value knows which ONNX axis
stands at each position of its Keras tensor. A transposition then only renames axes, and a `Permute` is
needed only where an operator cannot take the axes as they stand. The batch is always first.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from executors.sources.onnx.batch import Array, Size


@dataclass(frozen=True)
class Value:
    """A tensor of an ONNX graph.

    Attributes:
        tensor: The Keras tensor, batch first.
        axes: For each position of the Keras tensor, the ONNX axis that stands there.
        order: For the last axis of a flattened tensor, the ONNX index of each entry; None if they are in
            order.
        flattened: The value that was flattened in another order, before any later functions of single
            entries; None if `order` is.
        not_negative: Whether no entry is negative, so that padding with zeros never changes a maximum.
    """

    tensor: Any
    axes: tuple[int, ...]
    order: Array | None = None
    flattened: "Value | None" = None
    not_negative: bool = False

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.axes)

    @property
    def batch(self) -> int:
        """The ONNX axis of the batch."""
        return self.axes[0]

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes of the ONNX axes."""
        sizes: list[Size] = [None] * self.rank
        for axis, size in zip(self.axes, self.tensor.shape, strict=True):
            sizes[axis] = size
        return tuple(sizes)

    def size(self, axis: int) -> int:
        """Return the size of an ONNX axis other than the batch."""
        return int(self.tensor.shape[self.axes.index(axis % self.rank)])

    def sizes(self, batch: int) -> list[int]:
        """Return the sizes of the ONNX axes for a batch size."""
        return [batch if size is None else size for size in self.shape]

    def position(self, axis: int) -> int:
        """Return the position of an ONNX axis, which may be negative, in the Keras tensor."""
        return self.axes.index(axis % self.rank)

    def swapped(self, one: int, other: int) -> "Value":
        """Return the value with two ONNX axes swapped; nothing moves."""
        swap = {one: other, other: one}
        axes = tuple(swap.get(axis, axis) for axis in self.axes)
        return Value(self.tensor, axes, not_negative=self.not_negative)

    def with_tensor(self, tensor: Any, not_negative: bool = False) -> "Value":
        """Return the result of a function that leaves the axes where they stand."""
        return replace(self, tensor=tensor, not_negative=not_negative)


@dataclass(frozen=True)
class Places:
    """Computed indices together with the number of their example, as in `states[arange(n), last]`.

    Attributes:
        value: The indices within an example.
        size: The entries of an example, by which its number is multiplied before the index is added; None if
            the number is an index of its own in front.
    """

    value: Value
    size: int | None


@dataclass(frozen=True)
class Merged:
    """A tensor with an axis that merges the batch with other axes, which are kept apart.

    Attributes:
        value: The tensor with all axes apart.
        axis: The merged axis in ONNX.
        before: Number of axes of the value, 0 or 1, that are merged with the batch and stand before it.
        after: Number of these that stand after it.
    """

    value: Value
    axis: int
    before: int
    after: int

    @property
    def rank(self) -> int:
        """The number of axes in ONNX."""
        return self.value.rank - self.before - self.after

    @property
    def layout(self) -> tuple[int, ...]:
        """The number of axes and the place of the merged one, equal for tensors that can be combined."""
        return self.rank, self.axis, self.before, self.after

    def parts(self, axis: int) -> range:
        """Return the axes of the value that make up an ONNX axis."""
        first = axis if axis <= self.axis else axis + self.before + self.after
        return range(first, first + 1 + (self.before + self.after if axis == self.axis else 0))

    def sizes(self, batch: int) -> list[int]:
        """Return the sizes of the ONNX axes for a batch size."""
        sizes = self.value.sizes(batch)
        return [prod(sizes[part] for part in self.parts(axis)) for axis in range(self.rank)]
