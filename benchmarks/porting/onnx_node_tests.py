"""ONNX's tests of its operators, as networks that can be read.

A node test is a graph of a single node whose tensors are all inputs. A network has a free batch, and its
parameters are stored in the file. Tests are therefore changed as follows, and in no other way:

- Inputs that are parameters of a network, such as weights, axes and shapes, are stored (`_DATA` lists the
  others). Operators that combine tensors are tested with all of them as inputs, and with each as the only
  one. Factors that are vectors are stored, as ONNX has no products of vectors for each example. Masks,
  angles and addends with an entry for each example are data.
- The first axis of the data is the batch for operators that have one by definition (`_WITH_BATCH`). All other
  data get a batch of one example in front: axes that are counted from the front are moved by one, and tensors
  of fewer axes get axes of size 1 where ONNX adds them itself.
- Truth values are made from integers by a `Cast`, since networks have numbers as inputs.
- The mean and deviation of a layer normalization, which only training reads, are no outputs.
- A product with a stored weight is added, since a network without weights is refused.
- Tests for versions before 7 are run as version 7, where the operator is still the same.

Outputs are compared with the expected ones within the tolerances of the tests; types of 16 bits within their
rounding, because they are computed in float32.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from warnings import catch_warnings, simplefilter

import keras
import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, defs, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

from executors.sources.onnx.batch import Array, BatchDependent
from executors.sources.onnx.folding import folded
from executors.sources.onnx.loading import read_onnx
from mistify.errors import MistifyError

_REDUCTIONS: Final = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

#: Operator -> its inputs that are data of a network; all inputs, for operators that are not listed.
_DATA: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(
        (
            "BatchNormalization", "Clip", "Conv", "ConvTranspose", "CumSum", "Dropout", "Expand", "Gather",
            "Gemm", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "OneHot", "PRelu",
            "Pad", "RMSNormalization", "Reshape", "Resize", "STFT", "Slice", "Split", "Squeeze", "Tile",
            "Unsqueeze", "Upsample", *_REDUCTIONS,
        ),
        (0,),
    ),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), (0, 5, 6)),
    "Attention": (0, 1, 2, 4, 5, 6),
    "RotaryEmbedding": (0, 3),
}  # fmt: skip

#: Operator -> its inputs that are data if they have an entry for each example, and the number of their axes.
_OF_EXAMPLES: Final[Mapping[str, Mapping[int, int]]] = {
    "Attention": {3: 4}, "Gemm": {2: 2}, "RotaryEmbedding": {1: 3, 2: 3},
}  # fmt: skip

#: Operators that combine two tensors of equal importance.
_COMBINING: Final = frozenset([
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "MatMul", "Max",
    "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Xor",
])  # fmt: skip

#: Operators whose data have a batch by definition.
_WITH_BATCH: Final = frozenset([
    "Attention", "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "Flatten",
    "GRU", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization",
    "LRN", "LSTM", "STFT", "MaxPool", "RNN", "Resize", "RotaryEmbedding", "SpaceToDepth", "Upsample",
])  # fmt: skip

#: Operator -> default of its attribute `axis`, if it counts from the front.
_DEFAULT_AXIS: Final[Mapping[str, int]] = {
    "ArgMax": 0, "ArgMin": 0, "Gather": 0, "GatherElements": 0, "Split": 0,
}  # fmt: skip

#: Operator -> its input that lists axes.
_AXES: Final[Mapping[str, int]] = {
    **dict.fromkeys(_REDUCTIONS, 1), "CumSum": 1, "Pad": 3, "Slice": 3, "Squeeze": 1, "Unsqueeze": 1,
}  # fmt: skip

#: Type -> largest error of a rounding.
_ROUNDING: Final[Mapping[str, float]] = {"bfloat16": 2**-8, "float16": 2**-11}

#: Operator -> how often its expected outputs were rounded, if it is computed in several steps.
_ROUNDED: Final[Mapping[str, int]] = {"Attention": 4}

_OLDEST: Final = 7

#: The letter of the batch in equations of `Einsum`, which no test uses.
_BATCH: Final = "N"


@dataclass(frozen=True)
class NodeTest:
    """A node test of ONNX.

    Attributes:
        name: Such as `abs`.
        operator: The type of its node.
        sets: Inputs and expected outputs.
    """

    name: str
    operator: str
    model: ModelProto
    sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float


@dataclass(frozen=True)
class _Case:
    """A network made from a node test, with its inputs by name and its first outputs in order."""

    model: ModelProto
    feed: Mapping[str, Array]
    expected: Sequence[Array]


@cache
def node_tests() -> Mapping[str, Sequence[NodeTest]]:
    """Return the tests of single nodes by operator, without those of other domains."""
    with catch_warnings():
        simplefilter("ignore")  # of overflows, which some tests are about
        cases = load_model_tests(kind="node")
    tests: dict[str, list[NodeTest]] = {}
    for case in sorted(cases, key=lambda case: case.name):
        nodes, name = case.model.graph.node, case.name.removeprefix("test_")
        if len(nodes) == 1 and not nodes[0].domain and "_expanded" not in name:
            test = NodeTest(name, nodes[0].op_type, case.model, case.data_sets, case.rtol, case.atol)
            tests.setdefault(test.operator, []).append(test)
    return tests


def refusal_of(test: NodeTest) -> str:
    """Read and run a test as a network; return the error if it is refused, and an empty text if it passes.

    Raises:
        AssertionError: An output differs from the expected one.
    """
    with TemporaryDirectory() as directory:
        path = Path(directory) / "net.onnx"
        for inputs, expected in test.sets:
            for case in _cases(test, [_array(each) for each in inputs], [_array(each) for each in expected]):
                path.write_bytes(case.model.SerializeToString())
                try:
                    _check(test, path, case)
                except MistifyError as error:
                    return str(error)
    return ""


def check_on_constants(test: NodeTest) -> None:
    """Compute a test as a node whose inputs are all constants.

    Raises:
        AssertionError: An output differs from the expected one.
        UnsupportedNodeError: It cannot be computed.
    """
    node = test.model.graph.node[0]
    for inputs, expected in test.sets:
        remaining = iter(inputs)
        made = folded(
            node, [_array(next(remaining)) if name else None for name in node.input], _version(test)
        )
        outputs = [array for array, name in zip(made, node.output, strict=True) if name]
        for output, array in zip(outputs, map(_array, expected), strict=True):
            if isinstance(output, BatchDependent) or output.dtype != array.dtype:
                raise AssertionError(f"{test.name}: {output}; expected {array}")
            if array.dtype.kind in "OU":
                np.testing.assert_array_equal(output, array, test.name)
            else:
                _assert_close(test, output, array)


def _check(test: NodeTest, path: Path, case: _Case) -> None:
    model, interface, _ = read_onnx(path)
    dtypes = {each.name: each.dtype for each in model.inputs}
    fed = [
        case.feed[each.source].transpose(np.argsort(each.axes)).astype(dtypes[each.name])
        for each in interface.inputs
    ]
    made = keras.tree.flatten(model(fed, training=False))
    for output, array, expected in zip(interface.outputs, made, case.expected, strict=False):
        _assert_close(test, np.asarray(array).transpose(output.axes), expected)


def _assert_close(test: NodeTest, array: Array, expected: Array) -> None:
    rounding = _ROUNDING.get(expected.dtype.name, 0.0) * _ROUNDED.get(test.operator, 1)
    rtol = max(test.rtol if expected.dtype.name != "bfloat16" else 0.0, rounding)
    made, wanted = (each.astype(np.float64) for each in (array, expected))
    np.testing.assert_allclose(made, wanted, rtol=rtol, atol=test.atol, err_msg=test.name)


def _cases(test: NodeTest, inputs: Sequence[Array], expected: Sequence[Array]) -> Iterable[_Case]:
    node = test.model.graph.node[0]
    connected = [index for index, name in enumerate(node.input) if name]
    arrays = dict(zip((node.input[index] for index in connected), inputs, strict=True))
    for chosen in _chosen(test, connected, arrays):
        names = list(dict.fromkeys(node.input[index] for index in chosen if index in connected))
        yield _case(test, names, dict(arrays), expected)


def _chosen(test: NodeTest, connected: Sequence[int], arrays: Mapping[str, Array]) -> Iterable[Sequence[int]]:
    """Yield the inputs that are data, for each network that is made from a test."""
    if test.operator not in _COMBINING:
        ranks = _OF_EXAMPLES.get(test.operator, {})
        of_examples = (
            index
            for index, array in zip(connected, arrays.values(), strict=True)
            if array.ndim == ranks.get(index) and len(array) > 1
        )
        yield [*_DATA.get(test.operator, connected), *of_examples]
        return
    vectors = [array.ndim == 1 for array in arrays.values()] if test.operator == "MatMul" else []
    if all(vectors) and vectors:
        yield (0,)
        return
    for chosen in (connected, *((index,) for index in connected if len(connected) > 1)):
        if not any(vectors[index] for index in chosen if vectors):
            yield chosen


def _case(test: NodeTest, data: Sequence[str], arrays: dict[str, Array], expected: Sequence[Array]) -> _Case:
    node, nodes = NodeProto(), []
    node.CopyFrom(test.model.graph.node[0])
    if node.op_type == "LayerNormalization":
        del node.output[1:]
    if node.op_type not in _WITH_BATCH:
        _add_batch(node, data, arrays)
        expected = [array[None] for array in expected]
    batch = _batch_axis(node)
    examples = arrays[data[0]].shape[batch]
    infos: list[ValueInfoProto] = []
    feed = {}
    for name in data:
        array, source = arrays.pop(name), name
        if array.dtype == bool:
            source, array = f"{name}_number", array.astype(np.int32)
            nodes.append(helper.make_node("Cast", [source], [name], to=TensorProto.BOOL))
        shape: list[int | str] = [*array.shape]
        if node.op_type != "Resize":  # whose sizes include that of the batch
            shape[batch] = "n"
        infos.append(
            helper.make_tensor_value_info(source, helper.np_dtype_to_tensor_dtype(array.dtype), shape)
        )
        feed[source] = array
    infos.append(helper.make_tensor_value_info("own", TensorProto.FLOAT, ["n", 1]))
    nodes += [node, helper.make_node("MatMul", ["own", "weight"], ["product"])]
    weights = {**arrays, "weight": np.ones((1, 1), np.float32)}
    outputs = [each for each in test.model.graph.output if each.name in node.output]
    graph = helper.make_graph(
        nodes,
        "network",
        infos,
        [
            *(_without_shape(output) for output in outputs),
            helper.make_tensor_value_info("product", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", _version(test))],
        ir_version=test.model.ir_version,
    )
    return _Case(model, {**feed, "own": np.ones((examples, 1), np.float32)}, expected[: len(outputs)])


def _batch_axis(node: NodeProto) -> int:
    by_steps = node.op_type in ("GRU", "LSTM", "RNN") and not _attribute(node, "layout", 0)
    return 1 if by_steps else 0


def _version(test: NodeTest) -> int:
    version = int(test.model.opset_import[0].version)
    if version >= _OLDEST:
        return version
    same = defs.get_schema(test.operator, _OLDEST).since_version <= version
    return _OLDEST if same else version


def _without_shape(output: ValueInfoProto) -> ValueInfoProto:
    return helper.make_tensor_value_info(output.name, output.type.tensor_type.elem_type, None)


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def _attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    values = [helper.get_attribute_value(each) for each in node.attribute if each.name == name]
    return values[0] if values else default


def _set_attribute(node: NodeProto, name: str, value: Any) -> None:
    kept = [each for each in node.attribute if each.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def _add_batch(node: NodeProto, data: Sequence[str], arrays: dict[str, Array]) -> None:
    """Put a batch in front of the data, and count axes from behind it."""
    combined = arrays if node.op_type in _COMBINING else data
    rank = max(arrays[name].ndim for name in combined)
    if node.op_type in ("Expand", "Reshape", "Tile"):
        # A size of 0 in a reshape is that of the data: the batch.
        first = 0 if node.op_type == "Reshape" else 1
        arrays[node.input[1]] = np.array([first, *arrays[node.input[1]]])
    if node.op_type == "Expand":
        rank = max(rank, arrays[node.input[1]].size - 1)
    if node.op_type == "Einsum":
        _set_attribute(node, "equation", _with_batch(_attribute(node, "equation").decode()))
    for name in data:
        array = arrays[name]
        added = 0 if node.op_type == "Einsum" else rank - array.ndim
        arrays[name] = array.reshape(1, *[1] * added, *array.shape)
    axis = _attribute(node, "axis", _DEFAULT_AXIS.get(node.op_type))
    if axis is not None:
        _set_attribute(node, "axis", axis + 1 if axis >= 0 else axis)
    if node.op_type == "Transpose":
        order = _attribute(node, "perm", range(rank)[::-1])
        _set_attribute(node, "perm", [0, *(axis + 1 for axis in order)])
    if node.op_type in _AXES:
        _move_axes(node, arrays, rank)


def _with_batch(equation: str) -> str:
    """Return an equation of `Einsum` whose operands and result have a batch in front."""
    operands, arrow, result = equation.replace(" ", "").partition("->")
    if not arrow:
        result = "".join(
            sorted(letter for letter in operands if operands.count(letter) == 1 and letter.isalpha())
        )
    return f"{','.join(f'{_BATCH}{each}' for each in operands.split(','))}->{_BATCH}{result}"


def _move_axes(node: NodeProto, arrays: dict[str, Array], rank: int) -> None:
    """Count the axes that an operator lists from behind the batch, and list them if it omits them."""
    place = _AXES[node.op_type]
    reduces = node.op_type in _REDUCTIONS
    if listed := _attribute(node, "axes"):
        _set_attribute(node, "axes", [axis + 1 if axis >= 0 else axis for axis in listed])
        return
    name = node.input[place] if place < len(node.input) else ""
    axes = arrays[name] if name else np.arange(0)
    if not axes.size and not (reduces and _attribute(node, "noop_with_empty_axes", 0)):
        parts = {"Pad": 2, "Slice": 1}.get(node.op_type)
        axes = np.arange(arrays[node.input[1]].size // parts if parts else rank)
    if not name:
        node.input.extend([""] * (place + 1 - len(node.input)))
        node.input[place] = name = "axes"
    arrays[name] = np.where(axes >= 0, axes + 1, axes).astype(np.int64)
