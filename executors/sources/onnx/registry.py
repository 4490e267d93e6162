"""The table of ONNX operators."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from executors.sources.onnx.batch import Array, BatchDependent
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.values import Merged, Places, Value

#: An input of a node; None if it is omitted.
Argument: TypeAlias = Value | Merged | Places | Array | BatchDependent | None

#: Called with the builder, the node and its inputs; returns its output or a list of them.
Handler: TypeAlias = Callable[..., Any]

#: Operator -> handler.
OPERATORS: Final[dict[str, Handler]] = {}


@dataclass(frozen=True)
class Node:
    """A node of an ONNX graph.

    Attributes:
        operator: Its type, such as "Conv".
        version: Version of the operator set.
        readers: Number of nodes and graph outputs that read each of its inputs.
        makers: Operator that makes each of its inputs; "" for initializers and inputs of the network.
        read: Whether any node or graph output reads each of its outputs.
        wraps: Whether it computes integers that may wrap around in the file, but not if they have 32 bits.
    """

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    version: int
    readers: tuple[int, ...]
    makers: tuple[str, ...]
    read: tuple[bool, ...]
    wraps: bool = False

    def get(self, attribute: str, default: Any = None) -> Any:
        """Return an attribute, or its default."""
        return self.attributes.get(attribute, default)


def operator(*names: str) -> Callable[[Handler], Handler]:
    """Return a decorator that registers a handler for operators."""

    def add(handler: Handler) -> Handler:
        OPERATORS.update(dict.fromkeys(names, handler))
        return handler

    return add


def tensor(argument: Argument) -> Value:
    """Return an input that has to depend on the network's input.

    Raises:
        UnsupportedNodeError: It is a constant or omitted.
    """
    if isinstance(argument, Merged | Places):
        raise UnsupportedNodeError("merges the batch with another axis")
    if not isinstance(argument, Value):
        raise UnsupportedNodeError("has a constant where its data are expected")
    return argument


def constant(argument: Argument, role: str) -> Array:
    """Return an input that has to be a constant.

    Args:
        role: The name of the input in errors, such as "kernel".

    Raises:
        UnsupportedNodeError: It depends on the network's input, or is omitted.
    """
    if isinstance(argument, BatchDependent):
        return argument.constant
    if argument is None or isinstance(argument, Value | Merged | Places):
        raise UnsupportedNodeError(f"has a computed {role}; expected a constant")
    return argument


def optional(argument: Argument, role: str) -> Array | None:
    """Return an input that has to be a constant or omitted.

    Raises:
        UnsupportedNodeError: It depends on the network's input.
    """
    if argument is None or (
        not isinstance(argument, Value | Merged | Places | BatchDependent) and argument.size == 0
    ):
        return None
    return constant(argument, role)
