"""Normalisations and rescaling: channels pass through, each with values of its own."""

from collections.abc import Sequence
from typing import Any

import keras

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.graph import Shape
from executors.structure.handlers.base import LayerHandler, UnsupportedLayerError, register

layers = keras.layers


def _require_last_axis(name: str, layer: keras.layers.Layer, rank: int) -> None:
    axes = layer.axis if isinstance(layer.axis, list | tuple) else [layer.axis]
    if [axis % rank for axis in axes] != [rank - 1]:
        raise UnsupportedLayerError(f"layer {name!r} normalises axis {layer.axis}; expected the last one")


@register(layers.BatchNormalization, layers.LayerNormalization)
class Normalization(LayerHandler):
    """Vectors of C values. A layer norm's statistics are then those of the channels that are left."""

    def couple(
        self, name: str, layer: keras.layers.Layer, inputs: Sequence[Ids], output: Shape, space: ChannelSpace
    ) -> Ids:
        """Pass the channels on; every vector of the layer stands along them."""
        _require_last_axis(name, layer, len(output))
        for weight in layer.weights:
            space.bind(name, layer, weight, 0, Role.PASSES, inputs[0])
        return inputs[0]


@register(layers.Normalization)
class InputNormalization(LayerHandler):
    """Mean and variance of the data: the channels of an input, which stay."""

    def couple(
        self, name: str, layer: keras.layers.Layer, inputs: Sequence[Ids], output: Shape, space: ChannelSpace
    ) -> Ids:
        """Keep the channels."""
        space.fix(inputs[0])
        return inputs[0]

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Unchanged."""
        return dict(layer.get_config())
