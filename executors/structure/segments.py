"""Division of a network into segments that run one after the other (AdaptiveNet 4.1)."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final

import keras

from executors.structure.analysis import Structure
from executors.structure.folding import foldable
from executors.structure.graph import Graph
from executors.structure.handlers import handler_of
from executors.structure.keras_internals import numpy as operations

layers = keras.layers

#: Layers computed together with the following convolution.
_PADDING: Final = (layers.ZeroPadding1D, layers.ZeroPadding2D, layers.ZeroPadding3D, operations.Pad)


@dataclass(frozen=True)
class Segment:
    """Consecutive calls, separable from those before and after.

    Attributes:
        name: Name of the last call.
        graph: Its only input is the output of the previous segment, or the network's inputs in the first
            segment. Its only output is the input of the next segment, or the network's outputs in the last
            segment.
        params: Number of weights.
        multiply_adds: For one example.
    """

    name: str
    graph: Graph
    params: int
    multiply_adds: int


def segments(structure: Structure, largest: float) -> list[Segment]:
    """Divide a network into segments, each of which passes a single tensor to the next.

    No segment begins with layers that are fused into the preceding operator in a packaged network, such as
    batch norm, activations and dropout, and none ends with padding. Layers without weights belong to the
    segment before them.

    Args:
        largest: Neighbours are joined while together they have at most this share of the parameters and
            multiply-adds. An indivisible part may have more.

    Returns:
        The segments in order; a single one if the network cannot be divided.
    """
    graph = structure.graph
    costs = {layer.output: layer.multiply_adds for layer in structure.network().layers}
    ends = pairwise([0, *_ends(graph), len(graph.nodes)])
    pieces = [_segment(graph, first, last, costs) for first, last in ends]
    most_params = largest * sum(piece.params for piece in pieces)
    most_multiply_adds = largest * sum(piece.multiply_adds for piece in pieces)
    joined = pieces[:1]
    for piece in pieces[1:]:
        params = joined[-1].params + piece.params
        multiply_adds = joined[-1].multiply_adds + piece.multiply_adds
        small = params <= most_params and multiply_adds <= most_multiply_adds
        if not piece.params or not joined[-1].params or small:
            whole = dataclasses.replace(
                joined[-1].graph,
                nodes=joined[-1].graph.nodes + piece.graph.nodes,
                outputs=piece.graph.outputs,
            )
            joined[-1] = Segment(piece.name, whole, params, multiply_adds)
        else:
            joined.append(piece)
    return joined


def divisions(graph: Graph) -> Iterator[tuple[int, set[int]]]:
    """Yield the positions at which the calls can be divided without separating calls of the same layer.

    Yields:
        The number of calls before the division, and the tensors needed by the calls after it.
    """
    last_call = {node.name: place for place, node in enumerate(graph.nodes)}
    last_read = {tensor: place for place, node in enumerate(graph.nodes) for tensor in node.inputs}
    last_read.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    needed, called_until = set(graph.inputs), 0
    for count, node in enumerate(graph.nodes[:-1], start=1):
        called_until = max(called_until, last_call[node.name])
        needed.add(node.output)
        needed = {tensor for tensor in needed if last_read.get(tensor, -1) >= count}
        if called_until < count:
            yield count, needed


def _ends(graph: Graph) -> Iterator[int]:
    """Yield the numbers of calls after which a segment may end."""
    folded = foldable(graph)
    for count, needed in divisions(graph):
        last, readers = graph.nodes[count - 1], graph.consumers.get(graph.nodes[count - 1].output, [])
        fuses = len(readers) == 1 and (
            readers[0] in folded or handler_of(readers[0].name, readers[0].layer).in_place
        )
        if needed == {last.output} and not fuses and not isinstance(last.layer, _PADDING):
            yield count


def _segment(graph: Graph, first: int, last: int, costs: Mapping[int, int]) -> Segment:
    nodes = graph.nodes[first:last]
    before = graph.nodes[first - 1]
    variables = (variable for name in {node.name for node in nodes} for variable in graph.variables[name])
    return Segment(
        nodes[-1].name,
        dataclasses.replace(
            graph,
            nodes=nodes,
            inputs={before.output: before.name} if first else graph.inputs,
            outputs=(nodes[-1].output,) if last < len(graph.nodes) else graph.outputs,
        ),
        sum(prod(variable.shape) for variable in variables),
        sum(costs[node.output] for node in nodes),
    )
