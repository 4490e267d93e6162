"""Attention without kernels: of Luong et al. (2015), by products, and of Bahdanau et al. (2015), by sums."""

from collections.abc import Sequence
from typing import Any

import keras

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import LayerHandler, positions, register
from mistify.costs.operators import Operation, OperatorKind, elementwise, with_memory


@register(keras.layers.Attention, keras.layers.AdditiveAttention)
class PlainAttention(LayerHandler):
    """Scores from all channels of queries and keys; the output has the channels of the values.

    A channel of the queries is kept or cut with the same channel of the keys.
    """

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Tie the channels of queries and keys, and pass on those of the values."""
        if len(output) != 3 or node.kwargs.get("return_attention_scores"):
            raise UnsupportedLayerError(
                f"layer {node.name!r} attends over more than one axis, or its scores are used; "
                "expected attention over [batch, positions, channels] of which only the result is used"
            )
        query, key, value = _read(node)
        space.tie(inputs[query], inputs[key])
        if _scale(node) is not None:
            space.bind(node, node.layer.scale, 0, Role.SUMS, inputs[query])
        for mask in inputs[_count(node) :]:
            space.fix(mask)
        return inputs[value]

    def adds_channels(self, node: Node) -> tuple[int, ...]:
        """Return queries and keys, unless the sum of their channels is weighted."""
        return () if _scale(node) is not None else _read(node)[:2]

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Count the scores, and the sums of values that they weight."""
        queries, keys, compared, channels = _sizes(node, inputs)
        return queries * keys * (compared + channels)

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return the operators of the scores, a softmax and a product."""
        queries, keys, compared, channels = _sizes(node, inputs)
        if node.layer.score_mode == "dot" and not isinstance(node.layer, keras.layers.AdditiveAttention):
            scores: tuple[Operation, ...] = (Operation(OperatorKind.PRODUCT, queries, compared, keys),)
        else:
            over_pairs = elementwise(OperatorKind.ADD, queries * keys, compared)
            weighted = (over_pairs,) if node.layer.scale is not None else ()
            activated = elementwise(OperatorKind.ACTIVATION, queries * keys, compared)
            # Sums of all pairs are written and read between these operators.
            first = with_memory(over_pairs, scratch=2 * queries * keys * compared)
            scores = (first, activated, *weighted, over_pairs)
        return (
            *scores,
            elementwise(OperatorKind.SOFTMAX, queries, keys),
            Operation(OperatorKind.PRODUCT, queries, keys, channels),
        )


def _scale(node: Node) -> Any:
    """Return the weight of each channel in the scores [C]; None if they have none."""
    return node.layer.scale if isinstance(node.layer, keras.layers.AdditiveAttention) else None


def _count(node: Node) -> int:
    """Return the number of tensors that are not masks: query and value, and perhaps the key."""
    return len(node.args[0] if node.args else node.kwargs["inputs"])


def _read(node: Node) -> tuple[int, int, int]:
    """Return the places of query, key and value among the inputs; without a key, values are also keys."""
    return (0, 2, 1) if _count(node) == 3 else (0, 1, 1)


def _sizes(node: Node, inputs: Sequence[Shape]) -> tuple[int, int, int, int]:
    """Return the numbers of queries and keys, of their channels, and of those of the values."""
    query, key, value = (inputs[place] for place in _read(node))
    return positions(query), positions(key), query[-1] or 0, value[-1] or 0
