"""Reductions of axes."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from onnx import TensorProto

from mistify_client.exporting.builder import Builder
from mistify_client.exporting.normalization import LAYER_NORM
from mistify_client.exporting.registry import Call, operator
from mistify_client.exporting.types import onnx_type
from mistify_client.exporting.values import Value, channels_first, preferred, without

_KINDS: Final[Mapping[str, str]] = {
    "MEAN": "ReduceMean", "REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin", "REDUCE_PROD": "ReduceProd",
    "SUM": "ReduceSum", "REDUCE_ALL": "ReduceMin", "REDUCE_ANY": "ReduceMax",
}  # fmt: skip

#: Reductions of all positions of an image.
_GLOBAL: Final[Mapping[str, str]] = {"MEAN": "GlobalAveragePool", "REDUCE_MAX": "GlobalMaxPool"}

#: Reductions of truth values, which ONNX computes with integers.
_OF_TRUTH: Final = ("REDUCE_ALL", "REDUCE_ANY")


@operator(*_KINDS)
def reduction(builder: Builder, call: Call) -> Value:
    """Write a reduction."""
    value, kept = builder.plain(call.argument(0)), bool(call.options.keepDims)
    reduced = {int(axis) % value.rank for axis in call.constant(1).reshape(-1)}
    images = value.rank > 3 and value.axes == channels_first(value.rank)
    if images and call.kind in _GLOBAL and reduced == set(range(1, value.rank - 1)):
        sizes = (value.shape[0], *[1] * len(reduced), value.shape[-1])
        made = Value(builder.node(_GLOBAL[call.kind], value), sizes, value.axes)
        return builder.reshaped(made, call.shape)
    if call.kind in _OF_TRUTH:
        value = value.like(builder.node("Cast", value, to=TensorProto.INT32))
    positions = sorted(value.position(axis) for axis in reduced)
    # Axes are an attribute up to version 17 of ONNX's operators, except for sums.
    inputs = [np.array(positions, np.int64)] if call.kind == "SUM" else []
    axes = None if inputs else positions
    name = builder.node(_KINDS[call.kind], value, *inputs, axes=axes, keepdims=int(kept))
    if call.kind in _OF_TRUTH:
        name = builder.node("Cast", name, to=TensorProto.BOOL)
    return Value(name, call.shape, value.axes if kept else without(value.axes, reduced))


@operator("ARG_MAX", "ARG_MIN")
def extreme(builder: Builder, call: Call) -> Value:
    """Write the index of the largest or smallest entry of an axis."""
    value, axis = builder.plain(call.argument(0)), int(call.constant(1).item())
    kind = "ArgMax" if call.kind == "ARG_MAX" else "ArgMin"
    index = builder.node(kind, value, axis=value.position(axis), keepdims=0)
    name = builder.node("Cast", index, to=onnx_type(call.types[0]))
    return Value(name, call.shape, without(value.axes, {axis % value.rank}))


@operator("SOFTMAX", "LOG_SOFTMAX")
def softmax(builder: Builder, call: Call) -> Value:
    """Write a softmax over the last axis."""
    value = builder.value(call.argument(0))
    beta = np.array(getattr(call.options, "beta", 1), np.float32)
    scaled = value if beta == 1 else value.like(builder.node("Mul", value, beta))
    kind = "Softmax" if call.kind == "SOFTMAX" else "LogSoftmax"
    return value.like(builder.node(kind, scaled, axis=value.position(-1)))


@operator("L2_NORMALIZATION")
def normalization(builder: Builder, call: Call) -> Value:
    """Write a division by the norm of the last axis."""
    value = builder.value(call.argument(0))
    return value.like(builder.node("LpNormalization", value, axis=value.position(-1), p=2))


@operator(LAYER_NORM)
def layer_norm(builder: Builder, call: Call) -> Value:
    """Write a layer norm over the last axis, which has to stand last; for sequences, it stays there.

    Even with an image transposed before and after it, it is faster than the single operators.
    """
    value, norm = builder.plain(call.argument(0)), call.options
    last = value if value.position(-1) == value.rank - 1 else builder.as_in_litert(value)
    options = {"axis": -1, "epsilon": norm.epsilon}
    made = last.like(builder.layer("LayerNormalization", last, norm.scale, norm.offset, **options))
    return made if made.axes == preferred(made.rank) else builder.arranged(made, value.axes)


@operator("CUMSUM")
def cumulative(builder: Builder, call: Call) -> Value:
    """Write the sums of all entries up to each one."""
    value, axis = builder.plain(call.argument(0)), int(call.constant(1).item())
    position = np.array(value.position(axis), np.int64)
    options = {"exclusive": int(call.options.exclusive), "reverse": int(call.options.reverse)}
    return value.like(builder.node("CumSum", value, position, **options))
