"""Tensors of a LiteRT network as ONNX tensors whose axes stand in another order.

LiteRT has channels last, ONNX has them second. Instead of transposing tensors around each convolution, a
value knows which axis of LiteRT stands at each position of its ONNX tensor. A transposition in LiteRT then
only renames axes, and one in ONNX is needed only where an operator cannot take the axes as they stand.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mistify_client.exporting.errors import NotExportableError
from mistify_client.exporting.shapes import Shape, count

Array: TypeAlias = npt.NDArray[Any]

#: The number of axes of a sequence: batch, steps, channels.
_SEQUENCE: Final = 3


@dataclass(frozen=True)
class Value:
    """A tensor of a network.

    Attributes:
        name: Its name in ONNX.
        shape: Its sizes in LiteRT's order.
        axes: For each position of the ONNX tensor, the axis of LiteRT that stands there.
        order: For a flattened tensor, the index in LiteRT of each entry of the last axis; None if they are in
            order.
    """

    name: str
    shape: Shape
    axes: tuple[int, ...]
    order: Array | None = None

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def placed(self) -> Shape:
        """The sizes of the ONNX tensor."""
        return tuple(self.shape[axis] for axis in self.axes)

    def position(self, axis: int) -> int:
        """Return the position of an axis of LiteRT, which may be negative, in the ONNX tensor."""
        return self.axes.index(axis % self.rank)

    def like(self, name: str) -> "Value":
        """Return the result of a function that leaves all axes where they stand."""
        return replace(self, name=name)


def moves(shape: Shape, old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Check whether a change of layout moves entries, rather than only axes of size 1."""
    first, second = ([axis for axis in axes if shape[axis] != 1] for axes in (old, new))
    return first != second


def in_order(rank: int) -> tuple[int, ...]:
    """Return the layout of LiteRT."""
    return tuple(range(rank))


def channels_first(rank: int) -> tuple[int, ...]:
    """Return the layout of ONNX's convolutions."""
    return (0, rank - 1, *range(1, rank - 1))


def preferred(rank: int) -> tuple[int, ...]:
    """Return the layout that most operators take as it is.

    That is channels first for images, because of convolutions, and channels last for sequences, because of
    products.
    """
    return channels_first(rank) if rank > _SEQUENCE else in_order(rank)


def merged_order(shape: Shape, axes: tuple[int, ...]) -> Array:
    """Return the index in LiteRT's order of each entry of axes that are merged in another order.

    Args:
        shape: Fixed sizes in LiteRT's order.
        axes: For each position, the axis that stands there.
    """
    return np.arange(count(shape)).reshape([int(size) for size in fixed(shape)]).transpose(axes).reshape(-1)


def fixed(shape: Shape) -> tuple[int, ...]:
    """Return sizes that do not depend on the batch.

    Raises:
        NotExportableError: One does.
    """
    sizes: list[int] = []
    for size in shape:
        if not isinstance(size, int):
            raise NotExportableError("it works on the batch")
        sizes.append(size)
    return tuple(sizes)


def without(axes: tuple[int, ...], dropped: Collection[int]) -> tuple[int, ...]:
    """Return a layout without some axes, with the others renumbered."""
    kept = sorted(set(axes).difference(dropped))
    return tuple(kept.index(axis) for axis in axes if axis not in dropped)
