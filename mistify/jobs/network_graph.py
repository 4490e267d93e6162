"""The operators of a packaged network as a graph, with their costs and their errors from quantization."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: The operator of nodes that are inputs of the network.
INPUT: Final = "INPUT"

#: Number of operators that are named because the error grows most there.
_WORST: Final = 3


@dataclass(frozen=True)
class GraphNode:
    """An operator of a network, or one of its inputs, and what it writes.

    Attributes:
        operator: LiteRT's name, such as `CONV_2D`; `INPUT` for an input.
        index: Number of the operator in its graph of the file; None for an input.
        layer: Name of the layer that it was converted from, the first one if several are fused, or name of
            the input; empty if unknown.
        inputs: Positions of the nodes that it reads, in the tuple of nodes.
        shape: The output for one example; of several outputs, the first one.
        type: LiteRT's type of the output, such as `INT8`.
        output_bytes: Size of all outputs for one example.
        weight_type: LiteRT's type of the weights; empty without weights.
        weights: Number of stored weights, biases included. Weights of several operators count for the first.
        weight_bytes: Size of these weights.
        multiply_adds: For one example; None if they do not follow from the file, as for loops.
        milliseconds: Predicted time of this operator alone; None if it does not follow from the file.
        error: Root mean square of the difference between the output and that of the float32 network,
            relative to the latter's root mean square; None if it was not measured.
        output: Name of the network's output that it writes; empty for other nodes.
    """

    operator: str
    index: int | None
    layer: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    type: str
    output_bytes: int
    weight_type: str = ""
    weights: int = 0
    weight_bytes: int = 0
    multiply_adds: int | None = 0
    milliseconds: float | None = None
    error: float | None = None
    output: str = ""


@dataclass(frozen=True)
class NetworkGraph:
    """The inputs and operators of a packaged network, in execution order.

    Operators that only unpack stored weights are part of the operators that read them.

    Attributes:
        name: Name of the graph in the file.
        hardware: The profile that predicts times: `host`, `my-board@4-threads@int8`.
        nodes: Each one reads only earlier ones.
        examples: Number of validation examples behind the errors; 0 if no errors were measured.
    """

    name: str
    hardware: str
    nodes: tuple[GraphNode, ...]
    examples: int = 0


def error_growth(graph: NetworkGraph) -> Mapping[int, float]:
    """Return by how much the error of each node exceeds the largest error among its inputs.

    Nodes are left out if their error, or that of all their inputs, is unknown.

    Returns:
        Position of a node -> the growth, which is negative where an error fades.
    """
    grown: dict[int, float] = {}
    for position, node in enumerate(graph.nodes):
        before = [error for read in node.inputs if (error := graph.nodes[read].error) is not None]
        if node.error is not None and (before or not node.inputs):
            grown[position] = node.error - max(before, default=0.0)
    return grown


def worst_nodes(graph: NetworkGraph) -> list[int]:
    """Return the positions of the few nodes in which the error grows most, the worst first."""
    grown = error_growth(graph)
    positive = [position for position, growth in grown.items() if growth > 0]
    return sorted(positive, key=lambda position: -grown[position])[:_WORST]
