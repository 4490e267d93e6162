"""Replacement of a graph's operations by function calls."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry


@dataclass(frozen=True)
class GraphBody:
    """The nodes of a graph or of one of its functions.

    Attributes:
        nodes: A repeated field of `NodeDef`s.
        returned: Name -> tensor that a function returns; empty for the main graph.
        is_function: Whether it belongs to a function, in which tensors are named by their outputs.
    """

    nodes: Any
    returned: MutableMapping[str, str]
    is_function: bool

    def by_name(self) -> Mapping[str, Any]:
        """Return the nodes by name."""
        return {node.name: node for node in self.nodes}


def bodies(graph: Any) -> Iterator[GraphBody]:
    """Yield a `GraphDef` itself, and each of its functions."""
    yield GraphBody(graph.node, {}, is_function=False)
    for function in graph.library.function:
        yield GraphBody(function.node_def, function.ret, is_function=True)


def node_of(tensor: str) -> str:
    """Return the name of the node or argument that produces a tensor."""
    return tensor.partition(":")[0]


class Calls:
    """Functions that replace operations; each is defined once in a graph, always under the same name.

    Args:
        graph: The `GraphDef`, to which `define` adds the functions.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._functions: dict[str, Any] = {}

    def replace(
        self, node: Any, body: GraphBody, name: str, function: Callable[..., Any], types: Sequence[int] = ()
    ) -> None:
        """Turn a node into a function call, for all readers of its output.

        Args:
            node: A node with one output, of the type in its attribute `T`.
            body: The body with the node.
            name: Name of the function, to which the types are added.
            function: A function that is traced for tensors of any shape, and returns one of the same type as
                the node.
            types: Types of the function's inputs; by default a single input of the type `T`.
        """
        (output,) = op_def_registry.get(node.op).output_arg
        old, new = f"{node.name}:{output.name}:", f"{node.name}:output:"
        for reader in body.nodes:
            reader.input[:] = [
                tensor.replace(old, new) if tensor.startswith(old) else tensor for tensor in reader.input
            ]
        for key, tensor in body.returned.items():
            if tensor.startswith(old):
                body.returned[key] = tensor.replace(old, new)
        self._make_call(node, name, function, types or [node.attr["T"].type], node.attr["T"].type)

    def insert(
        self, reader: Any, place: int, body: GraphBody, name: str, function: Callable[..., Any]
    ) -> None:
        """Make a node read a function's result instead of one of its input tensors.

        Args:
            reader: A node with an attribute `T`, the type of the tensor.
            place: Index of the input.
            body: The body with the reader.
            name: Name of the function, to which the type is added.
            function: A function that is traced for a tensor of any shape.
        """
        tensor, call = reader.input[place], body.nodes.add()
        call.name = f"{reader.name}/{name}_{place}"
        call.input.append(tensor)
        self._make_call(call, name, function, [reader.attr["T"].type], reader.attr["T"].type)
        reader.input[place] = f"{call.name}:output:0" if body.is_function else call.name

    def define(self) -> None:
        """Add the called functions to the graph."""
        self._graph.library.function.extend(self._functions.values())

    def _make_call(
        self, node: Any, name: str, function: Callable[..., Any], types: Sequence[int], returned: int
    ) -> None:
        key = "_".join((name, *map(str, types)))
        if key not in self._functions:
            taken = [tf.TensorSpec(None, tf.as_dtype(dtype)) for dtype in types]
            definition = tf.function(function, autograph=False).get_concrete_function(*taken).function_def
            definition.signature.name = key
            self._functions[key] = definition
        node.op = "PartitionedCall"
        node.attr.clear()
        node.attr["Tin"].list.type.extend(types)
        node.attr["Tout"].list.type.append(returned)
        node.attr["f"].func.name = key
