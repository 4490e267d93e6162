"""The matrix products of a network whose units are cut, and the work that they are in a slice (paper 4.1)."""

from collections.abc import Iterator, Mapping
from math import prod
from mmap import mmap
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils
from pydantic import Field

from mistify.package.cut_places import CutPlaces
from mistify.package.records import Record

_Builtin: Final = schema.BuiltinOperator

#: Kind of operator -> the axes of its kernel with output and input channels; a depthwise one has no sum over
#: input channels.
_KERNELS: Final[Mapping[int, tuple[int, int | None]]] = {
    _Builtin.CONV_2D: (0, 3),
    _Builtin.DEPTHWISE_CONV_2D: (3, None),
    _Builtin.FULLY_CONNECTED: (0, 1),
}

#: Axis -> group -> its entries for each unit of this group.
_Cuts = Mapping[int, dict[int, int]]

Ints = npt.NDArray[np.int64]

Count = Annotated[int, Field(ge=1)]


class CutChannels(Record):
    """Channels that shrink with the units of groups.

    Attributes:
        whole: Their number in the whole network.
        per_unit: Group -> channels of each of its units; empty if they do not shrink.
    """

    whole: Count
    per_unit: dict[int, Count] = Field(default_factory=dict)

    def left(self, closed: Ints) -> Ints:
        """Return their number in slices [...].

        Args:
            closed: The number of closed units of each group [groups, ...].
        """
        return self.whole - sum(
            (channels * closed[group] for group, channels in self.per_unit.items()),
            start=np.zeros(closed.shape[1:], np.int64),
        )


class SlicedProduct(Record):
    """A product of a slice: for each position, a sum over input channels for each output channel.

    Attributes:
        positions: Output positions, times those of the kernel.
    """

    positions: Count
    inputs: CutChannels
    outputs: CutChannels

    @property
    def groups(self) -> set[int]:
        """The groups with whose units it shrinks."""
        return {*self.inputs.per_unit, *self.outputs.per_unit}

    def work(self, closed: Ints, tile: int) -> Ints:
        """Return the multiply-adds of slices [...], with output channels filled up to whole tiles.

        Processors compute tiles of channels, and a partly filled one takes as long as a full one.

        Args:
            closed: The number of closed units of each group [groups, ...].
            tile: Output channels that are computed at once.
        """
        filled = -(-self.outputs.left(closed) // tile) * tile
        return self.positions * self.inputs.left(closed) * filled


def sliced_products(network: bytes | mmap, places: CutPlaces, groups: int) -> Iterator[SlicedProduct]:
    """Yield the products of a network that shrink with some groups.

    Args:
        network: Content of the whole network's `.tflite`.
        places: Where the units of each group are in this file.
        groups: Only the first groups count; classes are one more.
    """
    model = flatbuffer_utils.read_model_from_bytearray(network)
    graph = model.subgraphs[0]  # the other one computes the same
    cuts = {
        tensor: {cut.axis: {cut.group: cut.repeats * cut.span} for cut in constant.axes if cut.group < groups}
        for constant in places.constants
        for number, tensor in constant.tensors
        if number == 0
    }
    for operator in graph.operators:
        kind = model.operatorCodes[operator.opcodeIndex].builtinCode
        if kind == _Builtin.DEQUANTIZE and operator.inputs[0] in cuts:
            cuts[operator.outputs[0]] = cuts[operator.inputs[0]]
        elif kind in _KERNELS and cuts.get(operator.inputs[1]):
            yield _product(graph, operator, cuts[operator.inputs[1]], *_KERNELS[kind])


def _product(graph: Any, operator: Any, cuts: _Cuts, outputs: int, inputs: int | None) -> SlicedProduct:
    """Return the product of an operator.

    Args:
        cuts: How its kernel shrinks.
        outputs: The axis of output channels.
        inputs: The axis of input channels; None if they are not summed.
    """
    kernel, written = (graph.tensors[number].shape for number in (operator.inputs[1], operator.outputs[0]))
    window = [size for axis, size in enumerate(kernel) if axis not in (outputs, inputs)]
    channels = (
        CutChannels(whole=1) if axis is None else CutChannels(whole=kernel[axis], per_unit=cuts.get(axis, {}))
        for axis in (inputs, outputs)
    )
    read, made = channels
    return SlicedProduct(positions=prod(written[:-1]) * prod(window), inputs=read, outputs=made)
