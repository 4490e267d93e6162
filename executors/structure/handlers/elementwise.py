"""Layers that treat every channel alike: activations, poolings, padding, dropout, rescaling."""

from collections.abc import Sequence

import keras
import numpy as np

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import LayerHandler, mixes_channels, register, require_channels_last

layers = keras.layers


class PassesChannels(LayerHandler):
    """Output channel c depends on input channel c alone."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on."""
        require_channels_last(node)
        return inputs[0]


@register(
    layers.AveragePooling1D,
    layers.AveragePooling2D,
    layers.CenterCrop,
    layers.Cropping1D,
    layers.Cropping2D,
    layers.GlobalAveragePooling1D,
    layers.GlobalAveragePooling2D,
    layers.GlobalMaxPooling1D,
    layers.GlobalMaxPooling2D,
    layers.MaxPooling1D,
    layers.MaxPooling2D,
    layers.Resizing,
    layers.UpSampling1D,
    layers.UpSampling2D,
    layers.ZeroPadding1D,
    layers.ZeroPadding2D,
)
class Pooling(PassesChannels):
    """Changes positions, not channels."""


@register(
    layers.ELU,
    layers.GaussianDropout,
    layers.GaussianNoise,
    layers.LeakyReLU,
    layers.ReLU,
)
class Pointwise(PassesChannels):
    """Fused into the layer before it, or nothing at inference."""

    in_place = True


@register(
    layers.ActivityRegularization,
    layers.AlphaDropout,
    layers.Dropout,
    layers.Identity,
    layers.SpatialDropout1D,
    layers.SpatialDropout2D,
)
class Dropout(Pointwise):
    """Nothing at inference."""


@register(layers.Rescaling)
class Rescaling(PassesChannels):
    """A scale and an offset, the same for all channels or one for each."""

    in_place = True

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on, or keep them where the layer's config has a value for each."""
        if np.ndim(node.layer.scale) or np.ndim(node.layer.offset):
            space.fix(inputs[0])
            return space.fixed(output[-1] or 0)
        return inputs[0]


@register(layers.PReLU)
class PReLU(PassesChannels):
    """Slopes [..., C], one per channel, and per position unless shared."""

    in_place = True

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on with their slopes."""
        space.bind(node, node.layer.alpha, len(node.layer.alpha.shape) - 1, Role.PASSES, inputs[0])
        return inputs[0]


@register(layers.Activation)
class Activation(PassesChannels):
    """An activation function by name."""

    in_place = True

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on, unless the function mixes them."""
        if mixes_channels(node.layer.activation):
            space.fix(inputs[0])
        return inputs[0]


@register(layers.Softmax)
class Softmax(LayerHandler):
    """Sums over the channels: every one of them counts in every output."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Keep the channels."""
        space.fix(inputs[0])
        return inputs[0]
