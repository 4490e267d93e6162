"""Construction of an ONNX graph, one node at a time."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from mistify.wording import numbered
from mistify_client.exporting.shapes import BatchSize, Shape, blocks
from mistify_client.exporting.values import Array, Value, in_order, merged_order, moves, preferred

#: An input of an operator: a tensor, or a constant.
Argument: TypeAlias = Value | Array

#: An input of a node: a tensor by its name, a constant, or an optional one that is missing.
NodeInput: TypeAlias = "Value | Array | str | None"

#: The number of zeros before and after each axis.
Paddings: TypeAlias = Sequence[tuple[int, int]]

#: A tensor of ONNX, and the axes of LiteRT that stand in it.
_View: TypeAlias = tuple[str, tuple[int, ...]]

#: Appended by Keras to the name of a layer for each call.
_CALL: Final = re.compile(r"_\d+$")

_UNUSABLE: Final = re.compile(r"[^A-Za-z0-9_./]+")


class Builder:
    """A graph under construction.

    Args:
        taken: Names of the graph's inputs and outputs.
        batch_of: The name of an input.
        batch_axis: The axis of this input that is the batch.

    Attributes:
        nodes: All nodes so far, in order; some may not be needed.
        weights: Name -> initializer.
        not_negative: Names of tensors that are known to have no negative entry.
    """

    def __init__(self, taken: Sequence[str], batch_of: str, batch_axis: int) -> None:
        self._taken = set(taken)
        self._batch_of = batch_of, batch_axis
        self._scope = ""
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, TensorProto] = {}
        self._stored: dict[tuple[Any, ...], str] = {}
        self._entries: dict[str, str] = {}
        self._outputs: set[str] = set()
        self.not_negative: set[str] = set()
        # By name and layout: a transposition in LiteRT changes only the layout.
        self._moved: dict[tuple[_View, tuple[int, ...]], Value] = {}
        self._sources: dict[_View, Value] = {}
        self._paddings: dict[_View, tuple[Value, Paddings]] = {}

    def enter(self, place: str) -> None:
        """Name the following nodes after a layer of the network.

        Args:
            place: Name of an output, or LiteRT's name of a tensor, such as `conv_1/Relu;conv_1/BiasAdd`
                for the call of a layer `conv`.
        """
        parts = [part for part in _UNUSABLE.sub("_", place.partition(";")[0]).strip("_/.").split("/") if part]
        layers = [_CALL.sub("", part) for part in parts[:-1]] or parts
        self._scope = "/".join(layers) or "node"

    def node(self, kind: str, *inputs: NodeInput, **attributes: Any) -> str:
        """Add a node with one output, and return the name of its output.

        Args:
            kind: An operator of ONNX.
            inputs: Constants become initializers.
            attributes: Attributes of the node; None leaves one out.
        """
        return self.nodes_outputs(kind, inputs, 1, **attributes)[0]

    def nodes_outputs(
        self, kind: str, inputs: Sequence[NodeInput], outputs: int, **attributes: Any
    ) -> list[str]:
        """Add a node, and return the names of its outputs."""
        name = self._unique(f"{self._scope}/{kind}")
        names = [name] if outputs == 1 else [self._unique(f"{name}:{number}") for number in range(outputs)]
        present = {key: value for key, value in attributes.items() if value is not None}
        read = [*map(self._named, inputs)]
        while read and not read[-1]:  # not every runtime takes an empty name for a missing last input
            read.pop()
        self.nodes.append(helper.make_node(kind, read, names, name, **present))
        return names

    def layer(self, kind: str, value: Value, *weights: Array | None, **attributes: Any) -> str:
        """Add a node whose constants are the weight and the bias of a layer, and are named after it."""
        named = [
            None if weight is None else self._initializer(weight, f"{self._scope}.{part}")
            for weight, part in zip(weights, ("weight", "bias"), strict=False)
        ]
        return self.node(kind, value, *named, **attributes)

    def finish(self, name: str, output: str) -> None:
        """Make a tensor an output of the graph, under another name.

        Args:
            name: The name of the tensor, perhaps of an input, a constant, or another output.
            output: The name of the output.
        """
        maker = next((node for node in self.nodes if name in node.output), None)
        if maker is None or name in self._outputs:
            self.nodes.append(
                helper.make_node("Identity", [name], [output], self._unique(f"{output}/Identity"))
            )
            self._outputs.add(output)
            return
        for node in self.nodes:
            for names in (node.input, node.output):
                names[:] = [output if one == name else one for one in names]
        self._outputs.add(output)

    def value(self, argument: Argument) -> Value:
        """Return a constant as a tensor, or the tensor itself."""
        if isinstance(argument, Value):
            return argument
        name = self._initializer(argument, f"{self._scope}.constant")
        return Value(name, argument.shape, in_order(argument.ndim))

    def plain(self, argument: Argument) -> Value:
        """Return a tensor whose entries are in the order of its axes."""
        value = self.value(argument)
        if value.order is None:
            return value
        source = self.source(value)
        if source.order is None:
            return self._reshape(self.as_in_litert(source), value.shape, in_order(value.rank))
        name = self.node("Gather", value, np.argsort(value.order), axis=value.rank - 1)
        return replace(value, name=name, order=None)

    def arranged(self, argument: Argument, axes: tuple[int, ...]) -> Value:
        """Return a tensor in another layout.

        Args:
            axes: For each position, the axis of LiteRT that has to stand there.
        """
        value = self.plain(argument)
        if value.axes == axes:
            return value
        key = _view(value), axes
        if key not in self._moved:
            if moves(value.shape, value.axes, axes):
                name = self.node("Transpose", value, perm=[value.axes.index(axis) for axis in axes])
                self._moved[key] = Value(name, value.shape, axes)
                self._sources[_view(self._moved[key])] = self.source(value)
            else:
                self._moved[key] = self._reshape(value, value.shape, axes)
        return self._moved[key]

    def as_in_litert(self, argument: Argument) -> Value:
        """Return a tensor with its axes in LiteRT's order."""
        value = self.plain(argument)
        return self.arranged(value, in_order(value.rank))

    def source(self, value: Value) -> Value:
        """Return the tensor of which a value is a reshaped form; the value itself if it is none."""
        return self._sources.get(_view(value), value)

    def reshaped(self, argument: Argument, shape: Shape) -> Value:
        """Return a tensor with another shape, in a layout without a transposition, or in the preferred one.

        If all axes but the batch are merged into one, their order may differ from LiteRT's.
        """
        value = self.value(argument)
        if value.shape == shape:
            return value
        source = self.source(value)
        if source.shape == shape:
            return source
        for each in (source, value):
            axes = None if each.order is not None else _axes_after(each, shape)
            if axes is not None:
                return self._reshape(each, shape, axes)
        if source.order is None and len(shape) == 2 and source.axes[0] == 0 and source.shape[0] == shape[0]:
            order = merged_order(source.shape[1:], tuple(axis - 1 for axis in source.axes[1:]))
            return replace(self._reshape(source, shape, (0, 1)), order=order)
        wanted = preferred(len(shape))
        standing = _axes_before(value.shape, shape, wanted)
        if standing is None:
            return self._reshape(self.as_in_litert(value), shape, in_order(len(shape)))
        return self._reshape(self.arranged(value, standing), shape, wanted)

    def expanded(self, argument: Argument, shape: Shape) -> Value:
        """Return a tensor repeated along its axes of size 1."""
        value = self.value(argument)
        value = self.as_in_litert(self.reshaped(value, ((1,) * (len(shape) - value.rank)) + value.shape))
        return Value(self.node("Expand", value, self.sizes(shape)), shape, in_order(len(shape)))

    def note_padding(self, made: Value, value: Value, amounts: Paddings) -> None:
        """Remember that a value is another one with zeros around it, for convolutions that pad themselves."""
        self._paddings[_view(made)] = value, amounts

    def before_padding(
        self, value: Value, pads: list[int], *, lowest: bool = False
    ) -> tuple[Value, list[int]]:
        """Return a value without the zeros around its positions, and the paddings of ONNX that replace them.

        Args:
            pads: The paddings that are returned for a value without zeros around it.
            lowest: Whether the node pads with a number below all others instead of zeros.
        """
        inner, amounts = self._paddings.get(_view(value), (value, None))
        if lowest and inner.name not in self.not_negative:
            return value, pads
        if amounts is None or amounts[0] != (0, 0) or amounts[-1] != (0, 0):
            return value, pads
        return inner, [before for before, _ in amounts[1:-1]] + [behind for _, behind in amounts[1:-1]]

    def sizes(self, shape: Shape, *, inferred: bool = False) -> Array | str:
        """Return sizes for a node: a constant, or a tensor that is computed from the batch size.

        Args:
            shape: The sizes, in the order of the node.
            inferred: Whether the node infers one size that is given as -1.
        """
        free = sum(isinstance(size, BatchSize) for size in shape)
        if not free or (inferred and free == 1):
            return np.array([size if isinstance(size, int) else -1 for size in shape], np.int64)
        name, axis = self._batch_of
        batch = self.node("Gather", self.node("Shape", name), np.array([axis], np.int64), axis=0)
        parts: list[NodeInput] = [
            np.array([size], np.int64)
            if isinstance(size, int)
            else batch
            if size.times == 1
            else self.node("Mul", batch, np.array([size.times], np.int64))
            for size in shape
        ]
        return self.node("Concat", *parts, axis=0)

    def _reshape(self, value: Value, shape: Shape, axes: tuple[int, ...]) -> Value:
        """Return a tensor whose entries stand as they do, divided into other axes."""
        made = Value("", shape, axes)
        entries = self._entries.get(value.name, value.name)
        made = replace(made, name=self.node("Reshape", entries, self.sizes(made.placed, inferred=True)))
        self._entries[made.name] = entries
        self._sources[_view(made)] = self.source(value)
        return made

    def _named(self, source: NodeInput) -> str:
        if source is None:
            return ""
        if isinstance(source, str):
            return source
        return (
            source.name if isinstance(source, Value) else self._initializer(source, f"{self._scope}.constant")
        )

    def _initializer(self, content: Array, wanted: str) -> str:
        """Store a constant, once for all equal ones, and return its name."""
        key = content.dtype.str, content.shape, hashlib.sha256(content.tobytes()).digest()
        if key not in self._stored:
            name = self._stored[key] = self._unique(wanted)
            self.weights[name] = numpy_helper.from_array(np.asarray(content, order="C"), name)
        return self._stored[key]

    def _unique(self, wanted: str) -> str:
        name = numbered(wanted, self._taken)
        self._taken.add(name)
        return name


