"""The depth of a network: residual blocks that can be removed."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import keras

from executors.structure.analysis import Channels, Structure
from executors.structure.graph import Graph, Node

#: The channels of a removed tensor.
_NONE: Final = Channels(0, {})


@dataclass(frozen=True)
class ResidualBlock:
    """A branch of calls from a tensor to a sum with that tensor, with no other readers.

    Attributes:
        name: Name of the call that adds.
        output: Index of the tensor with the sum.
        skip: Index of the tensor that bypasses the block.
        layers: The block's layers, the adding one last.
    """

    name: str
    output: int
    skip: int
    layers: tuple[str, ...]


def residual_blocks(graph: Graph) -> list[ResidualBlock]:
    """Return the blocks that can be removed without changing other tensors' shapes, in order."""
    made_at = {node.output: place for place, node in enumerate(graph.nodes)}
    return [
        block
        for place, node in enumerate(graph.nodes)
        if isinstance(node.layer, keras.layers.Add) and len(node.inputs) == 2
        for skip, made in (node.inputs, node.inputs[::-1])
        if (block := _block(graph, graph.nodes[made_at.get(skip, -1) + 1 : place], node, skip, made))
    ]


def removable_blocks(structure: Structure) -> list[ResidualBlock]:
    """Return the removable residual blocks of a network: those without layers that must stay."""
    blocks = residual_blocks(structure.graph)
    return [block for block in blocks if structure.staying.isdisjoint(block.layers)]


def remove_blocks(structure: Structure, blocks: Iterable[ResidualBlock]) -> Structure:
    """Return the structure of the network without these blocks.

    Groups keep their names; groups that only occur inside the blocks disappear. `narrow` makes the model.
    """
    graph = structure.graph.without({block.output: block.skip for block in blocks})
    groups = {}
    for name, group in structure.groups.items():
        slots = tuple(slot for slot in group.slots if slot.layer in graph.layers)
        if slots:
            groups[name] = replace(group, slots=slots)
    there = {*graph.inputs, *(node.output for node in graph.nodes)}
    channels = (own if tensor in there else _NONE for tensor, own in enumerate(structure.channels))
    return replace(structure, graph=graph, groups=groups, channels=tuple(channels))


def remove_named_blocks(structure: Structure, names: Collection[str]) -> Structure:
    """Return the structure without the blocks with these names; the same one if it has none of them."""
    blocks = [block for block in residual_blocks(structure.graph) if block.name in names] if names else []
    return remove_blocks(structure, blocks) if blocks else structure


def _block(graph: Graph, between: Sequence[Node], total: Node, skip: int, made: int) -> ResidualBlock | None:
    """Return the block between a tensor and the addend of a sum, or None.

    A sum that is an output is not a block, because outputs are named after the layers that make them.
    """
    if total.output in graph.outputs:
        return None
    if graph.shapes[skip] != graph.shapes[made] or graph.shapes[skip] != graph.shapes[total.output]:
        return None
    follows = {skip}
    for node in between:
        if not follows.isdisjoint(node.inputs):
            follows.add(node.output)
    needed, inside = {made}, []
    for node in reversed(between):
        if node.output in needed and node.output in follows:
            inside.append(node)
            needed.update(node.inputs)
    writes = {node.output for node in inside}
    serves_others = any(
        tensor in graph.outputs or any(reader not in (*inside, total) for reader in graph.consumers[tensor])
        for tensor in writes
    )
    layers = tuple(dict.fromkeys(node.name for node in (*reversed(inside), total)))
    if made not in writes or serves_others or not any(graph.variables[name] for name in layers):
        return None
    return ResidualBlock(total.name, total.output, skip, layers)
