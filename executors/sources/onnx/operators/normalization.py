"""Normalisation by statistics of the training data, of each example, or of each position."""

from collections.abc import Sequence
from math import prod

import keras
import numpy as np

from executors.sources.onnx.batch import Array, Size
from executors.sources.onnx.builder import Builder, set_weights
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.operators.shapes import reshaped_to
from executors.sources.onnx.registry import Argument, Node, constant, operator, optional, tensor
from executors.sources.onnx.values import Value

layers = keras.layers


@operator("BatchNormalization")
def batch_norm(builder: Builder, node: Node, data: Argument, *statistics: Argument) -> Value:
    """Build a batch norm over the channels with the stored statistics."""
    value = tensor(data)
    if node.get("training_mode", 0):
        raise UnsupportedNodeError("is in training mode; export the model with model.eval()")
    if value.order is None:
        value = builder.channels_last(value)
    vectors = [constant(vector, "statistics") for vector in statistics]
    if value.order is not None:
        vectors = [vector[value.order] for vector in vectors]
    layer = layers.BatchNormalization(
        epsilon=node.get("epsilon", 1e-5), momentum=node.get("momentum", 0.9), name=builder.weighted(node)
    )
    result = layer(value.tensor)
    set_weights(layer, *vectors)
    return value.with_tensor(result)


@operator("InstanceNormalization")
def instance_norm(builder: Builder, node: Node, data: Argument, scale: Argument, offset: Argument) -> Value:
    """Build a group norm with a group for each channel."""
    return _group_norm(builder, node, tensor(data), (scale, offset), -1)


@operator("GroupNormalization")
def group_norm(builder: Builder, node: Node, data: Argument, scale: Argument, offset: Argument) -> Value:
    """Build a group norm; until version 18, a scale and an offset belong to a group."""
    return _group_norm(builder, node, tensor(data), (scale, offset), node.get("num_groups"))


def _group_norm(
    builder: Builder, node: Node, value: Value, parameters: tuple[Argument, Argument], groups: int
) -> Value:
    value = builder.channels_last(value)
    channels = value.tensor.shape[-1]
    vectors = [constant(vector, "scale") for vector in parameters]
    vectors = [np.repeat(vector, channels // vector.size) for vector in vectors]
    layer = layers.GroupNormalization(groups, epsilon=node.get("epsilon", 1e-5), name=builder.weighted(node))
    result = layer(value.tensor)
    set_weights(layer, *vectors)
    return value.with_tensor(result)


@operator("LRN")
def local_response_norm(builder: Builder, node: Node, data: Argument) -> Value:
    """Divide by a power of the mean square of neighbouring channels."""
    value = builder.channels_last(tensor(data))
    *positions, channels = value.tensor.shape[1:]
    size = node.get("size")
    squares = builder.reshaped(keras.ops.square(value.tensor), (prod(positions), channels, 1))
    around = ((0, 0), ((size - 1) // 2, size // 2))
    padded = layers.ZeroPadding2D(around, name=builder.helper("pad"))(squares)
    means = layers.AveragePooling2D((1, size), strides=1, name=builder.plain(node))(padded)
    means = builder.reshaped(means, (*positions, channels))
    scaled = layers.Rescaling(node.get("alpha", 1e-4), node.get("bias", 1.0), name=builder.helper("scale"))
    divisors = keras.ops.power(scaled(means), node.get("beta", 0.75))
    return value.with_tensor(keras.ops.divide(value.tensor, divisors), not_negative=value.not_negative)


@operator("LayerNormalization")
def layer_norm(
    builder: Builder, node: Node, data: Argument, scale: Argument, offset: Argument = None
) -> Value:
    """Build a layer norm over the last axis, or over several last axes, which are merged."""
    layer = layers.LayerNormalization(
        epsilon=node.get("epsilon", 1e-5), center=offset is not None, name=builder.weighted(node)
    )
    vectors = [constant(scale, "scale"), optional(offset, "offset")]
    return _over_last_axes(builder, node, tensor(data), layer, vectors)


@operator("RMSNormalization")
def rms_norm(builder: Builder, node: Node, data: Argument, scale: Argument) -> Value:
    """Build a root mean square norm over the last axis, or over several last axes, which are merged."""
    layer = layers.RMSNormalization(epsilon=node.get("epsilon", 1e-5), name=builder.weighted(node))
    return _over_last_axes(builder, node, tensor(data), layer, [constant(scale, "scale")])


def _over_last_axes(
    builder: Builder, node: Node, value: Value, layer: keras.layers.Layer, vectors: Sequence[Array | None]
) -> Value:
    """Apply a norm of the last axis to the last axes of a value.

    Args:
        vectors: The weights of the layer; None for those that it has not.
    """
    first = node.get("axis", -1) % value.rank
    if first <= value.batch:
        raise UnsupportedNodeError("combines the examples of a batch")
    shape = value.shape
    merged = reshaped_to(builder, value, (*shape[:first], prod(size or 1 for size in shape[first:])))
    if merged.order is None:
        merged = builder.moved_last(merged, -1)
    result = layer(merged.tensor)
    set_weights(layer, *(_entries(vector, shape[first:], merged) for vector in vectors if vector is not None))
    return reshaped_to(builder, merged.with_tensor(result), shape)


def _entries(vector: Array, sizes: Sequence[Size], merged: Value) -> Array:
    """Return a vector for the last axis of a value that merges axes of these sizes."""
    entries = np.broadcast_to(vector, [size or 1 for size in sizes]).reshape(-1)
    return entries if merged.order is None else entries[merged.order]
