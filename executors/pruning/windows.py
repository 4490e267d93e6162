"""The inputs of a sliding kernel at some positions of its output."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from executors.structure.handlers import Window

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]


def sampled(shape: Sequence[int], count: int, rng: np.random.Generator) -> tuple[Ids, ...]:
    """Return random positions in an array of a shape, as indices [places] along each of its axes."""
    size = int(np.prod(shape))
    chosen = np.arange(size) if size <= count else rng.choice(size, count, replace=False, shuffle=False)
    return tuple(np.asarray(along, np.int64) for along in np.unravel_index(chosen, tuple(shape)))


def places_of(shape: Sequence[int], window: Window) -> tuple[int, ...]:
    """Return the shape of a layer's output without its channels, given the shape of its input."""
    examples, *sizes = shape[:-1]
    return (examples, *(_outputs(sizes, window) if window.size else sizes))


def window_rows(inputs: Array, window: Window, places: Sequence[Ids]) -> Array:
    """Return the values that a kernel sums over at positions of its output [places, columns].

    Args:
        inputs: Inputs of the layer [n, ..., channels].
        places: Indices along all axes of the output but the last.

    Returns:
        Columns in the order of the kernel's weights: by position in the window, then by channel.
    """
    if not window.size:
        return inputs[tuple(places)]
    padded = np.pad(inputs, ((0, 0), *_paddings(inputs.shape[1:-1], window), (0, 0)))
    example, *starts = places
    corners = [start * stride for start, stride in zip(starts, window.strides, strict=True)]
    columns = []
    for offsets in product(*map(range, window.size)):
        along = zip(corners, offsets, window.dilation, strict=True)
        columns.append(padded[(example, *(corner + offset * step for corner, offset, step in along))])
    return np.concatenate(columns, axis=1)


def _outputs(sizes: Sequence[int], window: Window) -> list[int]:
    """Return the number of output positions along each axis."""
    along = zip(sizes, _extents(window), window.strides, strict=True)
    if window.padding == "valid":
        return [(size - extent) // stride + 1 for size, extent, stride in along]
    return [-(-size // stride) for size, _, stride in along]


def _paddings(sizes: Sequence[int], window: Window) -> list[tuple[int, int]]:
    """Return the zero padding before and after along each spatial axis."""
    extents = _extents(window)
    if window.padding == "valid":
        return [(0, 0)] * len(sizes)
    if window.padding == "causal":
        return [(extent - 1, 0) for extent in extents]
    along = zip(sizes, _outputs(sizes, window), extents, window.strides, strict=True)
    totals = [max((count - 1) * stride + extent - size, 0) for size, count, extent, stride in along]
    return [(total // 2, total - total // 2) for total in totals]


def _extents(window: Window) -> list[int]:
    """Return the number of input positions that a window spans along each axis."""
    return [(size - 1) * step + 1 for size, step in zip(window.size, window.dilation, strict=True)]
