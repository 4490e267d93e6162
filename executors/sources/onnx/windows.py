"""Padding of convolutions and pooling: ONNX's, and the equivalent in Keras."""

from collections.abc import Sequence
from copy import copy
from math import ceil, floor
from typing import Any, Final

import keras

from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Node

layers = keras.layers

#: Padding before and after an axis.
Pad = tuple[int, int]

#: Attribute of a window -> its value along an axis that it does not touch, apart from the size.
_PARTS: Final = {
    "sizes": 1, "kernel": 1, "strides": 1, "dilation": 1, "extent": 1,
    "same": (0, 0), "declared": (0, 0), "padding": (0, 0),
}  # fmt: skip

#: Most positions of an axis with its padding, which are counted one by one.
_MOST_POSITIONS: Final = 2**16

#: Most copies of a border, each of which is an operation.
_MOST_COPIES: Final = 64


class Window:
    """The sliding window of a convolution or pooling.

    Attributes:
        sizes: Input positions along each axis.
        kernel: Kernel positions along each axis.
        declared: The padding of the file, along each axis.
        padding: The part of it that any window reads. Strides may skip the end of an axis. If sizes are
            rounded up, the last window may reach beyond the declared padding.
    """

    def __init__(self, node: Node, sizes: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(kernel)
        self.sizes, self.kernel = tuple(sizes), tuple(kernel)
        self.strides = tuple(node.get("strides", [1] * rank))
        self.dilation = tuple(node.get("dilations", [1] * rank))
        self.extent = [(size - 1) * step + 1 for size, step in zip(kernel, self.dilation, strict=True)]
        self.same = self._same()
        self.declared = self._declared(node)
        padded = max(size + sum(pad) for size, pad in zip(self.sizes, self.declared, strict=True))
        if padded > _MOST_POSITIONS:
            raise UnsupportedNodeError(
                f"pads an axis to {padded:,} positions; expected at most {_MOST_POSITIONS:,}"
            )
        self.padding = self._read(bool(node.get("ceil_mode", 0)))

    @property
    def name(self) -> str | None:
        """The padding in Keras, if Keras has a name for it."""
        if all(pad == (0, 0) for pad in self.padding):
            return "valid"
        return "same" if self.padding == self.same else None

    def part(self, first: int, last: int, *, rows: int = 0) -> "Window":
        """Return the window along successive axes.

        Args:
            rows: Number of positions of another axis in front, along which each window has one; 0 for none.
        """
        result = copy(self)
        for name, alone in _PARTS.items():
            own = tuple(getattr(self, name))[first:last]
            setattr(result, name, [*([rows if name == "sizes" else alone] if rows else []), *own])
        return result

    def _declared(self, node: Node) -> list[Pad]:
        mode, rank = node.get("auto_pad", "NOTSET"), len(self.kernel)
        if mode == "VALID":
            return [(0, 0)] * rank
        if mode == "SAME_UPPER":
            return self.same
        if mode == "SAME_LOWER":
            return [(after, before) for before, after in self.same]
        pads = node.get("pads", [0] * 2 * rank)
        if min(pads, default=0) < 0:
            raise UnsupportedNodeError("has negative padding")
        return [(pads[axis], pads[axis + rank]) for axis in range(rank)]

    def _same(self) -> list[Pad]:
        """Return the padding that Keras calls `same`."""
        pads = []
        for size, step, extent in zip(self.sizes, self.strides, self.extent, strict=True):
            total = max((ceil(size / step) - 1) * step + extent - size, 0)
            pads.append((total // 2, total - total // 2))
        return pads

    def _read(self, rounded_up: bool) -> list[Pad]:
        pads = []
        for axis, (size, step, extent) in enumerate(zip(self.sizes, self.strides, self.extent, strict=True)):
            before, after = self.declared[axis]
            steps = (size + before + after - extent) / step
            made = (ceil if rounded_up else floor)(steps) + 1
            if rounded_up and (made - 1) * step >= size + before:
                made -= 1  # a window has to begin inside the input or before it
            if made < 1:
                raise UnsupportedNodeError(f"has a kernel of {extent} positions for an input of {size}")
            pads.append((before, max(0, (made - 1) * step + extent - size - before)))
        return pads


def border_repeated(tensor: Any, pads: Sequence[Pad]) -> Any:
    """Return a tensor with copies of its border around it; there is a pad for each axis."""
    left = [list(pad) for pad in pads]
    if max(map(max, left)) > _MOST_COPIES:
        raise UnsupportedNodeError(
            f"repeats a border {max(map(max, left)):,} times; expected at most {_MOST_COPIES}"
        )
    while any(map(any, left)):  # mirroring a single position copies it, which LiteRT can
        step = [(min(1, before), min(1, after)) for before, after in left]
        tensor = keras.ops.pad(tensor, step, mode="symmetric")
        left = [[max(0, each - 1) for each in pad] for pad in left]
    return tensor


def wrapped(builder: Builder, tensor: Any, pads: Sequence[Pad]) -> Any:
    """Return a tensor that goes on around itself; there is a pad for each axis."""
    for axis, (before, after) in enumerate(pads):
        if not (before or after):
            continue
        size = tensor.shape[axis]
        copies = (before // size, after // size)
        if sum(copies) > _MOST_COPIES:
            raise UnsupportedNodeError(
                f"repeats a tensor {sum(copies):,} times; expected at most {_MOST_COPIES}"
            )
        ahead, parts = (slice(None),) * axis, [tensor] * (sum(copies) + 1)
        if before % size:
            parts = [tensor[(*ahead, slice(size - before % size, size))], *parts]
        if after % size:
            parts.append(tensor[(*ahead, slice(0, after % size))])
        tensor = layers.Concatenate(axis=axis, name=builder.helper("wrap"))(parts)
    return tensor


def zero_padded(builder: Builder, tensor: Any, pads: Sequence[Pad]) -> Any:
    """Return a tensor with zeros around its positions, between the batch and the channels."""
    if all(pad == (0, 0) for pad in pads):
        return tensor
    kinds = {1: layers.ZeroPadding1D, 2: layers.ZeroPadding2D, 3: layers.ZeroPadding3D}
    padding = tuple(pads) if len(pads) > 1 else tuple(pads[0])
    return kinds[len(pads)](padding, name=builder.helper("pad"))(tensor)
