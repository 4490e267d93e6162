"""Layers that move elements without changing them."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from executors.structure.channels import ChannelSpace, Ids
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import (
    LayerHandler,
    MovesElements,
    over,
    register,
    require_channels_last,
)
from mistify.costs.operators import Operation, OperatorKind

layers = keras.layers


def _require_size(node: Node, output: Shape) -> int:
    if output[-1] is None:
        raise UnsupportedLayerError(
            f"layer {node.name!r} writes the shape {output}; expected a fixed last dimension; "
            "give keras.Input a full shape"
        )
    return output[-1]


class ChangesShape(LayerHandler):
    """Elements stay where they are in memory."""

    in_place = True

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return one reshape."""
        return (over(OperatorKind.FLATTEN, inputs[0]),)


@register(layers.Flatten)
class Flatten(ChangesShape):
    """[N, ..., C] to [N, positions * C]: each channel occurs once per position."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Repeat the channels for each position; a single value per example has no channels."""
        require_channels_last(node)
        size = _require_size(node, output)
        if not len(inputs[0]):
            return space.fixed(size)
        return np.tile(inputs[0], size // len(inputs[0]))


@register(layers.Reshape)
class Reshape(ChangesShape):
    """Channels are followed if they stay together, are flattened, or are split into positions."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on, repeat them, tie the channels of a block, or fix all of them."""
        if len(output) == 1:
            space.fix(inputs[0])
            return space.fixed(0)
        last, channels = _require_size(node, output), len(inputs[0])
        if channels and last % channels == 0:
            return np.tile(inputs[0], last // channels)
        if channels and channels % last == 0:
            blocks = inputs[0].reshape(-1, last)
            space.tie(blocks, blocks[:1])
            first: Ids = blocks[0]
            return first
        space.fix(inputs[0])
        return space.fixed(last)

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the target shape for the remaining channels."""
        target = layer.target_shape
        return {**layer.get_config(), "target_shape": (*target[:-1], channels) if target else ()}


@register(layers.Permute)
class Permute(MovesElements):
    """Channels are followed if they stay the last axis, and fixed otherwise."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on, or fix them."""
        if node.layer.dims[-1] == len(output) - 1:
            return inputs[0]
        space.fix(inputs[0])
        return space.fixed(output[-1] or 0)


@register(layers.RepeatVector)
class RepeatVector(MovesElements):
    """[N, C] to [N, steps, C]."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on."""
        return inputs[0]
