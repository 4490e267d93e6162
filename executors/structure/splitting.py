"""Dividing a model into first layers that several networks share, and what each does by itself (paper 6)."""

import dataclasses
from collections.abc import Collection, Iterator
from itertools import pairwise

import keras

from executors.structure.analysis import Structure
from executors.structure.graph import Graph, Node


def shareable_base(structure: Structure, most: float) -> tuple[str, ...]:
    """The layers from the inputs on that can be shared: as many as stay below a number of multiply-adds.

    They end where a single tensor goes on to the rest, beside inputs and what follows from inputs without any
    weights, such as masks.

    Args:
        structure: Of the model.
        most: Multiply-adds.

    Returns:
        The names of the layers in the graph, none where the first of them is beyond that.
    """
    graph = structure.graph
    costs = {layer.output: layer.multiply_adds for layer in structure.network().layers}
    spent, best = 0, 0
    for count, node in enumerate(graph.nodes[:-1], start=1):
        spent += costs[node.output]
        if spent > most:
            break
        if _ends_base(graph, count):
            best = count
    return tuple(dict.fromkeys(node.name for node in graph.nodes[:best]))


def blocks(graph: Graph) -> list[list[str]]:
    """The layers with weights between two places where all goes through one tensor, from the inputs on."""
    ends = [count for count in range(1, len(graph.nodes)) if _ends_base(graph, count)]
    found = []
    for first, last in pairwise([0, *ends, len(graph.nodes)]):
        names = dict.fromkeys(node.name for node in graph.nodes[first:last])
        if learned := [name for name in names if graph.variables[name]]:
            found.append(learned)
    return found


def freeze(model: keras.Model, layers: Collection[str]) -> None:
    """Make some layers untrainable, so that no adaptation changes them. Those that are already stay so."""
    for layer in model.layers:
        if layer.name in layers:
            layer.trainable = False


def split(graph: Graph, base: Collection[str]) -> tuple[Graph, Graph]:
    """The calls of the layers `base`, and the other ones.

    The second graph's inputs are the first one's outputs, in their order.
    """
    first = tuple(node for node in graph.nodes if node.name in base)
    rest = tuple(node for node in graph.nodes if node.name not in base)
    passed = tuple(_passed(graph, first, rest))
    names = {tensor: graph.inputs.get(tensor, f"shared_{number}") for number, tensor in enumerate(passed)}
    return (
        dataclasses.replace(graph, nodes=first, outputs=passed),
        dataclasses.replace(graph, nodes=rest, inputs=names),
    )


def _ends_base(graph: Graph, count: int) -> bool:
    """Whether one tensor of the first calls, and no layer, is all that the rest needs of them."""
    first, rest = graph.nodes[:count], graph.nodes[count:]
    if not {node.name for node in first}.isdisjoint(node.name for node in rest):
        return False
    learned: set[int] = set()
    for node in first:
        if graph.variables[node.name] or not learned.isdisjoint(node.inputs):
            learned.add(node.output)
    return sum(tensor in learned for tensor in _passed(graph, first, rest)) == 1


def _passed(graph: Graph, first: tuple[Node, ...], rest: tuple[Node, ...]) -> Iterator[int]:
    """The tensors that the rest needs and does not make itself, in the order in which they are made."""
    needed = {tensor for node in rest for tensor in node.inputs} | set(graph.outputs)
    made = [*graph.inputs, *(node.output for node in first)]
    yield from (tensor for tensor in made if tensor in needed)
