"""TensorFlow graphs rebuilt from operations of which LiteRT has the gradients as well, or has them faster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

#: Makes of an operation and of its inputs what its outputs are.
Replacement = Callable[..., Any]

_REPLACEMENTS: dict[str, Replacement] = {}


class UntrainableError(Exception):
    """A network cannot be trained in LiteRT; the message says why."""


def replaces(*types: str) -> Callable[[Replacement], Replacement]:
    """Decorator: this function stands for all operations of these types.

    It is given the operation, for its attributes and static shapes, and then its inputs.
    """

    def add(replacement: Replacement) -> Replacement:
        _REPLACEMENTS.update(dict.fromkeys(types, replacement))
        return replacement

    return add


def in_builtins(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of nested tensors, made of replacements where there are any.

    What it makes is differentiated by `tf.gradients`: a tape does not see operations that are copied.
    """

    def call(*given: Any) -> Any:
        with _functions_inlined():
            specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, given)
            traced = tf.function(function, autograph=False).get_concrete_function(*specs)
        made = _rebuilt(traced.graph, tf.nest.flatten(given))
        return tf.nest.map_structure(lambda tensor: made[tensor.ref()], traced.structured_outputs)

    return call


@contextmanager
def _functions_inlined() -> Iterator[None]:
    """While a graph is traced, functions that are called become part of it instead of being called by it."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def _rebuilt(graph: Any, given: list[Any]) -> dict[Any, Any]:
    """Every tensor of a graph as it is in the graph that is being built."""
    made = {placeholder.ref(): tensor for placeholder, tensor in zip(graph.inputs, given, strict=False)}
    for captured, placeholder in graph.captures:
        made[placeholder.ref()] = tf.constant(captured.numpy())
    for operation in graph.get_operations():
        if operation.type != "Placeholder":
            inputs = [made[tensor.ref()] for tensor in operation.inputs]
            replacement: Replacement = _REPLACEMENTS.get(operation.type, _copied)
            outputs = tf.nest.flatten(replacement(operation, *inputs))
            for old, new in zip(operation.outputs, outputs, strict=False):
                new.set_shape(old.shape)  # what was known of it beyond what its inputs say
                made[old.ref()] = new
    return made


def _copied(operation: Any, *inputs: Any) -> list[Any]:
    """The same operation. Attributes with an underscore say how it was made, and mean nothing elsewhere."""
    attributes = {name: value for name, value in operation.node_def.attr.items() if not name.startswith("_")}
    types = [tensor.dtype for tensor in operation.outputs]
    graph: Any = tf.compat.v1.get_default_graph()
    copy = graph.create_op(operation.type, inputs, types, attrs=attributes, op_def=operation.op_def)
    return list(copy.outputs)


@replaces("IdentityN")
def _identities(operation: Any, *inputs: Any) -> list[Any]:
    """What `tf.custom_gradient` wraps: its operations have gradients of their own."""
    return list(inputs)
