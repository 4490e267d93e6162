"""Rebuilding of TensorFlow graphs from operations with gradients in LiteRT, or from faster ones."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

#: Computes the outputs of an operation; the arguments are the operation and its inputs.
Replacement = Callable[..., Any]

_REPLACEMENTS: dict[str, Replacement] = {}


class UntrainableError(Exception):
    """Error for a network that cannot be trained in LiteRT; the message has the reason."""


def replaces(*types: str) -> Callable[[Replacement], Replacement]:
    """Register the decorated function as the replacement of all operations of these types.

    It is called with the operation, for its attributes and static shapes, followed by its inputs.
    """

    def add(replacement: Replacement) -> Replacement:
        _REPLACEMENTS.update(dict.fromkeys(types, replacement))
        return replacement

    return add


def in_builtins(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function of nested tensors, rebuilt from the registered replacements.

    Its outputs must be differentiated with `tf.gradients`: a tape does not record copied operations.
    """
    return _retraced(function, _REPLACEMENTS)


def with_sums_of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function of nested tensors with only binary sums, the only ones in XNNPACK."""
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
    """Inline called functions into the graph during tracing."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def _rebuilt(graph: Any, inputs: list[Any], replacements: Mapping[str, Replacement]) -> dict[Any, Any]:
    """Copy a graph into the graph being built; return the copy of each tensor by reference."""
    made = {placeholder.ref(): tensor for placeholder, tensor in zip(graph.inputs, inputs, strict=False)}
    for captured, placeholder in graph.captures:
        made[placeholder.ref()] = tf.constant(captured.numpy())
    for operation in graph.get_operations():
        if operation.type != "Placeholder":
            arguments = [made[tensor.ref()] for tensor in operation.inputs]
            replacement: Replacement = replacements.get(operation.type, _copied)
            outputs = tf.nest.flatten(replacement(operation, *arguments))
            for old, new in zip(operation.outputs, outputs, strict=False):
                new.set_shape(old.shape)  # may be more specific than the inferred shape
                made[old.ref()] = new
    return made


def _copied(operation: Any, *inputs: Any) -> list[Any]:
    """Copy an operation.

    Attributes with a leading underscore describe its creation, and are meaningless in another graph.
    """
    attributes = {name: value for name, value in operation.node_def.attr.items() if not name.startswith("_")}
    types = [tensor.dtype for tensor in operation.outputs]
    graph: Any = tf.compat.v1.get_default_graph()
    copy = graph.create_op(operation.type, inputs, types, attrs=attributes, op_def=operation.op_def)
    return list(copy.outputs)


@replaces("IdentityN")
def _identities(operation: Any, *inputs: Any) -> list[Any]:
    """Unwrap `tf.custom_gradient`, because its operations have their own gradients."""
    return list(inputs)
