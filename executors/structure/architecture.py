"""Comparison of architectures: whether networks differ in nothing but their widths and weights."""

import json
from typing import Any

import keras
import numpy as np

from executors.structure.analysis import Structure, Widths
from executors.structure.graph import Graph
from executors.structure.handlers import handler_of


def same_architecture(one: Structure, other: Structure) -> bool:
    """Check whether a network is another one at other widths, with other weights.

    Both have the same layers, by name, with the same settings and the same calls, and the layers of `other`
    have exactly the weights that those of `one` have at its widths.
    """
    widths = other.widths
    return (
        one.groups.keys() == other.groups.keys()
        and _calls(one.graph) == _calls(other.graph)
        and one.weight_shapes(widths) == other.weight_shapes(widths)
        and _settings(one, widths) == [_text(_named(n.name, n.layer.get_config())) for n in other.graph.nodes]
    )


def _calls(graph: Graph) -> str:
    """Return a description of a graph without widths."""
    ends = [[name, graph.shapes[tensor], graph.dtypes[tensor]] for tensor, name in graph.inputs.items()]
    calls = [
        [
            node.name,
            _kind(node.layer),
            node.args,
            node.kwargs,
            node.inputs,
            node.output,
            graph.dtypes[node.output],
        ]
        for node in graph.nodes
    ]
    return _text([ends, graph.outputs, calls])


def _settings(structure: Structure, widths: Widths) -> list[str]:
    """Return the settings of the layers of each call at other widths."""
    shapes = structure.weight_shapes(widths)
    return [
        _text(
            _named(
                node.name,
                handler_of(node.name, node.layer).config(
                    node.layer, shapes[node.name], structure.channels[node.output].count(widths)
                ),
            )
        )
        for node in structure.graph.nodes
    ]


def _named(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the name that a layer has in its graph."""
    return {**config, "name": name}


def _kind(layer: keras.layers.Layer) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _text(values: Any) -> str:
    """Return a text that is equal only for equal values; objects that no text describes differ."""
    return json.dumps(values, default=_described)


def _described(value: object) -> Any:
    if isinstance(value, np.ndarray):
        return [value.dtype.str, value.shape, value.tobytes().hex()]
    return repr(value)
