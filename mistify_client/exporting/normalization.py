"""Layer norms over the last axis, which LiteRT's converter writes as up to ten operators.

It computes the mean and the variance of the entries, and adds their products with the factor
`scale / sqrt(variance + epsilon)`: `x * factor + (offset - mean * factor)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from mistify_client.exporting.network import Network, Operator
from mistify_client.exporting.values import Array

#: The operator that takes their place, which LiteRT does not have.
LAYER_NORM: Final = "LAYER_NORMALIZATION"


@dataclass(frozen=True)
class LayerNorm:
    """The attributes of a layer norm.

    Attributes:
        scale: A factor for each entry of the last axis.
        offset: An addend for each of these; None for none.
    """

    epsilon: float
    scale: Array
    offset: Array | None


def with_layer_norms(network: Network) -> Network:
    """Return a network with a single operator for each layer norm."""
    graph = _Graph(network)
    replaced: dict[int, Operator | None] = {}
    for root in network.operators:
        try:
            parts, made = _norm(graph, root)
        except (LookupError, ValueError):  # other operators, or other numbers of them
            continue
        replaced.update(dict.fromkeys((part.outputs[0] for part in parts), None))
        replaced[made.outputs[0]] = made
    kept = (replaced.get(one.outputs[0], one) if one.outputs else one for one in network.operators)
    return replace(network, operators=[one for one in kept if one is not None])


class _Graph:
    """Operators by the tensors that they make and read; methods raise LookupError for other ones."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._makers = {number: one for one in network.operators for number in one.outputs}
        self._readers: dict[int, list[Operator]] = {}
        for one in network.operators:
            for number in dict.fromkeys(one.inputs):
                self._readers.setdefault(number, []).append(one)
        self._outputs = frozenset(network.outputs.values())

    def maker(self, number: int, kind: str) -> Operator:
        """Return the operator that makes a tensor."""
        return _of_kind(self._makers[number], kind)

    def readers(self, made: Operator) -> Sequence[Operator]:
        """Return the operators that read the output of another one, which is no output of the network."""
        if made.outputs[0] in self._outputs:
            raise LookupError
        return self._readers[made.outputs[0]]

    def reader(self, made: Operator, kind: str) -> Operator:
        """Return the only operator that reads the output of another one."""
        readers = self.readers(made)
        return _of_kind(readers[0], kind if len(readers) == 1 else "")

    def constant(self, number: int) -> Array:
        """Return a constant."""
        return self.network.constants[number]

    def vector(self, number: int, size: int) -> Array:
        """Return a constant with an entry for each of the last axis."""
        array = self.constant(number)
        if array.size not in (1, size) or array.size != array.shape[-1:][0]:
            raise LookupError
        return np.broadcast_to(array.reshape(-1), (size,))

    def mean(self, number: int) -> Operator:
        """Return the operator that makes a tensor as a mean over the last axis of another one."""
        mean = self.maker(number, "MEAN")
        axes, rank = self.constant(mean.inputs[1]), len(self.network.shapes[mean.inputs[0]])
        if [int(axis) % rank for axis in axes.reshape(-1)] != [rank - 1] or not mean.options.keepDims:
            raise LookupError
        return mean


def _norm(graph: _Graph, root: Operator) -> tuple[list[Operator], Operator]:
    """Return the operators of a layer norm around the reciprocal root of its variance, and their replacement.

    Raises:
        LookupError: They are others.
    """
    added = graph.maker(_of_kind(root, "RSQRT").inputs[0], "ADD")
    variance = graph.mean(added.inputs[0])
    squares = graph.maker(variance.inputs[0], "SQUARED_DIFFERENCE")
    mean = graph.mean(squares.inputs[1])
    data = squares.inputs[0]
    size = graph.network.shapes[data][-1]
    if mean.inputs[0] != data or not isinstance(size, int) or graph.network.types[data] != "float32":
        raise LookupError
    parts, factor, scale = [mean, squares, variance, added, root], root, np.ones(size, np.float32)
    if len(graph.readers(root)) == 1:
        factor = graph.reader(root, "MUL")
        scale = graph.vector(_other_input(factor, root), size)
        parts.append(factor)
    (negated,) = (one for one in graph.readers(mean) if one is not squares)
    shift = graph.reader(_of_kind(negated, "NEG"), "MUL")
    (scaled,) = (one for one in graph.readers(factor) if one is not shift)
    last, addend, offset = graph.reader(_of_kind(scaled, "MUL"), "ADD"), shift, None
    parts += [negated, shift, scaled]
    if _other_input(last, scaled) != shift.outputs[0]:
        addend = graph.reader(shift, "ADD")
        offset = graph.vector(_other_input(addend, shift), size)
        parts.append(addend)
    right = _other_input(shift, negated) == _other_input(scaled, data) == factor.outputs[0]
    if not right or _other_input(last, scaled) != addend.outputs[0] or _has_activation([*parts, last]):
        raise LookupError
    epsilon = graph.constant(_other_input(added, variance)).item()
    norm = LayerNorm(epsilon, scale, offset)
    return parts, replace(last, kind=LAYER_NORM, inputs=(data,), options=norm)


def _of_kind(operator: Operator, kind: str) -> Operator:
    if operator.kind != kind:
        raise LookupError
    return operator


def _other_input(operator: Operator, known: Operator | int) -> int:
    """Return the second input of a binary operator of which one input is known.

    Args:
        known: The tensor, or the operator that makes it.

    Raises:
        LookupError: The operator does not read it.
    """
    number = known if isinstance(known, int) else known.outputs[0]
    first, second = operator.inputs
    if number not in operator.inputs:
        raise LookupError
    return second if number == first else first


def _has_activation(operators: Sequence[Operator]) -> bool:
    none = schema.ActivationFunctionType.NONE
    return any(getattr(one.options, "fusedActivationFunction", none) != none for one in operators)
