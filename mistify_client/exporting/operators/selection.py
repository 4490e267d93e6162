"""Parts of tensors."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mistify_client.exporting.builder import Builder
from mistify_client.exporting.errors import NotExportableError
from mistify_client.exporting.registry import Call, operator
from mistify_client.exporting.shapes import Shape
from mistify_client.exporting.values import Value, fixed, in_order, without

#: Stands for the end of an axis in ONNX, in either direction.
_END: Final = np.iinfo(np.int64).max


@dataclass
class _Cut:
    """The parts of all axes.

    Attributes:
        begins: The first entry by axis; negative numbers count from the end.
        ends: The entry behind the last one.
        steps: From one entry to the next.
        dropped: Axes of which one entry is left, and which are removed.
    """

    begins: list[int]
    ends: list[int]
    steps: list[int]
    dropped: set[int] = field(default_factory=set)


@operator("SLICE")
def part(builder: Builder, call: Call) -> Value:
    """Write a contiguous part."""
    value, begins = builder.plain(call.argument(0)), [int(begin) for begin in call.constant(1)]
    ends = [
        _END if whole == made and not begin else begin + fixed((made,))[0]
        for begin, whole, made in zip(begins, value.shape, call.shape, strict=True)
    ]
    return _sliced(builder, value, _Cut(begins, ends, [1] * value.rank), call.shape)


@operator("STRIDED_SLICE")
def strided_part(builder: Builder, call: Call) -> Value:
    """Write a part with steps; axes of which one entry is chosen may be dropped."""
    value, options = builder.plain(call.argument(0)), call.options
    if options.ellipsisMask or options.newAxisMask:
        raise NotExportableError("it has new axes or an ellipsis")
    constants = [call.constant(place) for place in (1, 2, 3)]
    missing = value.rank - constants[0].size
    begins, ends, steps = (
        [*map(int, numbers), *[default] * missing]
        for numbers, default in zip(constants, (0, _END, 1), strict=True)
    )
    cut = _Cut(begins, ends, steps)
    for axis in range(value.rank):
        if options.beginMask >> axis & 1:
            begins[axis] = 0 if steps[axis] > 0 else _END
        if options.endMask >> axis & 1:
            ends[axis] = _END if steps[axis] > 0 else -_END
        if options.shrinkAxisMask >> axis & 1:
            ends[axis] = begins[axis] + 1 if begins[axis] != -1 else _END
            cut.dropped.add(axis)
    return _sliced(builder, value, cut, call.shape)


def _sliced(builder: Builder, value: Value, cut: _Cut, shape: Shape) -> Value:
    parts = list(zip(cut.begins, cut.ends, cut.steps, strict=True))
    changed = [axis for axis, part_of_axis in enumerate(parts) if part_of_axis != (0, _END, 1)]
    name = value.name
    if changed:
        begins, ends, steps = (
            np.array(numbers, np.int64) for numbers in zip(*(parts[axis] for axis in changed), strict=True)
        )
        positions = np.array([value.position(axis) for axis in changed], np.int64)
        name = builder.node("Slice", value, begins, ends, positions, steps)
    if not cut.dropped:
        return Value(name, shape, value.axes)
    squeezed = np.array(sorted(value.position(axis) for axis in cut.dropped), np.int64)
    return Value(builder.node("Squeeze", name, squeezed), shape, without(value.axes, cut.dropped))


@operator("SPLIT")
def equal_parts(builder: Builder, call: Call) -> list[Value]:
    """Write a division into equal parts."""
    return _parts(builder, call, 1, int(call.constant(0).item()))


@operator("SPLIT_V")
def parts_of_given_sizes(builder: Builder, call: Call) -> list[Value]:
    """Write a division into parts of given sizes."""
    return _parts(builder, call, 0, int(call.constant(2).item()))


def _parts(builder: Builder, call: Call, number: int, axis: int) -> list[Value]:
    value = builder.plain(call.argument(number))
    axis %= value.rank
    sizes = np.array([fixed(shape[axis : axis + 1])[0] for shape in call.shapes], np.int64)
    names = builder.nodes_outputs("Split", [value, sizes], len(call.shapes), axis=value.position(axis))
    return [Value(name, shape, value.axes) for name, shape in zip(names, call.shapes, strict=True)]


@operator("UNPACK")
def unpack(builder: Builder, call: Call) -> list[Value]:
    """Write the entries of an axis."""
    value = builder.plain(call.argument(0))
    axis = int(call.options.axis) % value.rank
    position = value.position(axis)
    return [
        Value(
            builder.node("Gather", value, np.array(number, np.int64), axis=position),
            shape,
            without(value.axes, {axis}),
        )
        for number, shape in enumerate(call.shapes)
    ]


@operator("GATHER")
def gather(builder: Builder, call: Call) -> Value:
    """Write entries of an axis by their numbers."""
    if getattr(call.options, "batchDims", 0):
        raise NotExportableError("its numbers differ between examples")
    table, numbers = call.argument(0), call.argument(1)
    source = builder.plain(table)
    axis = int(call.options.axis) % source.rank
    if not isinstance(numbers, Value) and numbers.ndim == 1:
        name = builder.node("Gather", source, numbers.astype(np.int64), axis=source.position(axis))
        return Value(name, call.shape, source.axes)
    source = builder.as_in_litert(source)
    index = numbers if not isinstance(numbers, Value) else builder.as_in_litert(numbers)
    name = builder.node("Gather", source if isinstance(table, Value) else table, index, axis=axis)
    return Value(name, call.shape, in_order(len(call.shape)))


@operator("REVERSE_V2")
def reverse(builder: Builder, call: Call) -> Value:
    """Write a tensor with some axes reversed."""
    value = builder.plain(call.argument(0))
    positions = [value.position(int(axis)) for axis in call.constant(1).reshape(-1)]
    ones = np.ones(len(positions), np.int64)
    name = builder.node("Slice", value, -ones, -_END * ones, np.array(positions, np.int64), -ones)
    return value.like(name)


@operator("ONE_HOT")
def one_hot(builder: Builder, call: Call) -> Value:
    """Write a vector with one entry for each number."""
    value = builder.as_in_litert(call.argument(0))
    depth, on, off = (call.constant(place).reshape(()) for place in (1, 2, 3))
    axis = int(call.options.axis)
    name = builder.node("OneHot", value, depth.astype(np.int64), np.stack([off, on]), axis=axis)
    return Value(name, call.shape, in_order(len(call.shape)))
