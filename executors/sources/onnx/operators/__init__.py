"""Handlers of ONNX operators by family; importing this package registers them all."""

from executors.sources.onnx.operators import (
    activations,
    arithmetic,
    attention,
    convolution,
    dense,
    einsum,
    elementwise,
    normalization,
    pooling,
    recurrent,
    reduction,
    resizing,
    rotary,
    selection,
    shapes,
)

__all__ = [
    "activations",
    "arithmetic",
    "attention",
    "convolution",
    "dense",
    "einsum",
    "elementwise",
    "normalization",
    "pooling",
    "recurrent",
    "reduction",
    "resizing",
    "rotary",
    "selection",
    "shapes",
]
