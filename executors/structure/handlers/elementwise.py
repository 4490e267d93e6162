"""Layers without interaction between channels: activations, pooling, padding, dropout, rescaling."""

from collections.abc import Mapping, Sequence
from math import prod

import keras
import numpy as np

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import (
    LayerHandler,
    activated,
    mixes_channels,
    over,
    positions,
    register,
    require_channels_last,
)
from executors.structure.served_pooling import SERVED_POOLING
from mistify.costs.operators import Operation, OperatorKind

layers = keras.layers


class PassesChannels(LayerHandler):
    """Output channel c depends only on input channel c."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on."""
        require_channels_last(node)
        return inputs[0]


@register(
    layers.AveragePooling1D,
    layers.AveragePooling2D,
    layers.AveragePooling3D,
    layers.CenterCrop,
    layers.Cropping1D,
    layers.Cropping2D,
    layers.Cropping3D,
    layers.GlobalAveragePooling1D,
    layers.GlobalAveragePooling2D,
    layers.GlobalAveragePooling3D,
    layers.GlobalMaxPooling1D,
    layers.GlobalMaxPooling2D,
    layers.GlobalMaxPooling3D,
    layers.MaxPooling1D,
    layers.MaxPooling2D,
    layers.MaxPooling3D,
    layers.Resizing,
    layers.UpSampling1D,
    layers.UpSampling2D,
    layers.UpSampling3D,
    layers.ZeroPadding1D,
    layers.ZeroPadding2D,
    layers.ZeroPadding3D,
)
class Pooling(PassesChannels):
    """Layers that change positions, not channels."""

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return a window over positions, a mean over all of them, or a pass that moves elements."""
        kind, channels = _POOLING.get(type(node.layer), OperatorKind.COPY), output[-1] or 1
        if kind is OperatorKind.COPY:
            return (over(kind, output),)
        places = positions(output)
        stride = max(1, round(positions(inputs[0]) / places))
        kernel = 1 if kind is OperatorKind.MEAN else prod(node.layer.pool_size)
        made = Operation(kind, places, channels, channels, kernel, stride)
        if kind is OperatorKind.MEAN or len(output) > 3:
            return (made,)
        return (over(OperatorKind.RESHAPE, inputs[0]), made, over(OperatorKind.RESHAPE, output))

    def operators(self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape]) -> int:
        """Return six for each dimension with repeated positions, for any batch size, and five for volumes."""
        if type(node.layer) in SERVED_POOLING:
            return 5
        if getattr(node.layer, "interpolation", "nearest") != "nearest":
            return 1
        return 6 * _REPEATING.get(type(node.layer), 0) or 1


#: Layers that repeat positions -> number of dimensions.
_REPEATING: Mapping[type, int] = {
    layers.UpSampling1D: 1,
    layers.UpSampling2D: 2,
    layers.UpSampling3D: 3,
}

#: Layer -> kind of its operation; other layers move elements.
_POOLING: Mapping[type, OperatorKind] = {
    layers.AveragePooling1D: OperatorKind.AVERAGE_POOL,
    layers.AveragePooling2D: OperatorKind.AVERAGE_POOL,
    layers.AveragePooling3D: OperatorKind.AVERAGE_POOL,
    layers.GlobalAveragePooling1D: OperatorKind.MEAN,
    layers.GlobalAveragePooling2D: OperatorKind.MEAN,
    layers.GlobalAveragePooling3D: OperatorKind.MEAN,
    layers.GlobalMaxPooling1D: OperatorKind.MEAN,
    layers.GlobalMaxPooling2D: OperatorKind.MEAN,
    layers.GlobalMaxPooling3D: OperatorKind.MEAN,
    layers.MaxPooling1D: OperatorKind.MAX_POOL,
    layers.MaxPooling2D: OperatorKind.MAX_POOL,
    layers.MaxPooling3D: OperatorKind.MAX_POOL,
}


@register(
    layers.ActivityRegularization,
    layers.AlphaDropout,
    layers.Dropout,
    layers.ELU,
    layers.GaussianDropout,
    layers.GaussianNoise,
    layers.Identity,
    layers.LeakyReLU,
    layers.ReLU,
    layers.SpatialDropout1D,
    layers.SpatialDropout2D,
    layers.SpatialDropout3D,
)
class Pointwise(PassesChannels):
    """Layers that are fused into the preceding one, or do nothing at inference."""

    in_place = True

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return a function of every element, unless it is fused."""
        if isinstance(node.layer, layers.ReLU):
            fused = node.layer.negative_slope == 0 and node.layer.max_value in (None, 6.0)
            return () if fused else (over(OperatorKind.ACTIVATION, output),)
        function = _ACTIVATIONS.get(type(node.layer), keras.activations.linear)
        return activated(function, output)


_ACTIVATIONS: Mapping[type, object] = {
    layers.ELU: keras.activations.elu,
    layers.LeakyReLU: keras.activations.leaky_relu,
}


@register(layers.Rescaling)
class Rescaling(PassesChannels):
    """A scale and an offset, common to all channels or one per channel."""

    in_place = True

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on, or fix them if the layer's config has a value per channel."""
        if np.ndim(node.layer.scale) or np.ndim(node.layer.offset):
            space.fix(inputs[0])
            return space.fixed(output[-1] or 0)
        return inputs[0]


@register(layers.PReLU)
class PReLU(PassesChannels):
    """Slopes [..., C], or [..., 1] if all channels share them; one per position unless shared."""

    in_place = True

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return a function of every element."""
        return (over(OperatorKind.ACTIVATION, output),)

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on, with their slopes unless these are shared."""
        last = len(output) - 1
        if last not in (node.layer.shared_axes or ()):
            space.bind(node, node.layer.alpha, last - 1, Role.PASSES, inputs[0])
        return inputs[0]


@register(layers.Activation)
class ActivationHandler(PassesChannels):
    """An activation function by name."""

    in_place = True

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return no operation if the function is fused."""
        return activated(node.layer.activation, output)

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on, unless the function mixes them."""
        if mixes_channels(node.layer.activation):
            space.fix(inputs[0])
        return inputs[0]


@register(layers.Softmax)
class Softmax(LayerHandler):
    """A normalisation over the channels: every output depends on all of them."""

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return one operator."""
        return (over(OperatorKind.SOFTMAX, output),)

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Fix the channels."""
        space.fix(inputs[0])
        return inputs[0]
