"""Activation functions."""

from typing import Any

import keras
import numpy as np

from executors.sources.onnx.builder import Builder, set_weights
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.masks import with_choice
from executors.sources.onnx.registry import Argument, Node, constant, operator, optional, tensor
from executors.sources.onnx.values import Value

layers = keras.layers

#: Functions without settings -> name in Keras.
_NAMED = {
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "HardSwish": "hard_silu",
    "Mish": "mish",
}
_NOT_NEGATIVE = ("sigmoid", "softplus", "hard_sigmoid")

#: Bounds that stand for none.
_UNBOUNDED = 1e30


def activated(builder: Builder, node: Node, value: Value, function: str) -> Value:
    """Build an activation function by its name in Keras."""
    layer = layers.Activation(function, name=builder.plain(node))
    return value.with_tensor(layer(value.tensor), not_negative=function in _NOT_NEGATIVE)


@operator(*_NAMED)
def named(builder: Builder, node: Node, data: Argument) -> Value:
    """Build an activation function without settings."""
    return activated(builder, node, tensor(data), _NAMED[node.operator])


@operator("Relu")
def relu(builder: Builder, node: Node, data: Argument) -> Value:
    """Build a ReLU."""
    value = tensor(data)
    return value.with_tensor(layers.ReLU(name=builder.plain(node))(value.tensor), not_negative=True)


@operator("LeakyRelu")
def leaky_relu(builder: Builder, node: Node, data: Argument) -> Value:
    """Build a leaky ReLU."""
    value = tensor(data)
    layer = layers.LeakyReLU(node.get("alpha", 0.01), name=builder.plain(node))
    return value.with_tensor(layer(value.tensor))


@operator("Elu")
def elu(builder: Builder, node: Node, data: Argument) -> Value:
    """Build an ELU."""
    value = tensor(data)
    return value.with_tensor(layers.ELU(node.get("alpha", 1.0), name=builder.plain(node))(value.tensor))


@operator("Selu")
def selu(builder: Builder, node: Node, data: Argument) -> Value:
    """Build a SELU, or a scaled ELU for other constants than those of Klambauer et al. (2017)."""
    value, slope, scale = tensor(data), node.get("alpha", 1.6732632), node.get("gamma", 1.0507009)
    if np.allclose([slope, scale], [1.6732632, 1.0507009]):
        return activated(builder, node, value, "selu")
    made = layers.ELU(slope, name=builder.plain(node))(value.tensor)
    return value.with_tensor(layers.Rescaling(scale, name=builder.helper("scale"))(made))


@operator("Celu")
def celu(builder: Builder, node: Node, data: Argument) -> Value:
    """Build an ELU of data that are divided by alpha, and multiply it by alpha."""
    value, alpha = tensor(data), node.get("alpha", 1.0)
    if alpha == 1:
        return value.with_tensor(layers.ELU(name=builder.plain(node))(value.tensor))
    divided = layers.Rescaling(1 / alpha, name=builder.helper("scale"))(value.tensor)
    made = layers.ELU(name=builder.plain(node))(divided)
    return value.with_tensor(layers.Rescaling(alpha, name=builder.helper("scale"))(made))


@operator("ThresholdedRelu")
def thresholded_relu(builder: Builder, node: Node, data: Argument) -> Value:
    """Build a product of the data and of whether they exceed a threshold."""
    value = tensor(data)
    above = layers.Rescaling(1.0, -node.get("alpha", 1.0), name=builder.helper("offset"))(value.tensor)
    passes = layers.ReLU(name=builder.helper("passes"))(keras.ops.sign(above))
    return value.with_tensor(layers.Multiply(name=builder.plain(node))([value.tensor, passes]))


@operator("Swish")
def swish(builder: Builder, node: Node, data: Argument) -> Value:
    """Build a SiLU, or a product of the data and a sigmoid of their multiple."""
    value, slope = tensor(data), node.get("alpha", 1.0)
    if slope == 1:
        return activated(builder, node, value, "silu")
    scaled = layers.Rescaling(slope, name=builder.helper("scale"))(value.tensor)
    gate = layers.Activation("sigmoid", name=builder.helper("gate"))(scaled)
    return value.with_tensor(layers.Multiply(name=builder.plain(node))([value.tensor, gate]))


