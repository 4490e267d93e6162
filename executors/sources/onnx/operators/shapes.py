"""Operators that change the shape of a tensor, or the order of its axes."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod

import keras
import numpy as np

from executors.sources.onnx.batch import PROBES, Array, BatchDependent, Size, for_probe, joined, sizes_of
from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.merged import merged_to, transposed
from executors.sources.onnx.operators.reduction import without
from executors.sources.onnx.registry import Argument, Node, operator, optional, tensor
from executors.sources.onnx.values import Merged, Places, Value


@operator("Transpose")
def transpose(builder: Builder, node: Node, data: Argument) -> Value | Merged:
    """Rename the axes; nothing moves."""
    if isinstance(data, Merged):
        return transposed(data, node.get("perm", range(data.rank)[::-1]))
    value = builder.ordered(tensor(data))
    order = list(node.get("perm", range(value.rank)[::-1]))
    axes = tuple(order.index(axis) for axis in value.axes)
    return Value(value.tensor, axes, not_negative=value.not_negative)


@operator("Squeeze")
def squeeze(builder: Builder, node: Node, data: Argument, axes: Argument = None) -> Value:
    """Drop axes of size 1."""
    value, listed = tensor(data), optional(axes, "axes")
    chosen = node.get("axes") if listed is None else [int(axis) for axis in listed.reshape(-1)]
    if chosen is None:
        chosen = [axis for axis, size in enumerate(value.shape) if size == 1]
    dropped = [axis % value.rank for axis in chosen]
    if value.batch in dropped:
        raise UnsupportedNodeError("drops the batch axis; export the model with a free batch size")
    return without(builder, value, dropped)


@operator("Unsqueeze")
def unsqueeze(builder: Builder, node: Node, data: Argument, axes: Argument = None) -> Value:
    """Add axes of size 1, each next to the axis before it."""
    value, listed = builder.ordered(tensor(data)), optional(axes, "axes")
    chosen = node.get("axes") if listed is None else [int(axis) for axis in listed.reshape(-1)]
    rank = value.rank + len(chosen)
    added = sorted(axis % rank for axis in chosen)
    kept = [axis for axis in range(rank) if axis not in added]
    placed = [kept[axis] for axis in value.axes]
    shape = list(value.tensor.shape)
    for axis in added:
        place = placed.index(axis - 1) + 1 if axis - 1 in placed else 1
        placed.insert(place, axis)
        shape.insert(place, 1)
    result = builder.reshaped(value.tensor, shape[1:])
    return Value(result, tuple(placed), not_negative=value.not_negative)


@operator("Flatten")
def flatten(builder: Builder, node: Node, data: Argument) -> Value | Merged:
    """Merge the axes before and after one into two."""
    value = tensor(data)
    axis = node.get("axis", 1)
    axis = axis + value.rank if axis < 0 else axis
    target: list[Size] = [
        prod(size or 1 for size in part) for part in (value.shape[:axis], value.shape[axis:])
    ]
    place = int(value.batch >= axis)
    if target[place] != 1:
        target[place] = -1
        return merged_to(value, target, partial(reshaped_to, builder))
    target[place] = None
    return reshaped_to(builder, value, (target[0], target[1]))


@operator("Reshape")
def reshape(builder: Builder, node: Node, data: Argument, shape: Argument) -> Value | Merged:
    """Change the shape of a tensor, whose batch stays an axis or is merged with others."""
    if isinstance(shape, Value | Merged | Places) or shape is None:
        raise UnsupportedNodeError("has a computed shape; expected a constant")
    value = data.value if isinstance(data, Merged) else tensor(data)
    target = sizes_of(_without_open_size(shape, value), merged=-1)
    if 0 in target and not node.get("allowzero", 0):
        if isinstance(data, Merged):
            raise UnsupportedNodeError("merges the batch with another axis")
        target = [value.shape[axis] if size == 0 else size for axis, size in enumerate(target)]
    completed = _completed(target, value, builder.batch)
    if completed is None:
        return merged_to(value, target, partial(reshaped_to, builder))
    return reshaped_to(builder, value, completed)


def _without_open_size(shape: Array | BatchDependent, value: Value) -> Array | BatchDependent:
    """Return a shape that contains the batch with a computed size in place of -1."""
    if not isinstance(shape, BatchDependent):
        return shape
    computed = []
    for probe, batch in enumerate(PROBES):
        sizes = for_probe(shape, probe).reshape(-1).copy()
        if 0 not in sizes:
            sizes[sizes == -1] = prod(value.sizes(batch)) // -prod(sizes.tolist())
        computed.append(sizes)
    return joined((computed[0], computed[1]))


def _completed(target: list[Size], value: Value, batch: int | None) -> tuple[Size, ...] | None:
    """Return a target shape in which the batch is marked and a size of -1 is computed.

    None if the batch is no axis of its own.

    Args:
        batch: The batch size of the file; None if it is free.
    """
    ahead = prod(size or 1 for size in value.shape[: value.batch])
    total = prod(size or 1 for size in value.shape)
    target = list(target)
    if None not in target:  # the fixed batch of the file, or the size that is left open
        for axis, size in enumerate(target):
            known = prod(other for place, other in enumerate(target) if other and place != axis and other > 0)
            left_open = size == -1 and known == total
            fixed = size == batch and (known == total or (-1 in target and known and total % known == 0))
            if prod(other or 1 for other in target[:axis]) == ahead and (size == 1 or left_open or fixed):
                target[axis] = None
                break
    if target.count(None) != 1:
        return None
    known = prod(size for size in target if size is not None and size != -1)
    if -1 in target and known:
        target[target.index(-1)] = total // known
    if prod(size or 1 for size in target) != total or 0 in target:
        raise UnsupportedNodeError(f"reshapes {value.shape} to {tuple(target)}")
    return tuple(target)


@dataclass(frozen=True)
class _Block:
    """Successive axes before and after a reshape that have the same number of entries."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def reshaped_to(builder: Builder, value: Value, target: tuple[Size, ...]) -> Value:
    """Return a value in another shape, in ONNX's order of axes; the batch is None.

    A reshape consists of blocks of axes. Axes of different blocks may stand in any order.

    Raises:
        UnsupportedNodeError: It moves entries between examples.
    """
    if target == value.shape:
        return value
    value = builder.apart(value)
    blocks = _blocks(value.shape, target)
    if _flattens(value, target):
        return _flattened(builder, value)
    if not all(_stands_together(block, value) for block in blocks):
        ranked = sorted(blocks, key=lambda block: _place(block, value))
        value = builder.laid_out(value, [axis for block in ranked for axis in block.before])
    ranked = sorted(blocks, key=lambda block: _place(block, value))
    axes = [axis for block in ranked for axis in block.after]
    batch = target.index(None)
    axes.remove(batch)
    result = builder.reshaped(value.tensor, [target[axis] for axis in axes])
    return Value(result, (batch, *axes), not_negative=value.not_negative)


