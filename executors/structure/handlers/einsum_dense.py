"""Products with a kernel along any axes, by an equation such as `abc,cd->abd`."""

from collections.abc import Sequence
from math import prod
from typing import Any

import keras

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.equations import Equation
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import (
    LayerHandler,
    Product,
    Window,
    activated,
    mixes_channels,
    over,
    register,
)
from mistify.costs.operators import Operation, OperatorKind


@register(keras.layers.EinsumDense)
class EinsumDense(LayerHandler):
    """A kernel by whose axes the input is multiplied; the last axes of input and output have channels.

    Channels are cut if the kernel sums over them, makes them, or scales them. Its other axes stay.
    """

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Bind the last axes of input and output to those of the kernel."""
        layer, axes = node.layer, _equation(node)
        read, made = axes.read[-1], axes.made[-1]
        if made in axes.new:
            role, channels = Role.MAKES, space.new(output[-1] or 0)
        elif made == read:
            role, channels = Role.PASSES, inputs[0]
        else:
            role, channels = Role.PASSES, space.fixed(output[-1] or 0)
        if made in axes.kernel:
            space.bind(node, layer.kernel, axes.kernel.index(made), role, channels)
        if read in axes.summed:
            space.bind(node, layer.kernel, axes.kernel.index(read), Role.SUMS, inputs[0])
        elif read != made:
            space.fix(inputs[0])
        if layer.bias is not None and made in layer.bias_axes:
            space.bind(node, layer.bias, len(layer.bias.shape) - 1, role, channels)
        if mixes_channels(layer.activation):
            space.fix(channels)
        return channels

    def products(self, node: Node) -> Sequence[Product]:
        """Return the kernel if it sums over the input's channels, and its other axes are not the input's."""
        layer, axes = node.layer, _equation(node)
        read = axes.read[-1]
        if read not in axes.summed or set(axes.kernel) != {*axes.summed, *axes.new}:
            return ()
        own_bias = layer.bias is not None and axes.kernel.endswith(axes.new) and layer.bias_axes == axes.new
        plain = (
            axes.kernel == read + axes.new and axes.made == axes.read[:-1] + axes.new and len(axes.new) == 1
        )
        return [
            Product(
                0,
                layer.kernel,
                axes.kernel.index(read),
                layer.bias if own_bias else None,
                Window() if plain else None,
            )
        ]

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the last size of the output, unless it is that of the input."""
        if layer.equation.endswith("..."):
            return dict(layer.get_config())
        shape = (*layer.partial_output_shape[:-1], channels)
        return {**layer.get_config(), "output_shape": shape}

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Return the product of the sizes of all axes."""
        return prod(_sizes(node, weights, inputs).values())

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return one operator, passes that move axes around it, and an activation unless it is fused."""
        axes, sizes = _equation(node), _sizes(node, weights, inputs)
        read, made = (prod(sizes[axis] for axis in own) for own in (axes.summed, axes.new))
        batched = [axis for axis in axes.kernel if axis in axes.read and axis in axes.made]
        times = prod(sizes[axis] for axis in batched)
        places = prod(sizes.values()) // max(read * made * times, 1)
        kind = OperatorKind.PRODUCT if batched else OperatorKind.DENSE
        moved = []
        if not axes.read.endswith(axes.summed) or batched:
            moved.append(over(OperatorKind.COPY, inputs[0]))
        if not axes.made.endswith(axes.new) or batched:
            moved.append(over(OperatorKind.COPY, output))
        product = Operation(kind, places, read, made, times=times)
        return (*moved, product, *activated(node.layer.activation, output))


def _equation(node: Node) -> Equation:
    """Return the axes of a layer's call.

    Raises:
        UnsupportedLayerError: The batch is not the first axis of input and output, or the kernel has it.
    """
    axes = Equation.of(node.layer)
    batch = axes.read[0]
    if axes.made[0] != batch or batch in axes.kernel:
        raise UnsupportedLayerError(
            f"layer {node.name!r} has the equation {node.layer.equation!r}; expected the batch as the "
            "first axis of input and output, such as 'abc,cd->abd'"
        )
    return axes


def _sizes(node: Node, weights: Sequence[Shape], inputs: Sequence[Shape]) -> dict[str, int]:
    """Return the size of each axis but the batch."""
    axes = _equation(node)
    known = [*zip(axes.read[1:], inputs[0][1:], strict=True), *zip(axes.kernel, weights[0], strict=True)]
    return {axis: size or 0 for axis, size in known}
