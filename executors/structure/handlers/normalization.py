"""Normalisation and rescaling: channels pass through, each with its own values."""

from collections.abc import Sequence
from typing import Any

import keras

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import LayerHandler, over, positions, register
from mistify.costs.operators import Operation, OperatorKind

layers = keras.layers


def _require_last_axis(node: Node, rank: int) -> None:
    axes = node.layer.axis if isinstance(node.layer.axis, list | tuple) else [node.layer.axis]
    if [axis % rank for axis in axes] != [rank - 1]:
        raise UnsupportedLayerError(
            f"layer {node.name!r} normalises axis {node.layer.axis}; expected the last one"
        )


@register(layers.BatchNormalization)
class BatchNormalization(LayerHandler):
    """Vectors of C values."""

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return a scale and a shift, unless it is folded."""
        return (over(OperatorKind.ADD, output, times=2),)

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on; every vector of the layer has an entry per channel."""
        _require_last_axis(node, len(output))
        if getattr(node.layer, "renorm", False):
            raise UnsupportedLayerError(
                f"layer {node.name!r} has renorm=True; expected renorm=False: "
                "rebuild it with the same gamma, beta and moving statistics"
            )
        for weight in node.layer.weights:
            space.bind(node, weight, 0, Role.PASSES, inputs[0])
        return inputs[0]


@register(layers.LayerNormalization, layers.RMSNormalization)
class LayerNormalization(BatchNormalization):
    """Statistics over the remaining channels; with a single channel, the output would always be 0.

    LiteRT aborts the process on such a tensor in int8, because its scale is 0.
    """

    averages_channels = True

    def least_channels(self, node: Node, output: Shape) -> int:
        """Return two."""
        return 2

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return mean and variance over the channels, then the normalisation: about nine passes."""
        return (over(OperatorKind.ADD, output, times=9, temporaries=2),)


@register(layers.GroupNormalization)
class GroupNormalization(LayerHandler):
    """Statistics over each of several groups, which all keep the same width, or over each channel.

    Over a single channel at a single position, the output would always be 0, as that of a layer norm.
    """

    averages_channels = True

    def least_channels(self, node: Node, output: Shape) -> int:
        """Return two for each group if there is a single position."""
        return 2 * int(node.layer.groups) if positions(output) == 1 else 1

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return the operations of a layer norm."""
        return (over(OperatorKind.ADD, output, times=9, temporaries=2),)

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on with their factors; tie those at the same position in every group."""
        _require_last_axis(node, len(output))
        for weight in node.layer.weights:
            space.bind(node, weight, 0, Role.PASSES, inputs[0])
        if node.layer.groups != len(inputs[0]):
            grouped = inputs[0].reshape(node.layer.groups, -1)
            space.tie(grouped, grouped[:1])
        return inputs[0]

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Keep the number of groups, unless each channel is one."""
        # The axis for which the layer was built: there may be no weights to read the shape from.
        (built,) = layer.input_spec.axes.values()
        each = layer.groups == built
        return {**layer.get_config(), "groups": channels if each else layer.groups}


@register(layers.Normalization)
class InputNormalization(LayerHandler):
    """The mean and variance of the data, per channel of an input; these channels are fixed."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Fix the channels."""
        space.fix(inputs[0])
        return inputs[0]
