"""One handler per family of layers."""

from executors.structure.handlers import (
    convolution,
    dense,
    elementwise,
    merging,
    normalization,
    reshaping,
)
from executors.structure.handlers.base import (
    LayerHandler,
    UnsupportedLayerError,
    elements,
    handler_of,
    positions,
    register,
    registered,
)

__all__ = [
    "LayerHandler",
    "UnsupportedLayerError",
    "convolution",
    "dense",
    "elements",
    "elementwise",
    "handler_of",
    "merging",
    "normalization",
    "positions",
    "register",
    "registered",
    "reshaping",
]