def with_heads(builder: Builder, value: Value, count: int | None) -> Value:
    """Return a tensor [n, heads, positions, width], which may have its heads within the last axis.

    Args:
        count: Number of heads within the last axis; None or 0 if they have an axis of their own.

    Raises:
        UnsupportedNodeError: The tensor has other axes.
    """
    if value.rank == 3 and count:
        apart = reshaped_to(builder, value, (None, value.size(1), count, value.size(2) // count))
        value = apart.swapped(1, 2)
    if value.rank != 4 or value.batch != 0:
        raise UnsupportedNodeError(f"has an input of shape {value.shape}; expected the batch and heads first")
    return value


def _blocks(before: tuple[Size, ...], after: tuple[Size, ...]) -> list[_Block]:
    """Divide the axes on both sides of the batch into blocks; the batch is a block of its own."""
    first, second = before.index(None), after.index(None)
    return [
        *_sized_blocks(before, after, range(first), range(second)),
        _Block((first,), (second,)),
        *_sized_blocks(before, after, range(first + 1, len(before)), range(second + 1, len(after))),
    ]


def _sized_blocks(
    before: tuple[Size, ...], after: tuple[Size, ...], ours: range, theirs: range
) -> list[_Block]:
    if prod(before[axis] or 1 for axis in ours) != prod(after[axis] or 1 for axis in theirs):
        raise UnsupportedNodeError("moves entries between the examples of a batch")
    blocks, left, right = [], list(ours), list(theirs)
    while left or right:
        one, other = left[:1], right[:1]
        while (sizes := (_entries(before, one), _entries(after, other)))[0] != sizes[1]:
            one, other = (
                (left[: len(one) + 1], other) if sizes[0] < sizes[1] else (one, right[: len(other) + 1])
            )
        left, right = left[len(one) :], right[len(other) :]
        blocks.append(_Block(tuple(one), tuple(other)))
    return blocks


def _entries(shape: tuple[Size, ...], axes: list[int]) -> int:
    return prod(shape[axis] or 1 for axis in axes)


def _place(block: _Block, value: Value) -> float:
    """Return the last position of a block's axes, ignoring those of size 1 if there are others.

    If a block has to be moved together, the axis that stands last stays there.
    """
    if value.batch in block.before:
        return -1.0
    places = [value.position(axis) for axis in block.before]
    large = [place for place in places if value.tensor.shape[place] != 1]
    return max(large, default=min(places, default=value.rank) + 0.5)


def _stands_together(block: _Block, value: Value) -> bool:
    """Check whether a block's axes stand next to each other in ONNX's order, apart from axes of size 1."""
    places = [value.position(axis) for axis in block.before if value.shape[axis] != 1]
    between = (range(one + 1, other) for one, other in pairwise(places))
    apart = any(value.tensor.shape[place] != 1 for gap in between for place in gap)
    return places == sorted(places) and not apart


def _flattens(value: Value, target: tuple[Size, ...]) -> bool:
    """Check whether positions and channels of several axes become one, in another order than they stand."""
    large = [axis for axis in value.axes[1:] if value.shape[axis] != 1]
    return len(target) == 2 and value.batch == 0 and target[0] is None and large != sorted(large)


def _flattened(builder: Builder, value: Value) -> Value:
    """Return a flattened value whose entries keep their places; the next layer reads them in this order."""
    sizes = [size or 1 for size in value.shape[1:]]
    numbered = np.arange(prod(sizes)).reshape(sizes)
    order = numbered.transpose([axis - 1 for axis in value.axes[1:]]).reshape(-1)
    result = keras.layers.Flatten(name=builder.helper("flatten"))(value.tensor)
    return Value(result, (0, 1), order, value, value.not_negative)


@operator("DepthToSpace")
def depth_to_space(builder: Builder, node: Node, data: Argument) -> Value:
    """Distribute blocks of channels over positions."""
    value, block = tensor(data), node.get("blocksize")
    channels, height, width = _sizes_of_image(value)
    kept = channels // block // block
    columns_first = node.get("mode", "DCR") == "DCR"
    split = (block, block, kept) if columns_first else (kept, block, block)
    value = reshaped_to(builder, value, (None, *split, height, width))
    order = [0, 3, 4, 1, 5, 2] if columns_first else [0, 1, 4, 2, 5, 3]
    value = Value(value.tensor, tuple(order.index(axis) for axis in value.axes))
    return reshaped_to(builder, value, (None, kept, height * block, width * block))


@operator("SpaceToDepth")
def space_to_depth(builder: Builder, node: Node, data: Argument) -> Value:
    """Collect blocks of positions in channels."""
    value, block = tensor(data), node.get("blocksize")
    channels, height, width = _sizes_of_image(value)
    rows, columns = height // block, width // block
    value = reshaped_to(builder, value, (None, channels, rows, block, columns, block))
    order = [0, 3, 5, 1, 2, 4] if node.get("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    value = Value(value.tensor, tuple(order.index(axis) for axis in value.axes))
    return reshaped_to(builder, value, (None, channels * block * block, rows, columns))


def _sizes_of_image(value: Value) -> tuple[int, int, int]:
    """Return the channels, the height and the width of images [n, channels, height, width].

    Raises:
        UnsupportedNodeError: Another axis is the batch.
    """
    if value.batch != 0:
        raise UnsupportedNodeError("has its batch on another axis than the first")
    return value.size(1), value.size(2), value.size(3)
