"""KerasHub layers with weights of their own; imported only if such a layer is used."""

from collections.abc import Sequence

import keras_hub

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.graph import Node, Shape
from executors.structure.handlers.attention import Embedding
from executors.structure.handlers.base import LayerHandler, register

layers = keras_hub.layers

register(layers.ReversibleEmbedding)(Embedding)


@register(layers.PositionEmbedding)
class PositionEmbedding(LayerHandler):
    """A table [positions, C], as wide as the tensor whose positions it encodes."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Pass the channels on; the layer takes its width from its input."""
        space.bind(node, node.layer.position_embeddings, 1, Role.MAKES, inputs[0])
        return inputs[0]
