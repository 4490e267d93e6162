"""Convolutions: plain, grouped, depthwise, separable, transposed."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import keras
import numpy as np

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import (
    LayerHandler,
    Product,
    Window,
    activated,
    mixes_channels,
    over,
    positions,
    register,
    require_channels_last,
)
from mistify.costs.network import multiply_adds
from mistify.costs.operators import Operation, OperatorKind, with_memory

layers = keras.layers


def finish(node: Node, channels: Ids, space: ChannelSpace, role: Role) -> Ids:
    """Bind the parts after a kernel: a bias along the channels, and an activation that may mix them.

    Args:
        channels: Numbers of the output's channels [C_out].
        role: The effect of the bias on the channels.
    """
    if node.layer.use_bias:
        space.bind(node, node.layer.bias, 0, role, channels)
    if mixes_channels(node.layer.activation):
        space.fix(channels)
    return channels


class Convolves(LayerHandler):
    """A convolution. Over volumes, LiteRT has no integer kernel for it, and adds the bias separately."""

    def adding_bias(self, node: Node, output: Shape) -> tuple[Operation, ...]:
        """Return a pass over volumes; other convolutions add the bias themselves."""
        return (over(OperatorKind.ADD, output),) if _is_over_volumes(node) else ()

    def _biased(self, node: Node, made: Operation, output: Shape) -> tuple[Operation, ...]:
        bias = self.adding_bias(node, output) if node.layer.use_bias else ()
        return (with_memory(made, float_only=_is_over_volumes(node)), *bias)


class HasFilters(LayerHandler):
    """The number of output channels is in the config."""

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the filters."""
        return {**layer.get_config(), "filters": channels}


@register(layers.Conv1D, layers.Conv2D, layers.Conv3D)
class Convolution(Convolves):
    """Kernel [..., C_in / groups, C_out]. Grouped convolutions only lose whole groups."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Sum over the input channels, make the output channels; tie both within each group."""
        require_channels_last(node)
        channels = space.new(node.layer.filters)
        rank = len(node.layer.kernel.shape)
        if node.layer.groups == 1:
            space.bind(node, node.layer.kernel, rank - 2, Role.SUMS, inputs[0])
        else:
            grouped_in, grouped_out = (
                inputs[0].reshape(node.layer.groups, -1),
                channels.reshape(node.layer.groups, -1),
            )
            space.tie(grouped_in, grouped_out[:, :1])
            space.tie(grouped_out, grouped_out[:, :1])
        space.bind(node, node.layer.kernel, rank - 1, Role.MAKES, channels)
        return finish(node, channels, space, Role.MAKES)

    def products(self, node: Node) -> Sequence[Product]:
        """Return the kernel, unless it is grouped."""
        layer = node.layer
        if layer.groups != 1:
            return ()
        bias = layer.bias if layer.use_bias else None
        window = Window(layer.kernel_size, layer.strides, layer.dilation_rate, layer.padding)
        return (Product(0, layer.kernel, len(layer.kernel.shape) - 2, bias, window),)

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the filters, and the number of groups of unchanged width."""
        groups = 1 if layer.groups == 1 else layer.groups * channels // layer.filters
        return {**layer.get_config(), "filters": channels, "groups": groups}

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Return `C_in / groups * C_out * S_kernel * S_out`; the kernel's axis holds `C_in / groups`."""
        *kernel, c_in, c_out = _sizes(weights[0])
        return multiply_adds(c_in, c_out, prod(kernel), positions(output))

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return one operator for each group, and an activation unless it is fused."""
        *kernel, c_in, c_out = _sizes(weights[0])
        groups = max(1, (inputs[0][-1] or 0) // max(1, c_in))
        channels = (c_in, c_out // groups)
        made = _sliding(OperatorKind.CONVOLUTION, prod(kernel), (inputs[0], output), channels, times=groups)
        convolved = _around(inputs, output, *self._biased(node, made, output))
        return (*convolved, *activated(node.layer.activation, output))


#: Transposed convolution -> operators in a package, by the bytes that they take.
_OPERATORS_OF_TRANSPOSED: Mapping[type, int] = {layers.Conv1DTranspose: 10, layers.Conv2DTranspose: 5}


@register(layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose)
class TransposedConvolution(Convolves, HasFilters):
    """Kernel [..., C_out, C_in]."""

    def products(self, node: Node) -> Sequence[Product]:
        """Return the kernel."""
        layer = node.layer
        bias = layer.bias if layer.use_bias else None
        rank = len(layer.kernel.shape)
        return (Product(0, layer.kernel, rank - 1, bias, spread=prod(layer.strides)),)

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Sum over the input channels, make the output channels."""
        require_channels_last(node)
        channels = space.new(node.layer.filters)
        rank = len(node.layer.kernel.shape)
        space.bind(node, node.layer.kernel, rank - 1, Role.SUMS, inputs[0])
        space.bind(node, node.layer.kernel, rank - 2, Role.MAKES, channels)
        return finish(node, channels, space, Role.MAKES)

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Count the whole kernel at every input position: `S_out` is the number of input positions."""
        *kernel, c_out, c_in = _sizes(weights[0])
        return multiply_adds(c_in, c_out, prod(kernel), positions(inputs[0]))

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return one operator: each input position computes all outputs that the kernel covers."""
        *kernel, c_out, c_in = _sizes(weights[0])
        made = Operation(OperatorKind.CONVOLUTION, positions(inputs[0]), c_in, c_out * prod(kernel))
        convolved = _around(inputs, output, *self._biased(node, made, output))
        return (*convolved, *activated(node.layer.activation, output))

    def operators(self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape]) -> int:
        """Count those that compute the shape for any batch size; signals have to become images."""
        return _OPERATORS_OF_TRANSPOSED.get(type(node.layer), 1)


