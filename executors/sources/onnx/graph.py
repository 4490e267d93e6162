"""The nodes of an ONNX graph: their attributes, and who makes and reads each tensor."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, checker, defs, helper, numpy_helper

from executors.inspection.errors import invalid
from executors.sources.errors import first_line
from executors.sources.onnx.batch import Array
from executors.sources.onnx.names import is_parameter
from executors.sources.onnx.registry import Node

_NARROW: Final = (TensorProto.INT8, TensorProto.INT16, TensorProto.UINT8, TensorProto.UINT16)
_UNSIGNED: Final = (TensorProto.UINT32, TensorProto.UINT64)

#: Metadata of PyTorch's newest exporter, with the modules of a node: "['', 'up.0', 'linear']".
_SCOPES: Final = "pkg.torch.onnx.name_scopes"
_QUOTED: Final = re.compile(r"'([^']*)'")

#: Operators whose results depend on the number of bits of integers.
_WRAPPING: Final = frozenset({"Abs", "Add", "Mul", "Neg", "Pow", "ReduceProd", "ReduceSum", "Sub", "Sum"})

#: Operators whose results are not of the type of their data.
_OF_OTHER_TYPE: Final = frozenset({"ArgMax", "ArgMin", "Cast", "DequantizeLinear", "Shape", "Size"})


@dataclass(frozen=True)
class Graph:
    """The main graph of a model.

    Attributes:
        nodes: Its nodes, in an order in which inputs come before their readers.
        weights: Name -> initializer.
        readers: Number of nodes and outputs that read each tensor.
        makers: Tensor -> operator that makes it.
        narrow: Tensors of integers of 8 and 16 bits.
        unsigned: Tensors of integers without a sign of 32 and 64 bits.
        version: Version of the operator set.
    """

    proto: GraphProto
    nodes: list[NodeProto]
    weights: Mapping[str, Array]
    readers: Counter[str]
    makers: Mapping[str, str]
    narrow: frozenset[str]
    unsigned: frozenset[str]
    version: int

    def node(self, proto: NodeProto) -> Node:
        """Return a node with its surroundings."""
        return Node(
            proto.op_type,
            named_by_module(proto),
            tuple(proto.input),
            tuple(proto.output),
            {attribute.name: _value(attribute) for attribute in proto.attribute},
            self.version,
            tuple(self.readers[name] for name in proto.input),
            tuple(self.makers.get(name, "") for name in proto.input),
            tuple(bool(name) and self.readers[name] > 0 for name in proto.output),
            self._wraps(proto),
        )

    def _wraps(self, node: NodeProto) -> bool:
        """Check whether integers may wrap around in the file that do not if they have 32 bits and a sign."""
        if node.op_type == "Sub" and not self.unsigned.isdisjoint(node.input):
            return True
        return node.op_type in _WRAPPING and not self.narrow.isdisjoint(node.input)

    @property
    def inputs(self) -> list[Any]:
        """The inputs without initializers, which early versions list among them."""
        return [each for each in self.proto.input if each.name not in self.weights]


def read_graph(path: Path, graph: GraphProto, version: int) -> Graph:
    """Read a graph with its weights.

    Raises:
        MistifyError: INVALID_MODEL if a node reads a tensor that is not made before, or two make the same.
    """
    weights = {weight.name: tensor_of(path, weight) for weight in graph.initializer}
    _check_order(path, graph, set(weights))
    readers, makers = Counter[str](), {}
    for node in with_inner(graph.node):
        readers.update(node.input)
        makers.update(dict.fromkeys(node.output, node.op_type))
    readers.update(output.name for output in graph.output)
    narrow, unsigned = (_of_types(graph, weights, kinds) for kinds in (_NARROW, _UNSIGNED))
    return Graph(graph, list(graph.node), weights, readers, makers, narrow, unsigned, version)


def _of_types(graph: GraphProto, weights: Mapping[str, Array], kinds: Sequence[int]) -> frozenset[str]:
    """Return the tensors of some types of integers, by the types of inputs and weights and by casts."""
    dtypes = [helper.tensor_dtype_to_np_dtype(kind) for kind in kinds]
    names = {name for name, array in weights.items() if array.dtype in dtypes}
    names |= {each.name for each in graph.input if each.type.tensor_type.elem_type in kinds}
    for node in with_inner(graph.node):
        kind = next((each.i for each in node.attribute if each.name == "to"), None)
        if kind in kinds or (node.op_type not in _OF_OTHER_TYPE and names.intersection(node.input)):
            names.update(filter(None, node.output))
    return frozenset(names)


def check_nodes(path: Path, graph: GraphProto, version: int) -> None:
    """Refuse nodes whose inputs, outputs or attributes are not those of their operators.

    Unknown operators pass.

    Raises:
        MistifyError: INVALID_MODEL, naming the node.
    """
    context = checker.C.CheckerContext()
    context.ir_version = checker.IR_VERSION
    context.opset_imports = {"": version}
    for node in with_inner(graph.node):
        has_graphs = any(attribute.type == AttributeProto.GRAPH for attribute in node.attribute)
        if node.domain or has_graphs or not defs.has(node.op_type):
            continue
        try:
            checker.check_node(node, context)
        except checker.ValidationError as error:
            raise invalid(
                path,
                f"node {_named(node)} that is not valid ({first_line(error)})",
                f"a node as in version {version} of ONNX's operators",
                "export it again",
            ) from error


def named_by_module(node: NodeProto) -> str:
    """Return a node's name, or the path of its PyTorch module if no parameter's name has it."""
    if any(map(is_parameter, node.input)):
        return str(node.name)
    scopes = next((each.value for each in node.metadata_props if each.key == _SCOPES), "")
    modules = _QUOTED.findall(scopes)[:-1]  # the last one is the node itself
    return f"/{modules[-1]}/{node.op_type}" if modules and modules[-1] else str(node.name)


def with_inner(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, and those of the graphs in their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from with_inner(attribute.g.node)


def tensor_of(path: Path, tensor: TensorProto) -> Array:
    """Return a stored tensor.

    Raises:
        MistifyError: INVALID_MODEL if its data do not have its shape.
    """
    try:
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        raise invalid(
            path,
            f"a tensor {tensor.name[:100]} that cannot be read ({first_line(error)})",
            "a valid tensor",
            "export it again",
        ) from error
    return array


def _value(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.STRINGS:
        return [each.decode(errors="replace") for each in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _check_order(path: Path, graph: GraphProto, known: set[str]) -> None:
    known = known | {each.name for each in graph.input} | {""}
    for node in graph.node:
        for name in node.input:
            if name not in known:
                raise invalid(
                    path, f"node {_named(node)} reads {name[:100]!r}, which no earlier node makes",
                    "nodes in order, without cycles", "export it again",
                )  # fmt: skip
        for name in filter(None, node.output):
            if name in known:
                raise invalid(
                    path,
                    f"node {_named(node)} makes {name[:100]!r} again",
                    "every tensor made once",
                    "export it again",
                )
            known.add(name)
    for output in graph.output:
        if output.name not in known:
            raise invalid(
                path,
                f"an output {output.name[:100]!r} that no node makes",
                "outputs made by nodes",
                "export it again",
            )


def _named(node: NodeProto) -> str:
    return str(node.name or node.op_type)[:100]
