"""Splitting of a model into initial layers shared by several networks, and the rest of each (paper 6)."""

import dataclasses
from collections.abc import Collection, Iterator
from itertools import accumulate, pairwise

import keras

from executors.structure.analysis import Structure
from executors.structure.graph import Graph, Node
from executors.structure.segments import divisions


def shareable_base(structure: Structure, most: float) -> tuple[str, ...]:
    """Return the initial layers that can be shared: as many as a limit on multiply-adds allows.

    They end where only a single tensor is passed on to the rest, apart from inputs and values computed from
    inputs without weights, such as masks.

    Args:
        most: Multiply-adds of one example.

    Returns:
        Names of the layers in the graph; none if even the first exceeds the limit.
    """
    graph = structure.graph
    costs = {layer.output: layer.multiply_adds for layer in structure.network().layers}
    spent = accumulate(costs[node.output] for node in graph.nodes)
    affordable = sum(total <= most for total in spent)
    best = max((count for count in _ends(graph) if count <= affordable), default=0)
    return tuple(dict.fromkeys(node.name for node in graph.nodes[:best]))


def blocks(graph: Graph) -> list[list[str]]:
    """Return the layers with weights in groups, divided at each tensor that all data pass through."""
    groups = []
    for first, last in pairwise([0, *_ends(graph), len(graph.nodes)]):
        names = dict.fromkeys(node.name for node in graph.nodes[first:last])
        if learned := [name for name in names if graph.variables[name]]:
            groups.append(learned)
    return groups


def freeze(model: keras.Model, layers: Collection[str]) -> None:
    """Make some layers untrainable, so that no adaptation changes them; leave others unchanged."""
    for layer in model.layers:
        if layer.name in layers:
            layer.trainable = False


def split(graph: Graph, base: Collection[str]) -> tuple[Graph, Graph]:
    """Return the calls of the layers `base`, and the remaining calls.

    The second graph's inputs are the first one's outputs, in order.
    """
    first = tuple(node for node in graph.nodes if node.name in base)
    rest = tuple(node for node in graph.nodes if node.name not in base)
    passed = tuple(_passed(graph, first, rest))
    names = {tensor: graph.inputs.get(tensor, f"shared_{number}") for number, tensor in enumerate(passed)}
    return (
        dataclasses.replace(graph, nodes=first, outputs=passed),
        dataclasses.replace(graph, nodes=rest, inputs=names),
    )


def _ends(graph: Graph) -> Iterator[int]:
    """Yield the numbers of initial calls that can be a base: they pass on a single learned tensor."""
    learned: set[int] = set()
    for node in graph.nodes:
        if graph.variables[node.name] or not learned.isdisjoint(node.inputs):
            learned.add(node.output)
    return (count for count, needed in divisions(graph) if len(needed & learned) == 1)


def _passed(graph: Graph, first: tuple[Node, ...], rest: tuple[Node, ...]) -> Iterator[int]:
    """Yield the tensors that the rest reads but does not compute, in order of computation."""
    needed = {tensor for node in rest for tensor in node.inputs} | set(graph.outputs)
    made = [*graph.inputs, *(node.output for node in first)]
    yield from (tensor for tensor in made if tensor in needed)
