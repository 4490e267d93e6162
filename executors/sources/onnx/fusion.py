"""Patterns of nodes that become a single layer, where exporters had no operator for it."""

from collections.abc import Callable, Mapping, Sequence
from math import isclose, sqrt
from typing import Final, NamedTuple

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from executors.sources.onnx.batch import Array


class Match(NamedTuple):
    """Nodes of a pattern, of which the last one makes its result, and the node that replaces them."""

    nodes: list[NodeProto]
    fused: NodeProto


class Surroundings:
    """Nodes with their makers, readers and constants.

    Args:
        weights: Name -> initializer.
        outputs: The names of the network's outputs, which have to stay.
    """

    def __init__(
        self, nodes: Sequence[NodeProto], weights: Mapping[str, Array], outputs: Sequence[str]
    ) -> None:
        self._makers = {name: node for node in nodes for name in node.output}
        self._weights = weights
        self._outputs = frozenset(outputs)
        self._readers: dict[str, list[NodeProto]] = {}
        for node in nodes:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def maker(self, name: str, *kinds: str) -> NodeProto | None:
        """Return the node that makes a tensor, if it is of one of these operators."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type in kinds else None

    def reader(self, node: NodeProto, *kinds: str) -> NodeProto | None:
        """Return the only reader of a node's output, if it is of one of these operators."""
        readers = self._readers.get(node.output[0], [])
        only = len(readers) == 1 and node.output[0] not in self._outputs
        return readers[0] if only and readers[0].op_type in kinds else None

    def scalar(self, name: str) -> float | None:
        """Return a constant with a single entry; None for other tensors."""
        array = self.constant(name)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None

    def is_scalar(self, name: str, expected: float) -> bool:
        """Check whether a tensor is a constant, apart from rounding by simulated quantization."""
        scalar = self.scalar(name)
        return scalar is not None and isclose(scalar, expected, rel_tol=1e-5)

    def constant(self, name: str) -> Array | None:
        """Return an initializer or the value of a `Constant` node; None for other tensors."""
        if name in self._weights:
            return self._weights[name]
        node = self.maker(name, "Constant")
        if node is None or node.attribute[0].name != "value":
            return None
        array: Array = numpy_helper.to_array(node.attribute[0].t)
        return array

    def other_input(self, node: NodeProto, name: str) -> str:
        """Return the input of a node that is not this one, of two."""
        return str(node.input[1] if node.input[0] == name else node.input[0])


def fused(
    nodes: Sequence[NodeProto], weights: Mapping[str, Array], outputs: Sequence[str]
) -> list[NodeProto]:
    """Return the nodes with every known pattern replaced by a single node."""
    around = Surroundings(nodes, weights, outputs)
    replaced: dict[str, NodeProto | None] = {}
    for node in nodes:
        pattern = _PATTERNS.get(node.op_type)
        match = pattern(node, around) if pattern is not None else None
        if match is not None:
            replaced.update(dict.fromkeys((part.output[0] for part in match.nodes), None))
            replaced[match.nodes[-1].output[0]] = match.fused
    kept = (replaced.get(node.output[0], node) for node in nodes)
    return [node for node in kept if node is not None]


def _gelu(erf: NodeProto, around: Surroundings) -> Match | None:
    """Find `x * 0.5 * (1 + erf(x / sqrt(2)))`, with the half applied anywhere."""
    scaled = around.maker(erf.input[0], "Div", "Mul")
    added = around.reader(erf, "Add")
    product = None if added is None else around.reader(added, "Mul")
    if scaled is None or added is None or product is None:
        return None
    factor = around.scalar(scaled.input[1]) or 0.0
    expected = sqrt(2) if scaled.op_type == "Div" else sqrt(0.5)
    if abs(factor - expected) > 1e-4 or not around.is_scalar(around.other_input(added, erf.output[0]), 1):
        return None
    data, factor_name = scaled.input[0], around.other_input(product, added.output[0])
    half = around.maker(factor_name, "Mul")
    if half is not None and data in half.input and around.is_scalar(around.other_input(half, data), 0.5):
        alone = around.reader(half, "Mul") is product
        return _match("Gelu", [scaled, erf, added, half, product], [data]) if alone else None
    last = around.reader(product, "Mul")
    if last is None:
        return None
    halved = around.is_scalar(around.other_input(last, product.output[0]), 0.5)
    whole = (factor_name == data and halved) or (around.is_scalar(factor_name, 0.5) and data in last.input)
    return _match("Gelu", [scaled, erf, added, product, last], [data]) if whole else None


def _layer_norm(root: NodeProto, around: Surroundings) -> Match | None:
    """Find `(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon)`, a scale and an offset."""
    added = around.maker(root.input[0], "Add")
    variance = None if added is None else around.maker(added.input[0], "ReduceMean")
    power = None if variance is None else around.maker(variance.input[0], "Pow")
    centred = None if power is None else around.maker(power.input[0], "Sub")
    mean = None if centred is None else around.maker(centred.input[1], "ReduceMean")
    divided = around.reader(root, "Div")
    scaled = None if divided is None else around.reader(divided, "Mul")
    if added is None or variance is None or power is None or centred is None or mean is None:
        return None
    if divided is None or scaled is None or not (_over_last(mean, around) and _over_last(variance, around)):
        return None
    epsilon, gamma = (
        around.scalar(added.input[1]),
        around.constant(around.other_input(scaled, divided.output[0])),
    )
    right = mean.input[0] == centred.input[0] and around.is_scalar(power.input[1], 2)
    if epsilon is None or gamma is None or gamma.ndim != 1 or not right:
        return None
    data, parts = centred.input[0], [mean, centred, power, variance, added, root, divided, scaled]
    shifted = around.reader(scaled, "Add")
    offset = None if shifted is None else around.other_input(shifted, scaled.output[0])
    inputs = [data, around.other_input(scaled, divided.output[0])]
    if shifted is not None and offset is not None and _is_vector(around.constant(offset), gamma.size):
        parts, inputs = [*parts, shifted], [*inputs, offset]
    return _match("LayerNormalization", parts, inputs, axis=-1, epsilon=epsilon)


def _defined_shares(check: NodeProto, around: Surroundings) -> Match | None:
    """Find a softmax whose shares PyTorch replaces by zeros where a query may read no key."""
    softmax, chosen = around.maker(check.input[0], "Softmax"), around.reader(check, "Where")
    if softmax is None or chosen is None or chosen.input[2] != check.input[0]:
        return None
    zero = around.is_scalar(chosen.input[1], 0)
    return _match("Identity", [check, chosen], [check.input[0]]) if zero else None


def _over_last(mean: NodeProto, around: Surroundings) -> bool:
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in mean.attribute}
    axes = around.constant(mean.input[1]) if len(mean.input) > 1 else attributes.get("axes")
    return axes is not None and list(np.reshape(axes, -1)) == [-1] and attributes.get("keepdims", 1) == 1


def _is_vector(array: Array | None, size: int) -> bool:
    return array is not None and array.shape == (size,)


def _match(kind: str, parts: list[NodeProto], inputs: list[str], **attributes: object) -> Match:
    last = parts[-1]
    made = helper.make_node(kind, inputs, [last.output[0]], name=last.name, **attributes)
    made.metadata_props.extend(last.metadata_props)
    return Match(parts, made)


_PATTERNS: Final[Mapping[str, Callable[[NodeProto, Surroundings], Match | None]]] = {
    "Erf": _gelu,
    "IsNaN": _defined_shares,
    "Sqrt": _layer_norm,
}
