"""Cutting an output of a model: only some of its channels stay, such as some of a classifier's classes."""

from collections.abc import Sequence
from typing import Final

import keras
import numpy as np

from executors.structure.channels import ChannelSpace
from executors.structure.graph import Graph, Node
from executors.structure.handlers import handler_of, is_leaf
from executors.structure.reading.reader import read_graph
from executors.structure.signature import output_names

layers = keras.layers

#: Layers with the output channels as the last axis of all weights.
_MAKERS: Final = (layers.Dense, layers.Conv1D, layers.Conv2D, layers.Conv3D)


class FixedOutputError(ValueError):
    """An output with channels that cannot be separated in the layers that compute it."""


def narrow_outputs(model: keras.Model, output: str, channels: Sequence[int]) -> keras.Model:
    """Return a model that computes only some channels of an output, with layers of its own.

    The layer that makes them is a matrix product or a convolution; behind it are activations, and layers that
    move or average positions. A softmax is then one over the remaining channels.

    Args:
        channels: Indices of the channels that stay, in the order of the new output.

    Raises:
        FixedOutputError: Other layers make the output, or something else reads what they compute.
    """
    graph = read_graph(model, is_leaf)
    tail = _tail(graph, graph.outputs[output_names(model).index(output)])
    maker, weights = tail[-1], graph.weights
    weights[maker.name] = [np.take(weight, channels, axis=-1) for weight in weights[maker.name]]
    cut = {node.name for node in tail}

    def make_layer(name: str, layer: keras.layers.Layer) -> keras.layers.Layer:
        config = layer.get_config()
        if name in cut:
            shapes = [weight.shape for weight in weights[name]]
            config = handler_of(name, layer).config(layer, shapes, len(channels))
        made = type(layer).from_config({**config, "name": name})
        made.trainable = layer.trainable
        return made

    return graph.build(make_layer, weights)


def is_narrowable(model: keras.Model, output: str) -> bool:
    """Check whether `narrow_outputs` can cut an output."""
    graph = read_graph(model, is_leaf)
    try:
        _tail(graph, graph.outputs[output_names(model).index(output)])
    except FixedOutputError:
        return False
    return True


def _tail(graph: Graph, tensor: int) -> list[Node]:
    """Return the calls that lead to an output, from the last one back to the one that makes its channels."""
    makers = {node.output: node for node in graph.nodes}
    calls = [node.name for node in graph.nodes]
    tail: list[Node] = []
    while not (tail and isinstance(tail[-1].layer, _MAKERS)):
        node = makers.get(tensor)
        if node is None:
            raise FixedOutputError("the output is an input, or made of nothing but one")
        readers = len(graph.consumers.get(tensor, ())) + graph.outputs.count(tensor)
        if readers > 1 or calls.count(node.name) > 1:
            raise FixedOutputError(f"{node.name!r} makes the output, and something else as well")
        if not isinstance(node.layer, _MAKERS) and not _passes(graph, node):
            expected = " or ".join(kind.__name__ for kind in _MAKERS)
            raise FixedOutputError(
                f"the output is made by {node.name!r}, a {type(node.layer).__name__}; expected {expected}, "
                "and behind it nothing but activations, pooling and reshapes"
            )
        tail.append(node)
        tensor = node.inputs[0]
    return tail


def _passes(graph: Graph, node: Node) -> bool:
    """Check whether a call without weights reads one tensor and keeps its channels apart and in order."""
    if graph.variables[node.name] or len(node.inputs) != 1:
        return False
    space = ChannelSpace()
    channels = space.new(graph.shapes[node.inputs[0]][-1] or 0)
    passed = handler_of(node.name, node.layer).couple(node, [channels], graph.shapes[node.output], space)
    return np.array_equal(channels, passed)
