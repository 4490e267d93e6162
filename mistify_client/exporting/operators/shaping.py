"""Changes of the shape, and concatenations."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from mistify_client.exporting.broadcasting import in_layout
from mistify_client.exporting.builder import Argument, Builder
from mistify_client.exporting.operators.elementwise import activated
from mistify_client.exporting.registry import Call, operator
from mistify_client.exporting.values import Value, channels_first, fixed, in_order

_MIRRORED: Final[Mapping[int, str]] = {schema.MirrorPadMode.REFLECT: "reflect"}


@operator("RESHAPE", "EXPAND_DIMS", "SQUEEZE")
def reshape(builder: Builder, call: Call) -> Value:
    """Write another division of the entries into axes."""
    return builder.reshaped(call.argument(0), call.shape)


@operator("TRANSPOSE")
def transpose(builder: Builder, call: Call) -> Value:
    """Rename the axes, and leave them where they stand."""
    value, order = builder.plain(call.argument(0)), [int(axis) for axis in call.constant(1)]
    return Value(value.name, call.shape, tuple(order.index(axis) for axis in value.axes))


@operator("CONCATENATION")
def concatenation(builder: Builder, call: Call) -> Value:
    """Write a concatenation."""
    arguments = [call.argument(number) for number in range(len(call.arguments))]
    rank = len(call.shape)
    axis = int(call.options.axis) % rank
    if rank == 2 and axis == 1 and any(isinstance(one, Value) and one.order is not None for one in arguments):
        return activated(builder, call, _flattened(builder, call, arguments))
    values = in_layout(builder, arguments)
    name = builder.node("Concat", *values, axis=values[0].position(axis))
    return activated(builder, call, Value(name, call.shape, values[0].axes))


def _flattened(builder: Builder, call: Call, arguments: list[Argument]) -> Value:
    """Write a concatenation of flattened tensors, whose entries stand in any order."""
    values = [builder.value(one) for one in arguments]
    values = [one if one.order is not None else builder.as_in_litert(one) for one in values]
    orders, first = [], 0
    for one in values:
        (width,) = fixed(one.shape[1:])
        orders.append(first + (np.arange(width) if one.order is None else one.order))
        first += width
    name = builder.node("Concat", *values, axis=1)
    return Value(name, call.shape, in_order(2), np.concatenate(orders))


@operator("PACK")
def pack(builder: Builder, call: Call) -> Value:
    """Write a concatenation along a new axis."""
    rank = len(call.shape)
    axis = int(call.options.axis) % rank
    one = (*call.shape[:axis], 1, *call.shape[axis + 1 :])
    arguments = [call.argument(number) for number in range(len(call.arguments))]
    values = in_layout(builder, [builder.reshaped(argument, one) for argument in arguments])
    return Value(builder.node("Concat", *values, axis=values[0].position(axis)), call.shape, values[0].axes)


@operator("PAD", "PADV2", "MIRROR_PAD")
def pad(builder: Builder, call: Call) -> Value:
    """Write entries before and behind those of each axis."""
    value = builder.plain(call.argument(0))
    amounts = [(int(before), int(behind)) for before, behind in call.constant(1)]
    placed = [amounts[axis] for axis in value.axes]
    sides = np.array([one[0] for one in placed] + [one[1] for one in placed], np.int64)
    if call.kind == "MIRROR_PAD":
        mode = _MIRRORED.get(call.options.mode)
        if mode is None:
            return _symmetric(builder, call, value, amounts)
        return Value(builder.node("Pad", value, sides, mode=mode), call.shape, value.axes)
    filling = call.constant(2).reshape(()) if call.kind == "PADV2" else np.array(0, call.types[0])
    made = Value(builder.node("Pad", value, sides, filling), call.shape, value.axes)
    if not filling:
        builder.note_padding(made, value, amounts)
    return made


def _symmetric(builder: Builder, call: Call, value: Value, amounts: list[tuple[int, int]]) -> Value:
    """Write a padding with a mirror image that repeats the border, which ONNX's own does not."""
    name = value.name
    for axis, (before, behind) in enumerate(amounts):
        if before or behind:
            (size,) = fixed(value.shape[axis : axis + 1])
            chosen = np.pad(np.arange(size), (before, behind), "symmetric")
            name = builder.node("Gather", name, chosen, axis=value.position(axis))
    return Value(name, call.shape, value.axes)


@operator("TILE")
def tile(builder: Builder, call: Call) -> Value:
    """Write a tensor several times along its axes."""
    value = builder.plain(call.argument(0))
    times = call.constant(1)
    placed = np.array([times[axis] for axis in value.axes], np.int64)
    return Value(builder.node("Tile", value, placed), call.shape, value.axes)


@operator("BROADCAST_TO")
def broadcast(builder: Builder, call: Call) -> Value:
    """Write a tensor repeated along its axes of size 1."""
    return builder.expanded(call.argument(0), call.shape)


@operator("ZEROS_LIKE")
def zeros(builder: Builder, call: Call) -> Value:
    """Write zeros."""
    return builder.expanded(np.zeros((1,) * len(call.shape), call.types[0]), call.shape)


@operator("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def blocks_of_positions(builder: Builder, call: Call) -> Value:
    """Write an exchange of positions and channels, block by block."""
    size, axes = int(call.options.blockSize), channels_first(4)
    value = builder.arranged(call.argument(0), axes)
    if call.kind == "DEPTH_TO_SPACE":
        return Value(builder.node("DepthToSpace", value, blocksize=size, mode="DCR"), call.shape, axes)
    return Value(builder.node("SpaceToDepth", value, blocksize=size), call.shape, axes)