@register(layers.DepthwiseConv1D, layers.DepthwiseConv2D)
class DepthwiseConvolution(LayerHandler):
    """Kernel [..., C_in, multiplier]; output channel `c * multiplier + m` comes from input channel c."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on, each `multiplier` times."""
        require_channels_last(node)
        space.bind(node, node.layer.kernel, len(node.layer.kernel.shape) - 2, Role.PASSES, inputs[0])
        channels: Ids = np.repeat(inputs[0], node.layer.depth_multiplier)
        return finish(node, channels, space, Role.PASSES)

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Count as for a grouped convolution with one group per input channel."""
        *kernel, c_in, multiplier = _sizes(weights[0])
        return multiply_adds(c_in, c_in * multiplier, prod(kernel), positions(output), groups=c_in)

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return one operator, and an activation unless it is fused."""
        *kernel, c_in, multiplier = _sizes(weights[0])
        made = _sliding(OperatorKind.DEPTHWISE, prod(kernel), (inputs[0], output), (c_in, c_in * multiplier))
        return (*_around(inputs, output, made), *activated(node.layer.activation, output))


@register(layers.SeparableConv1D, layers.SeparableConv2D)
class SeparableConvolution(HasFilters):
    """A depthwise kernel [..., C_in, multiplier], then a pointwise one [..., C_in * multiplier, C_out]."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the input channels through the depthwise kernel, and sum over them in the pointwise one."""
        require_channels_last(node)
        rank = len(node.layer.depthwise_kernel.shape)
        space.bind(node, node.layer.depthwise_kernel, rank - 2, Role.PASSES, inputs[0])
        between = np.repeat(inputs[0], node.layer.depth_multiplier)
        channels = space.new(node.layer.filters)
        space.bind(node, node.layer.pointwise_kernel, rank - 2, Role.SUMS, between)
        space.bind(node, node.layer.pointwise_kernel, rank - 1, Role.MAKES, channels)
        return finish(node, channels, space, Role.MAKES)

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Count the depthwise and the pointwise part, both at the output positions."""
        *kernel, c_in, multiplier = _sizes(weights[0])
        between = c_in * multiplier
        depthwise = multiply_adds(c_in, between, prod(kernel), positions(output), groups=c_in)
        return depthwise + multiply_adds(between, _sizes(weights[1])[-1], 1, positions(output))

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return two operators, and an activation unless it is fused."""
        *kernel, c_in, multiplier = _sizes(weights[0])
        apart = _sliding(OperatorKind.DEPTHWISE, prod(kernel), (inputs[0], output), (c_in, c_in * multiplier))
        joined = Operation(OperatorKind.CONVOLUTION, positions(output), c_in * multiplier, output[-1] or 0)
        return (*_around(inputs, output, apart, joined), *activated(node.layer.activation, output))


def _is_over_volumes(node: Node) -> bool:
    return isinstance(node.layer, layers.Conv3D | layers.Conv3DTranspose)


def _sliding(
    kind: OperatorKind,
    kernel: int,
    shapes: tuple[Shape, Shape],
    channels: tuple[int, int],
    *,
    times: int = 1,
) -> Operation:
    """Return an operator whose kernel slides over the positions of its input.

    Args:
        kind: The kind of the operator.
        kernel: Positions of the kernel.
        shapes: Shapes of the input and the output.
        channels: Input and output channels of one run.
        times: Number of runs.
    """
    read, written = map(positions, shapes)
    return Operation(kind, written, *channels, kernel, max(1, round(read / written)), times)


def _around(inputs: Sequence[Shape], output: Shape, *made: Operation) -> tuple[Operation, ...]:
    """Return operators on images, with reshapes before and after for a sequence."""
    if len(output) > 3:
        return made
    return (over(OperatorKind.RESHAPE, inputs[0]), *made, over(OperatorKind.RESHAPE, output))


def _sizes(shape: Shape) -> tuple[int, ...]:
    return tuple(size or 0 for size in shape)
