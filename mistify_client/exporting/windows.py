"""Paddings of windows that move over positions."""

from collections.abc import Sequence
from typing import Final

from ai_edge_litert import schema_py_generated as schema

from mistify_client.exporting.shapes import Shape
from mistify_client.exporting.values import fixed

SAME: Final = schema.Padding.SAME


def spatial(shape: Shape) -> tuple[int, ...]:
    """Return the sizes between the batch and the channels."""
    return fixed(shape[1:-1])


def pads(padding: int, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the paddings of ONNX: those before all axes, then those behind them.

    Args:
        padding: LiteRT's number of the padding.
        sizes: The sizes of the padded tensor by axis.
        window: The sizes of the window, with its dilation.
        strides: By axis.
    """
    if padding != SAME:
        return [0] * (2 * len(sizes))
    totals = [
        max((-(-size // stride) - 1) * stride + extent - size, 0)
        for size, extent, stride in zip(sizes, window, strides, strict=True)
    ]
    return [total // 2 for total in totals] + [total - total // 2 for total in totals]


def dilated(window: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Return the extents of a dilated window."""
    return [(size - 1) * step + 1 for size, step in zip(window, dilations, strict=True)]
