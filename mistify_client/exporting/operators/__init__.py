"""The operators that can be exported, by kind; importing the package registers them."""

from mistify_client.exporting.operators import (
    convolution,
    dense,
    elementwise,
    pooling,
    reduction,
    resizing,
    selection,
    shaping,
)

__all__ = [
    "convolution",
    "dense",
    "elementwise",
    "pooling",
    "reduction",
    "resizing",
    "selection",
    "shaping",
]
