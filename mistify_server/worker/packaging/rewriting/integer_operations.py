"""Rewriting of operations without integer kernels, which LiteRT computes in float32 between conversions.

The converter needs NEG where it fuses a GELU: only the negative means of layer norms are rewritten. If they
subtracted the mean first, they would need fewer operators, but the error of a transformer grew by half.
"""

from typing import Any

import tensorflow as tf

from mistify_server.worker.packaging.rewriting.calls import Calls, GraphBody, bodies, node_of


def use_integer_kernels(graph: Any) -> None:
    """Rewrite negative means and squares of floats as products.

    Args:
        graph: A `GraphDef` with its functions, modified in place.
    """
    calls = Calls(graph)
    for body in bodies(graph):
        for node in body.nodes:
            if node.op == "Neg" and _is_float(node) and _reads_mean(node, body):
                calls.replace(node, body, "integer_negative", _negative)
            elif node.op == "Square" and _is_float(node):
                calls.replace(node, body, "integer_square", _square)
    calls.define()


def _negative(x: Any) -> Any:
    return -1.0 * x


def _square(x: Any) -> Any:
    return x * x


def _is_float(node: Any) -> bool:
    return bool(node.attr["T"].type == tf.float32.as_datatype_enum)


def _reads_mean(node: Any, body: GraphBody) -> bool:
    source = body.by_name().get(node_of(node.input[0]))
    return source is not None and source.op == "Mean"
