"""Composition of graphs in series or in parallel, and conversion of a graph to a model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras

from executors.structure.graph import Graph


def in_series(graphs: Sequence[Graph], name: str) -> Graph:
    """Return a graph in which each graph reads the output of the previous one.

    Args:
        graphs: Graphs without common layers. All but the first have one input, all but the last one output.
        name: Name of the new graph.
    """
    first, *others = graphs
    whole = replace(first, name=name)
    for graph in others:
        (read,), (written,) = graph.inputs, whole.outputs
        whole = _with(whole, graph, {read: written})
        whole = replace(whole, outputs=whole.outputs[1:])
    return whole


def in_parallel(graphs: Sequence[Graph], name: str) -> Graph:
    """Return a graph in which several run in parallel; inputs with the same name are merged.

    Args:
        graphs: Graphs without common layers.
        name: Name of the new graph, with the outputs of all graphs in order.
    """
    first, *others = graphs
    whole = replace(first, name=name)
    for graph in others:
        known = {input_name: tensor for tensor, input_name in whole.inputs.items()}
        same = {tensor: known[of] for tensor, of in graph.inputs.items() if of in known}
        new = {tensor + len(whole.shapes): of for tensor, of in graph.inputs.items() if of not in known}
        whole = replace(_with(whole, graph, same), inputs={**whole.inputs, **new})
    return whole


def model_of(graph: Graph) -> keras.Model:
    """Return the model of a graph, with new layers and the same weights."""
    return graph.build(copied_layer, graph.weights)


def model_with(graph: Graph, replaced: Mapping[str, Callable[[Any], Any]]) -> keras.Model:
    """Return the model of a graph in which functions of a tensor replace some of the layers.

    Args:
        replaced: Layer name -> a function of the layer's only input, such as other layers.
    """

    def made(name: str, layer: keras.layers.Layer) -> Any:
        return replaced[name] if name in replaced else copied_layer(name, layer)

    kept = {name: weights for name, weights in graph.weights.items() if name not in replaced}
    return graph.build(made, kept)


def copied_layer(name: str, layer: keras.layers.Layer) -> keras.layers.Layer:
    """Return a layer with the same settings and another name, without weights."""
    return type(layer).from_config({**layer.get_config(), "name": name})


def _with(whole: Graph, graph: Graph, same: Mapping[int, int]) -> Graph:
    """Return a graph with the calls of another graph added; `same` maps shared tensors."""
    offset = len(whole.shapes)

    def number(tensor: int) -> int:
        return same.get(tensor, tensor + offset)

    return replace(
        whole,
        shapes=whole.shapes + graph.shapes,
        dtypes=whole.dtypes + graph.dtypes,
        nodes=whole.nodes + tuple(node.rewired(number) for node in graph.nodes),
        outputs=whole.outputs + tuple(number(tensor) for tensor in graph.outputs),
    )
