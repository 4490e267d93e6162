"""The custom layers of `keras.applications`."""

from collections.abc import Sequence
from typing import Any

import keras

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import LayerHandler, register
from executors.structure.handlers.elementwise import Pointwise
from executors.structure.keras_internals import LayerScale, StochasticDepth


@register(LayerScale)
class ScaledChannels(LayerHandler):
    """A factor for each channel."""

    in_place = True

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on together with their factors."""
        space.bind(node, node.layer.gamma, 0, Role.PASSES, inputs[0])
        return inputs[0]

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the number of factors."""
        return {**layer.get_config(), "projection_dim": channels}


@register(StochasticDepth)
class DroppedPath(Pointwise):
    """Stochastic depth, which does nothing at inference."""
