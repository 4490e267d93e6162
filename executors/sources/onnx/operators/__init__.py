"""Handlers of ONNX operators by family; importing this package registers them all."""

from executors.sources.onnx.operators import (
    activations,
    arithmetic,
    convolution,
    dense,
    einsum,
    elementwise,
    normalization,
    pooling,
    recurrent,
    reduction,
    resizing,
    selection,
    shapes,
)

__all__ = [
    "activations",
    "arithmetic",
    "convolution",
    "dense",
    "einsum",
    "elementwise",
    "normalization",
    "pooling",
    "recurrent",
    "reduction",
    "resizing",
    "selection",
    "shapes",
]
