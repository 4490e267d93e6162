"""Layer handlers, one per family of layers."""

from executors.structure.handlers import (
    applications,
    attention,
    convolution,
    dense,
    elementwise,
    merging,
    normalization,
    operations,
    recurrent,
    reshaping,
)
from executors.structure.handlers.base import LayerHandler, Product, Window, elements, positions, register
from executors.structure.handlers.registry import handler_of, is_leaf, registered

__all__ = [
    "LayerHandler",
    "Product",
    "Window",
    "applications",
    "attention",
    "convolution",
    "dense",
    "elements",
    "elementwise",
    "handler_of",
    "is_leaf",
    "merging",
    "normalization",
    "operations",
    "positions",
    "recurrent",
    "register",
    "registered",
    "reshaping",
]
