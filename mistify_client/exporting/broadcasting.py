"""Tensors of several layouts and ranks as inputs of one node."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from mistify_client.exporting.builder import Argument, Builder
from mistify_client.exporting.registry import Call
from mistify_client.exporting.shapes import Shape, count
from mistify_client.exporting.values import Array, Value, in_order, preferred

#: Returns a node's output as a value.
Made: TypeAlias = Callable[[str], Value]


def together(builder: Builder, call: Call, *numbers: int) -> tuple[Sequence[Value | Array], Made]:
    """Return inputs that are broadcast, in one layout, and a function that makes the result of a node.

    Args:
        numbers: Positions of the inputs among those of the operator.
    """
    shape, arguments = call.shape, [call.argument(number) for number in numbers]
    values = [argument for argument in arguments if isinstance(argument, Value)]
    leading = max(values, key=_weight)
    if leading.rank != len(shape) or not _same_order(leading, arguments):
        leading = builder.plain(leading)
    if leading.rank != len(shape):
        leading = builder.reshaped(leading, _full(leading.shape, len(shape)))
    axes, order = leading.axes, leading.order
    inputs = [_placed(builder, argument, axes, order) for argument in arguments]
    return inputs, lambda name: Value(name, shape, axes, order)


def _same_order(leading: Value, arguments: Sequence[Argument]) -> bool:
    """Check whether all tensors can take the order of a flattened one; constants always can."""
    if leading.order is None:
        return True
    return all(
        not isinstance(one, Value)
        or count(one.shape) == 1
        or (one.order is not None and np.array_equal(one.order, leading.order))
        for one in arguments
    )


def _placed(
    builder: Builder, argument: Argument, axes: tuple[int, ...], order: Array | None
) -> Value | Array:
    rank = len(axes)
    if isinstance(argument, Value):
        if count(argument.shape) == 1 or argument.order is not None:
            return argument if argument.order is None or order is not None else builder.plain(argument)
        full = builder.reshaped(builder.plain(argument), _full(argument.shape, rank))
        return builder.arranged(full, axes)
    if argument.size == 1:
        return argument.reshape(())
    full_array = argument.reshape((1,) * (rank - argument.ndim) + argument.shape)
    if order is not None and full_array.shape[-1] > 1:
        full_array = full_array[..., order]
    placed = full_array.transpose(axes)
    return placed.reshape(placed.shape[next(at for at, size in enumerate(placed.shape) if size > 1) :])


def _full(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def _weight(value: Value) -> tuple[int, int, bool]:
    """Return the rank of a tensor among those whose layout others may take."""
    return value.rank, count(value.shape), value.axes == preferred(value.rank)


def in_layout(builder: Builder, arguments: Sequence[Argument]) -> list[Value]:
    """Return tensors of the same rank in the layout of the largest computed one."""
    values = [argument for argument in arguments if isinstance(argument, Value)]
    rank = len(arguments[0].shape)
    axes = max(values, key=_weight).axes if values else in_order(rank)
    return [builder.arranged(argument, axes) for argument in arguments]