def _view(value: Value) -> _View:
    return value.name, value.axes


def _axes_after(value: Value, shape: Shape) -> tuple[int, ...] | None:
    """Return the layout of a reshaped tensor; None if its entries have to move."""
    divided = list(blocks(value.shape, shape))
    places = {axis: place for place, axis in enumerate(value.axes)}
    spans: list[tuple[int, range]] = []
    for old, new in divided:
        standing = [places[axis] for axis in old if value.shape[axis] != 1]
        between = [
            place
            for place in range(min(standing, default=0), max(standing, default=-1) + 1)
            if value.shape[value.axes[place]] != 1
        ]
        if standing != between:
            return None
        # Axes of size 1 may stand anywhere: behind those before them.
        spans.append((standing[0] if standing else spans[-1][0] if spans else -1, new))
    return tuple(axis for _, new in sorted(spans, key=lambda span: span[0]) for axis in new)


def _axes_before(old: Shape, new: Shape, wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the layout of a tensor that is reshaped into a wanted one; None if there is none."""
    places = {axis: place for place, axis in enumerate(wanted)}
    spans: list[tuple[int, range]] = []
    for before, behind in blocks(old, new):
        if not behind:
            return None
        start = places[behind[0]]
        if [places[axis] for axis in behind] != list(range(start, start + len(behind))):
            return None
        spans.append((start, before))
    return tuple(axis for _, before in sorted(spans, key=lambda span: span[0]) for axis in before)
