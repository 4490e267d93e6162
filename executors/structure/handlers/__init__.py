"""Layer handlers, one per family of layers."""

from executors.structure.handlers import (
    applications,
    attention,
    convolution,
    dense,
    each_step,
    einsum_dense,
    elementwise,
    merging,
    normalization,
    operations,
    plain_attention,
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
    "each_step",
    "einsum_dense",
    "elements",
    "elementwise",
    "handler_of",
    "is_leaf",
    "merging",
    "normalization",
    "operations",
    "plain_attention",
    "positions",
    "recurrent",
    "register",
    "registered",
    "reshaping",
]
