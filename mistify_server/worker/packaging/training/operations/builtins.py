"""TensorFlow graphs rebuilt from operations whose gradients LiteRT has, or which it runs faster."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

#: Computes the outputs of an operation, which is its first argument, from its inputs, which follow.
Replacement = Callable[..., Any]

_REPLACEMENTS: dict[str, Replacement] = {}


class UntrainableError(Exception):
    """Error of a network that cannot be trained in LiteRT; the message says why."""


def replaces(*types: str) -> Callable[[Replacement], Replacement]:
    """Register the decorated function as the replacement of all operations of these types.

    It is called with the operation, for its attributes and static shapes, and then with its inputs.
    """

    def add(replacement: Replacement) -> Replacement:
        _REPLACEMENTS.update(dict.fromkeys(types, replacement))
        return replacement

    return add


def in_builtins(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function of nested tensors, built from replacements where there are any.

    Its outputs have to be differentiated by `tf.gradients`: a tape does not see copied operations.
    """
    return _retraced(function, _REPLACEMENTS)


def with_sums_of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function of nested tensors with sums of only two tensors: XNNPACK takes no others."""
    return _retraced(function, {"AddN": lambda operation, *terms: sum(terms[1:], terms[0])})


def _retraced(function: Callable[..., Any], replacements: Mapping[str, Replacement]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with _functions_inlined():
            specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, arguments)
            traced = tf.function(function, autograph=False).get_concrete_function(*specs)
        tensors = _rebuilt(traced.graph, tf.nest.flatten(arguments), replacements)
        return tf.nest.map_structure(lambda tensor: tensors[tensor.ref()], traced.structured_outputs)

    return call


@contextmanager
def _functions_inlined() -> Iterator[None]:
    """Trace functions that are called as part of the graph, instead of as calls in it."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def _rebuilt(graph: Any, inputs: list[Any], replacements: Mapping[str, Replacement]) -> dict[Any, Any]:
    """Return the copy of every tensor of a graph in the graph that is being built, by its reference."""
    made = {placeholder.ref(): tensor for placeholder, tensor in zip(graph.inputs, inputs, strict=False)}
    for captured, placeholder in graph.captures:
        made[placeholder.ref()] = tf.constant(captured.numpy())
    for operation in graph.get_operations():
        if operation.type != "Placeholder":
            arguments = [made[tensor.ref()] for tensor in operation.inputs]
            replacement: Replacement = replacements.get(operation.type, _copied)
            outputs = tf.nest.flatten(replacement(operation, *arguments))
            for old, new in zip(operation.outputs, outputs, strict=False):
                new.set_shape(old.shape)  # which may say more than can be inferred from the inputs
                made[old.ref()] = new
    return made


def _copied(operation: Any, *inputs: Any) -> list[Any]:
    """Copy an operation.

    Attributes with an underscore describe how it was created, and mean nothing in another graph.
    """
    attributes = {name: value for name, value in operation.node_def.attr.items() if not name.startswith("_")}
    types = [tensor.dtype for tensor in operation.outputs]
    graph: Any = tf.compat.v1.get_default_graph()
    copy = graph.create_op(operation.type, inputs, types, attrs=attributes, op_def=operation.op_def)
    return list(copy.outputs)


@replaces("IdentityN")
def _identities(operation: Any, *inputs: Any) -> list[Any]:
    """Unwrap `tf.custom_gradient`: its operations have gradients of their own."""
    return list(inputs)
