"""Matrix products."""

from collections.abc import Sequence
from typing import Any

import keras

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import LayerHandler, Product, Window, activated, positions, register
from executors.structure.handlers.convolution import finish
from executors.structure.served_dense import ServedDense
from mistify.costs.network import multiply_adds
from mistify.costs.operators import Operation, OperatorKind


@register(keras.layers.Dense, ServedDense)
class Dense(LayerHandler):
    """Kernel [C_in, C_out], applied to the last axis of any tensor."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Sum over the input channels, make the output channels."""
        channels = space.new(node.layer.units)
        space.bind(node, node.layer.kernel, 0, Role.SUMS, inputs[0])
        space.bind(node, node.layer.kernel, 1, Role.MAKES, channels)
        return finish(node, channels, space, Role.MAKES)

    def products(self, node: Node) -> Sequence[Product]:
        """Return the kernel."""
        bias = node.layer.bias if node.layer.use_bias else None
        return (Product(0, node.layer.kernel, 0, bias, Window()),)

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the units."""
        return {**layer.get_config(), "units": channels}

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Return `C_in * C_out` at every position of the output."""
        c_in, c_out = weights[0]
        return multiply_adds(c_in or 0, c_out or 0, 1, positions(output))

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return one operator, and an activation unless it is fused."""
        c_in, c_out = weights[0]
        made = Operation(OperatorKind.DENSE, positions(output), c_in or 0, c_out or 0)
        return (made, *activated(node.layer.activation, output))
