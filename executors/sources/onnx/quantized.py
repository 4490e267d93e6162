"""The float network of a file with simulated quantization, and the ranges of its integers.

`QuantizeLinear` followed by `DequantizeLinear` rounds a tensor to multiples of a scale, and limits it to a
range. The network is read without both. But tools remove a ReLU whose result is quantized, because a range
that begins at zero limits it as well: the ReLU is restored, with a maximum of 6 if the range ends there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isclose
from pathlib import Path
from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from executors.inspection.errors import invalid
from executors.sources.contract import Range
from executors.sources.onnx.batch import Array
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.folding import folded
from executors.sources.onnx.graph import tensor_of, with_inner

_QUANTIZE: Final = "QuantizeLinear"
_DEQUANTIZE: Final = "DequantizeLinear"

#: A version in which the reference evaluator has both operators; earlier ones compute the same.
_EVALUATED: Final = 19

#: Operator -> number below which no result is.
_LEAST: Final[Mapping[str, float]] = {
    **dict.fromkeys(
        ["Abs", "Exp", "HardSigmoid", "ReduceL1", "ReduceL2", "ReduceSumSquare", "Relu", "Sigmoid", "Softmax",
         "Softplus", "Sqrt"],
        0.0,
    ),
    **dict.fromkeys(["Cos", "Erf", "Sin", "Softsign", "Tanh"], -1.0),
}  # fmt: skip

#: Operators whose results are entries of their first input, means of these, or zeros.
_KEEPING: Final = frozenset([
    "AveragePool", "Cast", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GlobalAveragePool",
    "GlobalMaxPool", "Identity", "MaxPool", "Pad", "ReduceMax", "ReduceMean", "ReduceMin", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
])  # fmt: skip

#: Operator -> lower bound of its results, from those of its inputs.
_COMBINED: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    **dict.fromkeys(["Add", "Sum"], sum),
    **dict.fromkeys(["Concat", "Min"], min),
    **dict.fromkeys(["Div", "Mul"], lambda bounds: 0.0 if min(bounds) >= 0 else -inf),
    "Max": max,
}

#: Operators that tools remove.
_ACTIVATIONS: Final = frozenset(["Clip", "Relu"])

#: Index of the zero point among the inputs of a quantization, and the exponent of a square.
_ZERO_POINT: Final = 2
_SQUARE: Final = 2

#: The least and the greatest scale of a range: with others, sums of integers vanish or overflow.
_STEPS: Final = (1e-30, 1e30)

#: Names of the bounds of a restored activation with a maximum.
_ZERO: Final = "restored_minimum_of_0"
_SIX: Final = "restored_maximum_of_6"


def without_quantization(path: Path, graph: GraphProto, version: int) -> dict[str, Range]:
    """Change a graph in place to compute without simulated quantization.

    Args:
        version: The version of the operator set.

    Returns:
        Tensor -> the range of its integers.

    Raises:
        MistifyError: INVALID_MODEL if the scales of quantized weights do not fit them, or if a tensor is
            dequantized by other scales or zero points than those by which it was quantized.
    """
    if not any(node.op_type in (_QUANTIZE, _DEQUANTIZE) for node in graph.node):
        return {}
    constants = _Constants(path, graph)
    _fold(path, graph, constants, version)
    walk = _Walk(graph, constants)
    nodes = [node for each in graph.node for node in walk.visited(each)]
    read = {name for node in with_inner(nodes) for name in node.input} | walk.outputs
    nodes = [node for node in nodes if node.op_type != _QUANTIZE or node.output[0] in read]
    del graph.node[:]
    graph.node.extend(nodes)
    for name, bound in ((_ZERO, 0), (_SIX, 6)):
        if name in read:
            graph.initializer.append(numpy_helper.from_array(np.array(bound, np.float32), name))
    return walk.ranges


class _Constants:
    """The constants of a graph, read when they are needed."""

    def __init__(self, path: Path, graph: GraphProto) -> None:
        self.path, self._graph = path, graph
        self._tensors = {weight.name: weight for weight in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self._tensors[node.output[0]] = node.attribute[0].t

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def get(self, name: str) -> Array | None:
        """Return a constant; None for other tensors."""
        tensor = self._tensors.get(name)
        return None if tensor is None else tensor_of(self.path, tensor)

    def add(self, name: str, array: Array) -> None:
        """Store a constant in the graph."""
        self._tensors[name] = self._graph.initializer.add()
        self._tensors[name].CopyFrom(numpy_helper.from_array(array, name))


def _fold(path: Path, graph: GraphProto, constants: _Constants, version: int) -> None:
    """Replace nodes that quantize or dequantize constants with their results."""
    for node in list(graph.node):
        read = [name for name in node.input if name]
        if node.op_type in (_QUANTIZE, _DEQUANTIZE) and all(name in constants for name in read):
            arguments = [constants.get(name) for name in node.input]
            try:
                (made,) = folded(node, arguments, max(version, _EVALUATED))
            except UnsupportedNodeError as error:
                raise invalid(
                    path,
                    f"node {node.op_type} {node.name[:100]}, which {error}",
                    "scales and zero points that fit the weights",
                    "export it again",
                ) from error
            constants.add(node.output[0], np.asarray(made))
            graph.node.remove(node)


class _Walk:
    """Visits nodes in order, and leaves the quantization of computed tensors out.

    Attributes:
        outputs: The outputs of the graph.
        ranges: Tensor -> the range of its integers.
    """

    def __init__(self, graph: GraphProto, constants: _Constants) -> None:
        self.outputs = {output.name for output in graph.output}
        self.ranges: dict[str, Range] = {}
        self._constants = constants
        self._inputs = {each.name for each in graph.input}
        self._quantized = {node.output[0]: node for node in graph.node if node.op_type == _QUANTIZE}
        self._readers: defaultdict[str, set[str]] = defaultdict(set)
        for node in with_inner(graph.node):
            for name in node.input:
                self._readers[name].add(node.op_type)
        self._same: dict[str, str] = {}
        self._restored: dict[str, str] = {}
        self._least: dict[str, float] = {}

    def visited(self, node: NodeProto) -> Iterator[NodeProto]:
        """Yield the node or what replaces it, reading the tensors that are left."""
        for inner in with_inner([node]):
            inner.input[:] = [self._same.get(name, name) for name in inner.input]
        quantizing = self._quantized.get(node.input[0]) if node.op_type == _DEQUANTIZE else None
        if quantizing is not None:
            self._check_inverse(node, quantizing)
            yield from self._dequantized(node, quantizing)
            return
        least = self._least_result(node)
        self._least.update(dict.fromkeys(node.output, least))
        yield node

    def _check_inverse(self, node: NodeProto, quantizing: NodeProto) -> None:
        """Refuse a node that returns multiples of another scale than its tensor was rounded to."""
        own, other = self._steps(node), self._steps(quantizing)
        along_axis = any(isinstance(each, np.ndarray) and each.size > 1 for each in own)
        if all(map(_alike, own, other)) and (not along_axis or _blocks(node) == _blocks(quantizing)):
            return
        raise invalid(
            self._constants.path,
            f"node {node.op_type} {node.name[:100]}, whose scale or zero point is another one than that of "
            f"node {quantizing.op_type} {quantizing.name[:100]}",
            "the same scale and zero point for both",
            "quantize the float file again",
        )

    def _steps(self, node: NodeProto) -> list[Array | str]:
        """Return the scale and the zero point of a node, or their names if they are computed."""
        names = [*node.input, ""][1 : _ZERO_POINT + 1]
        constants = [self._constants.get(name) if name else np.zeros(1) for name in names]
        return [name if array is None else array for name, array in zip(names, constants, strict=True)]

    def _dequantized(self, node: NodeProto, quantizing: NodeProto) -> Iterator[NodeProto]:
        """Yield what replaces a quantization and its inverse: nothing, or a restored activation."""
        source, made, limits = quantizing.input[0], node.output[0], self._range(quantizing)
        if limits is not None and limits[0] == 0 and source in self._inputs:
            self._least[source] = 0.0  # no activation of an input is removed
        if source in self._restored:
            source = self._restored[source]
        elif limits is not None and limits[0] == 0 and self._lacks_activation(source, made):
            self._restored[source] = made
            self._least[made] = 0.0
            self.ranges[made] = limits
            yield _activation(source, made, limits)
            return
        if limits is not None:
            self.ranges.setdefault(source, limits)
        if made in self.outputs:
            self.ranges.update({made: limits} if limits is not None else {})
            yield helper.make_node("Identity", [source], [made], name=node.name)
        self._same[made] = source

    def _lacks_activation(self, source: str, made: str) -> bool:
        """Check whether a tensor is only kept from being negative by its range."""
        follows = self._readers[made] <= _ACTIVATIONS and made not in self.outputs
        return not follows and self._least_entry(source) < 0

    def _range(self, quantizing: NodeProto) -> Range | None:
        """Return the range of a tensor's integers; None if it has several, or they are no integers."""
        scale = self._constants.get(quantizing.input[1])
        kind = next((each.i for each in quantizing.attribute if each.name == "output_dtype"), 0)
        zero: Array | None = np.zeros((), helper.tensor_dtype_to_np_dtype(kind) if kind else np.uint8)
        if len(quantizing.input) > _ZERO_POINT and quantizing.input[_ZERO_POINT]:
            zero = self._constants.get(quantizing.input[_ZERO_POINT])
        if scale is None or zero is None or scale.size != 1 or not np.issubdtype(zero.dtype, np.integer):
            return None
        step, at_zero, integers = float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]), np.iinfo(zero.dtype)
        if not _STEPS[0] < step < _STEPS[1]:
            return None
        return (integers.min - at_zero) * step, (integers.max - at_zero) * step

    def _least_entry(self, name: str) -> float:
        """Return a number below which no entry of a tensor is."""
        if name not in self._least:
            array = self._constants.get(name)
            known = array is not None and array.size > 0 and array.dtype.kind in "fiu"
            self._least[name] = float(array.min()) if array is not None and known else -inf
        return self._least[name]

    def _least_result(self, node: NodeProto) -> float:
        """Return a number below which no result of a node is."""
        kind = node.op_type
        if kind in _LEAST:
            return _LEAST[kind]
        if kind in _KEEPING:
            return min(self._least_entry(node.input[0]), 0.0)
        if kind == "Pow":
            exponent = self._constants.get(node.input[1])
            return 0.0 if exponent is not None and np.all(exponent == _SQUARE) else -inf
        if kind == "Clip" and len(node.input) > 1:
            return max(map(self._least_entry, node.input[:2]))
        if kind in _COMBINED:
            return _COMBINED[kind]([self._least_entry(name) for name in node.input])
        return -inf


def _alike(one: Array | str, other: Array | str) -> bool:
    """Check whether two scales or zero points are equal; one that is computed equals only itself."""
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and one == other
    flat = [each.reshape(-1).astype(float) for each in (one, other)]
    several = {each.size for each in flat} - {1}
    first, second = flat
    return len(several) <= 1 and bool(np.all((first == second) | (np.isnan(first) & np.isnan(second))))


def _blocks(node: NodeProto) -> tuple[int, int]:
    """Return the axis along which a node has several scales, and the number of entries for each of them."""
    options = {each.name: each.i for each in node.attribute}
    return options.get("axis", 1), options.get("block_size", 0)


def _activation(source: str, made: str, limits: Range) -> NodeProto:
    """Return a ReLU, with a maximum of 6 if a range ends there; the source has the name of its result."""
    if isclose(limits[1], 6.0, rel_tol=1e-5):
        return helper.make_node("Clip", [source, _ZERO, _SIX], [made], name=source)
    return helper.make_node("Relu", [source], [made], name=source)
