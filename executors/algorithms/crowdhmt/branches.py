"""The branches of a block that end in a sum."""

from collections.abc import Sequence
from dataclasses import dataclass

import keras

from executors.structure.graph import Graph, Node


@dataclass(frozen=True)
class Branch:
    """The calls between a tensor and one of the two addends of a sum.

    Attributes:
        start: The tensor from which both addends are computed.
        nodes: The calls that compute the addend, its own last.
    """

    start: int
    nodes: tuple[Node, ...]


def branches(graph: Graph) -> list[Branch]:
    """Return the longer branch of each sum of two tensors, if nothing else reads what it computes."""
    places = dict.fromkeys(graph.inputs, -1)
    places |= {node.output: place for place, node in enumerate(graph.nodes)}
    separate = []
    for total in graph.nodes:
        if isinstance(total.layer, keras.layers.Add) and len(total.inputs) == 2:
            behind = [_ancestors(graph.nodes, tensor) for tensor in total.inputs]
            common = behind[0] & behind[1]
            start = max(common, key=places.__getitem__)
            own = max((sorted(places[one] for one in each - common) for each in behind), key=len)
            branch = Branch(start, tuple(graph.nodes[place] for place in own))
            if own and _is_separate(branch, total, graph):
                separate.append(branch)
    return separate


def _ancestors(nodes: Sequence[Node], tensor: int) -> set[int]:
    """Return the tensors from which a tensor is computed, and itself."""
    needed = {tensor}
    for node in reversed(nodes):
        if node.output in needed:
            needed.update(node.inputs)
    return needed


def _is_separate(branch: Branch, total: Node, graph: Graph) -> bool:
    """Check whether a branch reads only its start, and only its sum reads it."""
    inside = {node.output for node in branch.nodes}
    readers = {*branch.nodes, total}
    return all(
        {branch.start, *inside}.issuperset(node.inputs)
        and readers.issuperset(graph.consumers[node.output])
        and node.output not in graph.outputs
        for node in branch.nodes
    )
