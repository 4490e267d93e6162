"""Layers that join tensors."""

from collections.abc import Sequence

import keras
import numpy as np

from executors.structure.channels import ChannelSpace, Ids
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import LayerHandler, MovesElements, over, register
from mistify.costs.operators import Operation, OperatorKind

layers = keras.layers


@register(layers.Add, layers.Average, layers.Maximum, layers.Minimum, layers.Multiply, layers.Subtract)
class ElementwiseMerge(LayerHandler):
    """Elementwise operations on several tensors; a single channel is broadcast to all others."""

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return an operator for each tensor after the first."""
        return (over(OperatorKind.ADD, output, times=len(inputs) - 1),)

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Tie the channels of all tensors with as many channels as the output."""
        full = [channels for channels in inputs if len(channels) == output[-1]]
        for channels in inputs:
            if len(channels) == output[-1]:
                space.tie(full[0], channels)
            else:
                space.fix(channels)
        return full[0] if full else space.fixed(output[-1] or 0)


@register(layers.Concatenate)
class Concatenation(MovesElements):
    """Concatenation along the channels or another axis."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Put the channels side by side, or tie them if another axis is joined."""
        axis = node.layer.axis % len(output)
        if axis == 0:
            raise UnsupportedLayerError(
                f"layer {node.name!r} concatenates along the batch; expected another axis"
            )
        if axis == len(output) - 1:
            return np.concatenate(list(inputs))
        for channels in inputs[1:]:
            space.tie(inputs[0], channels)
        return inputs[0]
