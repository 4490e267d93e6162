"""The operators of a packaged network as a graph, with costs read from its file."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

from mistify.costs.layer import LayerCost
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import HardwareProfile
from mistify.jobs.network_graph import INPUT, GraphNode, NetworkGraph
from mistify.tflite.memory import ELEMENT_BYTES
from mistify_server.worker.packaging.layers import milliseconds_alone
from mistify_server.worker.packaging.tflite.costs import is_opaque, operator_costs
from mistify_server.worker.packaging.tflite.flatbuffer import (
    FlatbufferTensor,
    Operator,
    SignatureGraph,
    graph_of,
    operators,
)
from mistify_server.worker.packaging.tflite.layer_names import are_repeated, layer_at
from mistify_server.worker.packaging.tflite.runner import Example
from mistify_server.worker.packaging.tflite.tensor_errors import TensorErrors

#: Maximum number of operators of a graph: a server keeps it with the goal, and shows it on a page.
MOST_OPERATORS: Final = 2_000

#: Significant digits of predicted times and errors.
_DIGITS: Final = 4


def network_graph(
    network: bytes,
    signature: str,
    layers: Sequence[str],
    profile: HardwareProfile,
    errors: TensorErrors,
) -> NetworkGraph | None:
    """Return the operators that a signature runs; None if there are more than `MOST_OPERATORS`.

    Args:
        network: A `.tflite`.
        signature: Name of the signature.
        layers: Names of the layers from which it was converted, in order; empty without layers.
        profile: The hardware profile that predicts times.
        errors: The errors of its tensors from quantization, as far as they were measured.

    Raises:
        LiteRtError: LiteRT cannot run the network.
    """
    graph = graph_of(network, signature)
    in_order = list(operators(network, graph.number))
    if len(in_order) > MOST_OPERATORS:
        return None
    shapes = Example(network, signature, graph.number).shapes()
    known = {index: tuple(sizes) for index, sizes in shapes.items()}
    elements = tuple(prod(known.get(index, (0,))) for index in range(max(known) + 1))
    names = (tensor.name for operator in in_order for tensor in (*operator.inputs, *operator.outputs))
    walk = _Walk(
        graph,
        known,
        layers,
        profile,
        NetworkCost((), elements, (), ()),
        errors.by_tensor,
        are_repeated(names, layers),
    )
    nodes = [*walk.inputs(in_order), *walk.operators(in_order)]
    return NetworkGraph(graph.name, profile.name, tuple(nodes), errors.examples)


@dataclass
class _Walk:
    """A walk through the operators of a graph in execution order.

    Attributes:
        shapes: Index of a tensor -> its shape for one example.
        tensors: The sizes of the tensors, for predicting times.
        repeated: Whether names of tensors have suffixes that those of the layers do not have.
        writers: Index of a tensor -> position of the node that writes it.
        unpacked: Index of a tensor -> the stored weights that it is unpacked from.
        counted: Weights of earlier operators, by index.
    """

    graph: SignatureGraph
    shapes: Mapping[int, tuple[int, ...]]
    layers: Sequence[str]
    profile: HardwareProfile
    tensors: NetworkCost
    errors: Mapping[int, float]
    repeated: bool
    writers: dict[int, int] = field(default_factory=dict)
    unpacked: dict[int, FlatbufferTensor] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)

    def inputs(self, in_order: Iterable[Operator]) -> Iterator[GraphNode]:
        """Yield the inputs that some operator reads."""
        read = {tensor.index: tensor for operator in in_order for tensor in operator.inputs}
        for index, name in self.graph.inputs.items():
            if index in read:
                self.writers[index] = len(self.writers)
                tensor = replace(read[index], shape=self.shapes[index])
                yield GraphNode(
                    INPUT,
                    None,
                    name,
                    (),
                    tensor.shape,
                    tensor.type,
                    _bytes(tensor),
                    error=self._error(index),
                    output=self.graph.outputs.get(index, ""),
                )

    def operators(self, in_order: Iterable[Operator]) -> Iterator[GraphNode]:
        """Yield the operators, except those that unpack weights."""
        counted: set[int] = set()
        position = len(self.writers)
        for number, of_any_batch in enumerate(in_order):
            operator = self._reading_weights(of_any_batch.shaped(self.shapes))
            if operator.name == "DEQUANTIZE" and operator.inputs[0].is_constant:
                self.unpacked[operator.outputs[0].index] = operator.inputs[0]
            elif operator.outputs:
                costs = list(operator_costs(number, operator, counted, self.writers.keys()))
                yield self._node(number, operator, costs)
                self.writers.update(dict.fromkeys((tensor.index for tensor in operator.outputs), position))
                position += 1

    def _reading_weights(self, operator: Operator) -> Operator:
        """Return an operator that reads stored weights instead of their unpacked form."""
        inputs = tuple(self.unpacked.get(tensor.index, tensor) for tensor in operator.inputs)
        return replace(operator, inputs=inputs)

    def _node(self, number: int, operator: Operator, costs: Collection[LayerCost]) -> GraphNode:
        weights = [tensor for tensor in operator.inputs if _is_weight(tensor)]
        own = [tensor for tensor in weights if tensor.index not in self.counted]
        self.counted.update(tensor.index for tensor in own)
        output, opaque = operator.outputs[0], is_opaque(operator)
        reads = (self.writers[tensor.index] for tensor in operator.inputs if tensor.index in self.writers)
        return GraphNode(
            operator=operator.name,
            index=number,
            layer=self._layer(operator),
            inputs=tuple(dict.fromkeys(reads)),
            shape=output.shape,
            type=output.type,
            output_bytes=sum(map(_bytes, operator.outputs)),
            weight_type=max(weights, key=_bytes).type if weights else "",
            weights=sum(prod(tensor.shape) for tensor in own),
            weight_bytes=sum(map(_bytes, own)),
            multiply_adds=None if opaque else sum(cost.multiply_adds for cost in costs),
            milliseconds=None if opaque else self._milliseconds(costs),
            error=self._error(output.index),
            output=next(filter(None, (self.graph.outputs.get(each.index) for each in operator.outputs)), ""),
        )

    def _milliseconds(self, costs: Iterable[LayerCost]) -> float:
        return _rounded(sum(milliseconds_alone(cost, self.tensors, self.profile) for cost in costs))

    def _error(self, tensor: int) -> float | None:
        return _rounded(self.errors[tensor]) if tensor in self.errors else None

    def _layer(self, operator: Operator) -> str:
        """Return the first of the layers from which an operator was converted; empty if unknown.

        An output of the network has the output's name, and its weights have that of the layer.
        """
        for tensor in (operator.outputs[0], *(each for each in operator.inputs if each.is_constant)):
            parts = tensor.name.split(";")
            fused = (layer_at(part, self.layers, repeated=self.repeated) for part in parts)
            names = [name for name in fused if name is not None]
            if names:
                return min(names, key=self.layers.index)
        return ""


def _is_weight(tensor: FlatbufferTensor) -> bool:
    """Check whether a tensor has stored weights: numbers, or integers with a scale, as biases of int8 are."""
    return tensor.content is not None or (tensor.is_constant and tensor.scale > 0)


def _bytes(tensor: FlatbufferTensor) -> int:
    return ELEMENT_BYTES.get(tensor.type, 0) * prod(tensor.shape)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
