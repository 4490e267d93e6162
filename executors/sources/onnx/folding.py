"""Nodes whose inputs are constants, computed by ONNX's reference evaluator."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod
from typing import Any, Final

import numpy as np
from onnx import NodeProto, TypeProto, ValueInfoProto, helper

from executors.sources.errors import first_line
from executors.sources.onnx.batch import PROBES, Array, BatchDependent, for_probe, joined
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.evaluator import evaluator
from executors.sources.onnx.registry import Argument
from executors.sources.onnx.values import Merged, Value

#: Operators whose result is as large as their inputs broadcast to each other.
_BROADCAST: Final = frozenset([
    "Abs", "Add", "And", "BitShift", "Cast", "Ceil", "Clip", "Cos", "Div", "Equal", "Erf",
    "Exp", "Floor", "Greater", "GreaterOrEqual", "HardSigmoid", "Identity", "IsInf", "IsNaN", "Less",
    "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal",
    "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softmax", "Sqrt", "Sub", "Sum", "Tanh", "Trilu",
    "Where", "Xor",
])  # fmt: skip

#: Operators whose result is at most as large as their inputs together.
_SMALLER: Final = frozenset([
    "ArgMax", "ArgMin", "CastLike", "Compress", "Concat", "Constant", "CumSum", "DequantizeLinear", "Dropout",
    "Flatten", "NonZero", "QuantizeLinear", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Reshape",
    "ScatterElements", "ScatterND", "Size", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
])  # fmt: skip

#: Operators whose result may be far larger -> upper bound on its number of entries.
_BOUNDS: Final[Mapping[str, Callable[[Sequence[Array]], int]]] = {
    "ConstantOfShape": lambda arrays: _product(arrays[0]),
    "Expand": lambda arrays: arrays[0].size * _product(arrays[1]),
    "GatherElements": lambda arrays: arrays[1].size,
    "MatMul": lambda arrays: arrays[0].size * arrays[1].size // max(1, arrays[0].shape[-1]) ** 2,
    "OneHot": lambda arrays: arrays[0].size * _product(arrays[1]),
    "Pad": lambda arrays: prod(size + int(np.abs(arrays[1]).sum()) for size in arrays[0].shape),
    "Range": lambda arrays: ceil(abs((arrays[1].item() - arrays[0].item()) / arrays[2].item())),
    "Tile": lambda arrays: arrays[0].size * _product(arrays[1]),
}

FOLDED: Final = _BROADCAST | _SMALLER | {"Gather", "Shape"} | _BOUNDS.keys()

#: Largest number of entries of a result, unless its inputs have more.
_LARGEST: Final = 2**24

#: Largest number of entries of all results together, in addition to some for each weight of the file.
_LARGEST_TOTAL: Final = 2**25
_OF_EACH_WEIGHT: Final = 4


class Budget:
    """The number of entries that may still be computed for a file.

    Args:
        weights: The number of entries that the file stores.
    """

    def __init__(self, weights: int) -> None:
        self._most = self._left = _LARGEST_TOTAL + _OF_EACH_WEIGHT * weights

    def spend(self, results: Sequence[Array | BatchDependent]) -> None:
        """Count the entries of constants.

        Raises:
            UnsupportedNodeError: The file has used up its entries.
        """
        self._left -= sum(for_probe(each, 1).size for each in results)
        if self._left < 0:
            raise UnsupportedNodeError(
                f"makes constants of more than {self._most:,} entries, together with those before"
            )


def shape_of(value: Value | Merged, first: int = 0, last: int | None = None) -> Array | BatchDependent:
    """Return the shape of a tensor, or a range of it, as a constant that depends on the batch size."""
    shapes = [np.array(value.sizes(batch), np.int64)[first:last] for batch in PROBES]
    return joined((shapes[0], shapes[1]))


def folded(node: NodeProto, arguments: Sequence[Argument], version: int) -> list[Array | BatchDependent]:
    """Return the outputs of a node whose inputs are constants.

    Raises:
        UnsupportedNodeError: It is not supported on constants, fails, or would make a constant that is far
            larger than the file.
    """
    if node.op_type not in FOLDED:
        raise UnsupportedNodeError("is not supported on constants")
    if not any(isinstance(argument, BatchDependent) for argument in arguments):
        return list(_evaluated(node, arguments, version))
    results = [_evaluated(node, [for_probe(each, probe) for each in arguments], version) for probe in (0, 1)]
    return [joined(pair) for pair in zip(*results, strict=True)]


def _evaluated(node: NodeProto, arguments: Sequence[Any], version: int) -> Sequence[Array]:
    feed = {name: array for name, array in zip(node.input, arguments, strict=True) if name}
    try:
        entries = _entries(node, [array for array in arguments if array is not None])
        if entries > max(_LARGEST, 2 * sum(array.size for array in feed.values())):
            raise UnsupportedNodeError(
                f"makes a constant of {entries:,} entries; expected at most {_LARGEST:,}"
            )
        graph = helper.make_graph(
            [node],
            "node",
            [_anything(name) for name in feed],
            [_anything(name) for name in node.output if name],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
        results = iter(evaluator(model).run(None, feed))
    except UnsupportedNodeError:
        raise
    except Exception as error:  # the evaluator raises whatever numpy does
        raise UnsupportedNodeError(f"cannot be computed ({first_line(error)})") from error
    return [np.asarray(next(results)) if name else np.zeros(0) for name in node.output]


def _anything(name: str) -> ValueInfoProto:
    info = ValueInfoProto()
    info.name = name
    info.type.CopyFrom(TypeProto())
    return info


def _entries(node: NodeProto, arrays: Sequence[Array]) -> int:
    """Return an upper bound on the number of entries that a node makes."""
    kind = node.op_type
    if kind in _BOUNDS:
        return _BOUNDS[kind](arrays)
    if kind == "Gather":
        data, indices = arrays
        axis = next((each.i for each in node.attribute if each.name == "axis"), 0)
        return int(indices.size * data.size // max(1, data.shape[axis]))
    if kind in _BROADCAST:
        return prod(np.broadcast_shapes(*(array.shape for array in arrays)))
    return sum(array.size for array in arrays)


def _product(sizes: Array) -> int:
    return prod(abs(int(size)) for size in sizes.reshape(-1))
