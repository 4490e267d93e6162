"""Layer and group norms whose statistics leave out hidden channels, so that masks can cut what they read.

They replace the norms of a network that is trained with masks. Their copies, as in a narrowed network, are
ordinary norms.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, Final

import keras
import tensorflow as tf

from executors.structure import register
from executors.structure.composition import copied_layer
from executors.structure.handlers import is_leaf, normalization
from executors.structure.reading.reader import read_graph

layers, ops = keras.layers, keras.ops


class MaskedNorm(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """A norm over the last axis, the channels, of which some can be hidden; their outputs are zeros.

    Attributes:
        shown: 1 for each channel that is shown, 0 for each hidden one [channels].
    """

    shown: tf.Variable

    @classmethod
    def replacing(cls, config: Mapping[str, Any]) -> keras.layers.Layer:
        """Return a masked norm with the config of an ordinary one."""
        return super().from_config(config)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> keras.layers.Layer:
        """Return the ordinary norm."""
        return _ORDINARY[cls].from_config(config)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Show all channels."""
        super().build(input_shape)
        with tf.init_scope():
            self.shown = tf.Variable(tf.ones(input_shape[-1]), trainable=False)


class MaskedLayerNormalization(MaskedNorm, keras.layers.LayerNormalization):  # type: ignore[misc]
    """A layer norm over the channels that are shown."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Normalise each position."""
        x, count = ops.cast(inputs, "float32"), ops.sum(self.shown)
        mean = ops.sum(x * self.shown, -1, keepdims=True) / count
        centred = (x - mean) * self.shown
        variance = ops.sum(ops.square(centred), -1, keepdims=True) / count
        normalised = (x * self.shown if self.rms_scaling else centred) * ops.rsqrt(variance + self.epsilon)
        return ops.cast(_affine(normalised, self.gamma, self.beta, self.shown), self.compute_dtype)


class MaskedRMSNormalization(MaskedNorm, keras.layers.RMSNormalization):  # type: ignore[misc]
    """A norm by the root mean square of the channels that are shown."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Normalise each position."""
        values = ops.cast(x, "float32") * self.shown
        square = ops.sum(ops.square(values), -1, keepdims=True) / ops.sum(self.shown)
        normalised = values * ops.rsqrt(square + self.epsilon)
        return ops.cast(_affine(normalised, self.scale, None, self.shown), self.compute_dtype)


class MaskedGroupNormalization(MaskedNorm, keras.layers.GroupNormalization):  # type: ignore[misc]
    """A group norm over the channels that are shown in each group."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Normalise each group over all positions."""
        shape = ops.shape(inputs)
        x = ops.cast(inputs, "float32") * self.shown
        grouped = ops.reshape(x, (shape[0], prod(shape[1:-1]), self.groups, -1))
        shown = ops.reshape(self.shown, (self.groups, -1))
        count = ops.maximum(ops.sum(shown, -1, keepdims=True) * grouped.shape[1], 1)
        mean = ops.sum(grouped, (1, 3), keepdims=True) / count
        centred = (grouped - mean) * shown
        variance = ops.sum(ops.square(centred), (1, 3), keepdims=True) / count
        normalised = ops.reshape(centred * ops.rsqrt(variance + self.epsilon), shape)
        return ops.cast(_affine(normalised, self.gamma, self.beta, self.shown), self.compute_dtype)


_ORDINARY: Final = {
    MaskedLayerNormalization: layers.LayerNormalization,
    MaskedRMSNormalization: layers.RMSNormalization,
    MaskedGroupNormalization: layers.GroupNormalization,
}
_MASKED: Final = {ordinary: masked for masked, ordinary in _ORDINARY.items()}


@register(MaskedLayerNormalization, MaskedRMSNormalization)
class _LayerNormHandler(normalization.LayerNormalization):
    averages_channels = False


@register(MaskedGroupNormalization)
class _GroupNormHandler(normalization.GroupNormalization):
    averages_channels = False


def with_masked_norms(model: keras.Model) -> keras.Model:
    """Return a network with norms of which masks can hide channels; the same one if it has no such norms."""
    graph = read_graph(model, is_leaf)
    if not any(type(layer) in _MASKED for layer in graph.layers.values()):
        return model

    def made(name: str, layer: keras.layers.Layer) -> keras.layers.Layer:
        masked = _MASKED.get(type(layer))
        return masked.replacing({**layer.get_config(), "name": name}) if masked else copied_layer(name, layer)

    return graph.build(made, graph.weights)


def _affine(
    normalised: tf.Tensor, scale: keras.Variable | None, shift: keras.Variable | None, shown: tf.Variable
) -> tf.Tensor:
    """Return a tensor with the scale and the shift of a norm, both of them optional."""
    scaled = normalised if scale is None else normalised * scale
    return scaled if shift is None else scaled + shift * shown
