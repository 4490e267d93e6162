"""Translation of an ONNX graph into a functional Keras model."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import keras
from onnx import NodeProto

from executors.inspection.errors import invalid
from executors.sources.errors import first_line
from executors.sources.onnx.batch import Array, BatchDependent
from executors.sources.onnx.builder import Builder, count
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.folding import FOLDED, Budget, folded, shape_of
from executors.sources.onnx.fusion import fused
from executors.sources.onnx.graph import Graph, tensor_of, with_inner
from executors.sources.onnx.inputs import Input, constant_inputs, network_inputs
from executors.sources.onnx.merged import apart, divides, together
from executors.sources.onnx.merged_steps import for_each_step, treats_steps_as_examples
from executors.sources.onnx.names import usable
from executors.sources.onnx.registry import OPERATORS, Argument, Node
from executors.sources.onnx.values import Merged, Places, Value
from executors.structure import keras_internals
from executors.structure.signature import usable_input_name
from mistify.errors import MistifyError

#: Operators that the reader handles itself.
_OWN: Final = frozenset({"If", "Shape"})

#: Most entries of a tensor for each example.
_MOST_ENTRIES: Final = 2**28

_FREE: Final = "export the network with a free batch size"

_ADVICE: Final = "export the network without its postprocessing, or replace it before exporting"


@dataclass(frozen=True)
class Translation:
    """A Keras model with the same outputs as an ONNX graph.

    Attributes:
        inputs: The inputs, in the order of the model's.
        constants: Other inputs of the graph, which have fixed values.
        outputs: Name in ONNX -> value, in the order of the model's outputs.
        values: The tensors of the graph that are tensors of the model as well, in order.
    """

    model: keras.Model
    inputs: Sequence[Input]
    constants: Mapping[str, Array]
    outputs: Mapping[str, Value]
    values: Mapping[str, Value]


def translated(path: Path, graph: Graph, sizes: Mapping[str, Sequence[int]]) -> Translation:
    """Translate a graph.

    Args:
        sizes: Input -> its sizes without the batch, in ONNX's order, where the file leaves them free.

    Raises:
        MistifyError: INVALID_MODEL if it has an operator or an option that is not supported.
    """
    _check_operators(path, graph)
    inputs = network_inputs(path, graph, sizes)
    constants = constant_inputs(path, graph, sizes)
    outputs = [output.name for output in graph.proto.output]
    reserved = [*(usable_input_name(each.name) for each in inputs), *map(usable, outputs)]
    builder = Builder(reserved, next((each.batch for each in inputs), None))
    values: dict[str, Argument] = {**graph.weights, **constants, **{each.name: each.value for each in inputs}}
    nodes = fused(graph.nodes, graph.weights, outputs)
    _Walk(path, graph, builder, values).visit(nodes)
    made = {name: values[name] for name in outputs}
    ranks = {each.value.rank for each in inputs if each.value.axes[-1] == 1 and each.value.rank > 2}
    results = {name: _output(path, builder, name, value, ranks) for name, value in made.items()}
    builder.name_operations([result.tensor for result in results.values()])
    model = keras.Model(
        [each.value.tensor for each in inputs],
        [result.tensor for result in results.values()],
        name=usable(graph.proto.name or "network"),
    )
    made_by = {id(tensor) for call in keras_internals.calls(model) for tensor in call.output_tensors}
    tensors = {
        name: value
        for name, value in values.items()
        if isinstance(value, Value) and id(value.tensor) in made_by
    }
    return Translation(model, inputs, constants, results, tensors)


def _output(path: Path, builder: Builder, name: str, value: Argument, image_ranks: Iterable[int]) -> Value:
    """Return an output under its ONNX name: the batch first, and channels last if inputs of its rank are."""
    if not isinstance(value, Value):
        raise invalid(
            path, f"an output {name!r} without a batch as an axis of its own", "outputs for each example",
            "export the model without this output",
        )  # fmt: skip
    value = builder.ordered(value)
    is_image = value.batch == 0 and value.rank in image_ranks
    value = builder.channels_last(value) if is_image else builder.as_in_onnx(value)
    return value.with_tensor(keras.layers.Identity(name=usable(name))(value.tensor))


class _Walk:
    """Visits nodes in order, and adds the tensors that they make to `values`."""

    def __init__(self, path: Path, graph: Graph, builder: Builder, values: dict[str, Argument]) -> None:
        self._path, self._graph, self._builder, self.values = path, graph, builder, values
        self._budget = Budget(sum(weight.size for weight in graph.weights.values()))

    def visit(self, nodes: Iterable[NodeProto]) -> None:
        """Make the tensors of nodes.

        Raises:
            MistifyError: INVALID_MODEL, naming the node.
        """
        for proto in nodes:
            try:
                made = self._made(proto)
            except MistifyError:
                raise
            except UnsupportedNodeError as error:
                raise self._refused(proto, str(error)) from error
            except Exception as error:  # Keras, TensorFlow and numpy raise dozens of types
                reason = f"has inputs or attributes that do not fit ({first_line(error)})"
                raise self._refused(proto, reason) from error
            self.values.update(zip(proto.output, made, strict=False))

    def _refused(self, proto: NodeProto, reason: str) -> MistifyError:
        name = f"{proto.op_type} {proto.name[:100]}".strip()
        batch = self._builder.batch
        fix = (
            _ADVICE if batch is None else f"{_FREE} instead of {batch}, which may be the cause; or {_ADVICE}"
        )
        return invalid(self._path, f"node {name}, which {reason}", "operators as in docs/onnx.md", fix)

    def _made(self, proto: NodeProto) -> Sequence[Argument]:
        arguments = [self.values[name] if name else None for name in proto.input]
        if proto.op_type == "If":
            return self._branch(proto, arguments[0])
        node = self._graph.node(proto)
        if proto.op_type == "Shape" and isinstance(arguments[0], Value | Merged | Places):
            shaped = arguments[0].value if isinstance(arguments[0], Places) else arguments[0]
            return [shape_of(shaped, node.get("start", 0), node.get("end"))]
        if not any(isinstance(argument, Value | Merged | Places) for argument in arguments):
            constants = folded(proto, arguments, self._graph.version)
            self._budget.spend(constants)
            return constants
        handler = OPERATORS.get(proto.op_type)
        if handler is None:
            raise UnsupportedNodeError("depends on the network's input; expected constants")
        if node.wraps:
            raise UnsupportedNodeError(
                "computes with integers that may wrap around; expected floats or integers of 32 or 64 bits "
                "with a sign"
            )
        made: Any
        if not any(isinstance(argument, Merged) for argument in arguments) or divides(node, arguments):
            made = handler(self._builder, node, *arguments)
        elif treats_steps_as_examples(node, arguments):
            made = for_each_step(self._builder, node, handler, arguments)
        else:
            node, arguments, like = apart(node, arguments)
            made = together(handler(self._builder, node, *arguments), like)
        results = made if isinstance(made, list) else [made]
        _check_results(node, results)
        return results

    def _branch(self, proto: NodeProto, condition: Argument) -> Sequence[Argument]:
        if (
            not isinstance(condition, Value | Merged | Places)
            and not isinstance(condition, BatchDependent)
            and condition is not None
        ):
            name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
            inner = {attribute.name: attribute.g for attribute in proto.attribute}[name]
            self.values.update({each.name: tensor_of(self._path, each) for each in inner.initializer})
            self.visit(inner.node)
            return [self.values[output.name] for output in inner.output]
        raise UnsupportedNodeError("depends on the network's input")


def _check_results(node: Node, results: Sequence[Argument]) -> None:
    """Refuse outputs that are read but not made, and tensors without entries or with far too many."""
    for index, read in enumerate(node.read):
        if read and (index >= len(results) or results[index] is None):
            raise UnsupportedNodeError(f"returns {node.outputs[index]!r} as output {index + 1}")
    if any(isinstance(result, Value) and 0 in result.shape for result in results):
        raise UnsupportedNodeError("makes a tensor without entries")
    entries = max((count(result.shape) for result in results if isinstance(result, Value)), default=0)
    if entries > _MOST_ENTRIES:
        raise UnsupportedNodeError(
            f"makes a tensor of {entries:,} entries for each example; expected at most {_MOST_ENTRIES:,}"
        )


def _check_operators(path: Path, graph: Graph) -> None:
    """Refuse all unknown operators at once, with how often they occur."""
    known = OPERATORS.keys() | FOLDED | _OWN
    unknown: Counter[str] = Counter()
    first: dict[str, str] = {}
    for node in with_inner(graph.nodes):
        if node.op_type not in known or node.domain:
            operator = f"{node.domain}.{node.op_type}".lstrip(".")[:100]
            unknown[operator] += 1
            first.setdefault(operator, node.name[:100])
    if unknown:
        listed = ", ".join(
            f"{name} (node {first[name]}{f' and {count - 1} more' if count > 1 else ''})"
            for name, count in unknown.most_common(10)
        )
        raise invalid(
            path, f"operators that are not supported: {listed}", "operators as in docs/onnx.md", _ADVICE
        )