@operator("Gelu")
def gelu(builder: Builder, node: Node, data: Argument) -> Value:
    """Build a GELU, exact or approximated by tanh."""
    value = tensor(data)
    if node.get("approximate", "none") == "tanh":
        return value.with_tensor(keras.ops.gelu(value.tensor, approximate=True))
    return activated(builder, node, value, "gelu")


@operator("HardSigmoid")
def hard_sigmoid(builder: Builder, node: Node, data: Argument) -> Value:
    """Build a hard sigmoid, whose slope is 1/6 in Keras and 1/5 by default in ONNX."""
    value = tensor(data)
    slope, offset = node.get("alpha", 0.2), node.get("beta", 0.5)
    if abs(slope - 1 / 6) < 1e-4 and offset == 0.5:
        return activated(builder, node, value, "hard_sigmoid")
    scaled = layers.Rescaling(slope, offset, name=builder.helper("scale"))(value.tensor)
    return value.with_tensor(keras.ops.clip(scaled, 0.0, 1.0), not_negative=True)


@operator("PRelu")
def prelu(builder: Builder, node: Node, data: Argument, slope: Argument) -> Value:
    """Build a leaky ReLU with trained slopes, shared along the axes on which they have size 1."""
    value, slopes = tensor(data), constant(slope, "slope")
    value = builder.channels_last(value)
    placed = builder.constant(slopes, value)[0]
    shared = [axis for axis, size in enumerate(placed.shape, 1) if size == 1]
    layer = layers.PReLU(shared_axes=shared or None, name=builder.weighted(node))
    result = layer(value.tensor)
    set_weights(layer, placed)
    return value.with_tensor(result)


@operator("Clip")
def clip(
    builder: Builder, node: Node, data: Argument, least: Argument = None, most: Argument = None
) -> Value:
    """Build a ReLU with a maximum if the minimum is 0, and bounds otherwise."""
    value = tensor(data)
    low, high = _bound(node, "min", least), _bound(node, "max", most)
    if value.tensor.dtype == "int32":
        low, high = (None if bound is None else int(bound) for bound in (low, high))
    if low is not None and high is not None:
        low = min(low, high)
    if low == 0 and value.tensor.dtype != "int32":
        layer = layers.ReLU(max_value=high, name=builder.plain(node))
        return value.with_tensor(layer(value.tensor), not_negative=True)
    result: Any = value.tensor
    if low is not None and high is not None:
        result = keras.ops.clip(result, low, high)
    elif low is not None:
        result = keras.ops.maximum(result, low)
    elif high is not None:
        result = keras.ops.minimum(result, high)
    return value.with_tensor(result)


def _bound(node: Node, attribute: str, argument: Argument) -> float | None:
    array = optional(argument, attribute)
    bound = node.get(attribute) if array is None else float(array.reshape(-1)[0])
    return None if bound is None or abs(bound) > _UNBOUNDED else bound


@operator("Softmax", "LogSoftmax")
def softmax(builder: Builder, node: Node, data: Argument) -> Value:
    """Build a softmax over one axis; before version 13, over this axis and all that follow."""
    value = builder.ordered(tensor(data))
    axis = node.get("axis", -1 if node.version >= 13 else 1) % value.rank
    if axis == value.batch:
        raise UnsupportedNodeError("combines the examples of a batch")
    after = [value.size(other) for other in range(axis + 1, value.rank) if other != value.batch]
    if node.version < 13 and any(size != 1 for size in after):
        raise UnsupportedNodeError("is a softmax over several axes")
    position = value.position(axis)
    position = -1 if position == value.rank - 1 else position
    if node.operator == "LogSoftmax":
        return value.with_tensor(keras.ops.log_softmax(value.tensor, axis=position))
    scores = with_choice(value.tensor) if position == -1 else value.tensor
    layer = layers.Softmax(axis=position, name=builder.plain(node))
    return value.with_tensor(layer(scores), not_negative=True)
