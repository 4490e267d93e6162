"""Attention between positions."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from executors.structure.channels import ChannelSpace, Ids, Role
from executors.structure.errors import UnsupportedLayerError
from executors.structure.graph import Node, Shape
from executors.structure.handlers.base import LayerHandler, MovesElements, Product, positions, register
from executors.structure.keras_internals import is_gated
from mistify.costs.network import multiply_adds
from mistify.costs.operators import Operation, OperatorKind, elementwise

#: Arguments of attention whose last axis holds positions.
_MASKS = ("attention_mask", "query_mask", "value_mask", "key_mask")


@register(keras.layers.MultiHeadAttention)
class MultiHeadAttention(LayerHandler):
    """Kernels [C_in, heads, width] of query, key and value, and [heads, width, C_out] of the output.

    Heads and the width of values can be cut. The width of queries and keys is fixed: scores are divided by
    its square root, so the remaining weights would have to be rescaled after every cut.
    """

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Sum over the channels of query, key and value; make heads, values and the output's channels."""
        layer, rank = node.layer, len(output)
        if rank != 3 or is_gated(layer) or node.kwargs.get("return_attention_scores"):
            raise UnsupportedLayerError(
                f"layer {node.name!r} is gated, attends over more than one axis, or returns its scores; "
                "expected plain attention over [batch, positions, channels]"
            )
        read = _read(node)
        heads, values, made = (
            space.new(layer.num_heads),
            space.new(layer.value_dim),
            space.new(output[-1] or 0),
        )
        for name, dense in (
            ("query", layer.query_dense),
            ("key", layer.key_dense),
            ("value", layer.value_dense),
        ):
            space.bind(node, dense.kernel, 0, Role.SUMS, inputs[read[name]])
            space.bind(node, dense.kernel, 1, Role.MAKES, heads)
            if layer.use_bias:
                space.bind(node, dense.bias, 0, Role.MAKES, heads)
        space.bind(node, layer.value_dense.kernel, 2, Role.MAKES, values)
        space.bind(node, layer.output_dense.kernel, 0, Role.SUMS, heads)
        space.bind(node, layer.output_dense.kernel, 1, Role.SUMS, values)
        space.bind(node, layer.output_dense.kernel, 2, Role.MAKES, made)
        if layer.use_bias:
            space.bind(node, layer.value_dense.bias, 1, Role.MAKES, values)
            space.bind(node, layer.output_dense.bias, 0, Role.MAKES, made)
        _fix_masks(node, inputs, space)
        return made

    def products(self, node: Node) -> Sequence[Product]:
        """Return the kernels of query, key and value."""
        layer, read = node.layer, _read(node)
        kernels = {"query": layer.query_dense, "key": layer.key_dense, "value": layer.value_dense}
        return [
            Product(read[name], dense.kernel, 0, dense.bias if layer.use_bias else None)
            for name, dense in kernels.items()
        ]

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set heads, the values' width, and the output's channels, which may differ from the query's."""
        heads, value_dim, _ = weights[-2 if layer.use_bias else -1]
        return {**layer.get_config(), "num_heads": heads, "value_dim": value_dim, "output_shape": [channels]}

    def multiply_adds(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> int:
        """Count four products with kernels, and two over positions: queries and keys, scores and values."""
        read = _read(node)
        queries, keys = positions(inputs[read["query"]]), positions(inputs[read["value"]])
        kernels = [shape for shape in weights if len(shape) == 3]
        products = sum(
            multiply_adds(a or 0, (b or 0) * (c or 0), s_out=places)
            for (a, b, c), places in zip(kernels, (queries, keys, keys, queries), strict=True)
        )
        _, heads, key_dim = kernels[0]
        value_dim = kernels[2][2]
        return products + queries * keys * (heads or 0) * ((key_dim or 0) + (value_dim or 0))

    def operations(
        self, node: Node, weights: Sequence[Shape], inputs: Sequence[Shape], output: Shape
    ) -> tuple[Operation, ...]:
        """Return three products with kernels, two over positions around a softmax, and one with a kernel."""
        read = _read(node)
        queries, keys = positions(inputs[read["query"]]), positions(inputs[read["value"]])
        query, key, value, made = [shape for shape in weights if len(shape) == 3]
        (c_in, heads, key_dim), value_dim = ((size or 0) for size in query), value[2] or 0
        c_values, shared = value[0] or 0, key[1] or 0
        return (
            Operation(OperatorKind.DENSE, queries, c_in, heads * key_dim),
            Operation(OperatorKind.DENSE, keys, c_values, shared * key_dim),
            Operation(OperatorKind.DENSE, keys, c_values, shared * value_dim),
            *(elementwise(OperatorKind.COPY, places, heads * key_dim) for places in (queries, keys, keys)),
            Operation(OperatorKind.PRODUCT, queries, key_dim, keys, times=heads),
            elementwise(OperatorKind.ADD, heads * queries, keys),
            elementwise(OperatorKind.SOFTMAX, heads * queries, keys),
            Operation(OperatorKind.PRODUCT, queries, keys, value_dim, times=heads),
            elementwise(OperatorKind.COPY, queries, heads * value_dim),
            Operation(OperatorKind.DENSE, queries, heads * value_dim, made[2] or 0),
        )


@register(keras.layers.GroupQueryAttention)
class GroupQueryAttention(MultiHeadAttention):
    """Attention in which several heads of queries share one of keys and values.

    A shared head can be cut with its queries. The width of heads is fixed, and the output has the query's
    channels.
    """

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Sum over the channels of query, key and value; make heads, and the query's channels again."""
        layer, read = node.layer, _read(node)
        if layer.use_gate or node.kwargs.get("return_attention_scores"):
            raise UnsupportedLayerError(
                f"layer {node.name!r} is gated, or returns its scores; expected plain attention"
            )
        shared = space.new(layer.num_key_value_heads)
        heads = np.repeat(shared, layer.num_query_heads // layer.num_key_value_heads)
        made = inputs[read["query"]]
        space.tie(made, inputs[read["value"]])
        kernels, biases = _kernels_and_biases(layer)
        for place, (name, own) in enumerate({"query": heads, "key": shared, "value": shared}.items()):
            space.bind(node, kernels[place], 0, Role.SUMS, inputs[read[name]])
            space.bind(node, kernels[place], 1, Role.MAKES, own)
            if biases:
                space.bind(node, biases[place], 0, Role.MAKES, own)
        space.bind(node, kernels[-1], 0, Role.SUMS, heads)
        space.bind(node, kernels[-1], 2, Role.MAKES, made)
        if biases:
            space.bind(node, biases[-1], 0, Role.MAKES, made)
        _fix_masks(node, inputs, space)
        return made

    def products(self, node: Node) -> Sequence[Product]:
        """Return the kernels of query, key and value."""
        read, (kernels, biases) = _read(node), _kernels_and_biases(node.layer)
        return [
            Product(read[name], kernels[place], 0, biases[place] if biases else None)
            for place, name in enumerate(("query", "key", "value"))
        ]

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the heads of queries, and those of keys and values."""
        query, key, *_ = [shape for shape in weights if len(shape) == 3]
        return {**layer.get_config(), "num_query_heads": query[1], "num_key_value_heads": key[1]}


def _kernels_and_biases(layer: keras.layers.Layer) -> tuple[list[Any], list[Any]]:
    """Return the kernels of query, key, value and output, and the biases if there are any."""
    return layer.weights[:: 1 + layer.use_bias], layer.weights[1::2] if layer.use_bias else []


def _fix_masks(node: Node, inputs: Sequence[Ids], space: ChannelSpace) -> None:
    """Fix the positions that the last axis of a mask holds."""
    for place in map(node.argument, _MASKS):
        if place is not None:
            space.fix(inputs[place])


def _read(node: Node) -> dict[str, int]:
    """Map query, key and value to inputs; without a key, the values are also the keys."""
    query, value, key = (node.argument(name) for name in ("query", "value", "key"))
    values = value or 0
    return {"query": query or 0, "value": values, "key": values if key is None else key}


@register(keras.layers.Embedding, keras.layers.ReversibleEmbedding)
class Embedding(MovesElements):
    """A lookup table [tokens, C]."""

    def couple(self, node: Node, inputs: Sequence[Ids], output: Shape, space: ChannelSpace) -> Ids:
        """Make the channels. The input is tokens at positions, which are fixed."""
        if node.kwargs.get("reverse"):
            raise UnsupportedLayerError(
                f"layer {node.name!r} is called in reverse, for its own tokens; expected another layer there"
            )
        space.fix(inputs[0])
        channels = space.new(node.layer.output_dim)
        space.bind(node, node.layer.embeddings, 1, Role.MAKES, channels)
        return channels

    def config(self, layer: keras.layers.Layer, weights: Sequence[Shape], channels: int) -> dict[str, Any]:
        """Set the number of channels per token."""
        return {**layer.get_config(), "output_dim": channels}
