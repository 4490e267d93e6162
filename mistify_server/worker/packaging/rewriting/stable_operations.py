"""Rewriting of operations that would overflow in LiteRT after conversion.

The converter decomposes Softplus, the basis of log_sigmoid and mish, into EXP, ADD and LOG, which is wrong
above 88. Selu becomes an exponential of all numbers, with a range that leaves integers no resolution for the
others. The reciprocal square root of zero is infinite in TensorFlow, but NaN in XNNPACK.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.rewriting.calls import Calls, bodies, node_of

_SMALLEST = float(np.finfo(np.float32).tiny)

#: Factors of Selu for negative numbers and for all numbers (Klambauer et al. 2017, section 2).
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), using the logarithm of a number between one half and one.

    The logarithm is subtracted from max(x, 0); with a ReLU, the converter would create a second matrix
    product.
    """
    size = tf.abs(x)
    return 0.5 * (x + size) - tf.math.log(tf.sigmoid(size))


def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x); for zero, the result for the smallest positive number."""
    return tf.math.rsqrt(tf.maximum(x, tf.cast(_SMALLEST, x.dtype)))


def selu(x: Any) -> Any:
    """Return scaled x above zero, and scaled alpha * (exp(x) - 1) below, using ELU for the exponential."""
    return _SELU_SCALE * tf.nn.leaky_relu(tf.nn.elu(x), _SELU_ALPHA)


#: Type of an operation -> its form without overflow.
STABLE: Mapping[str, Callable[[Any], Any]] = {"Softplus": softplus, "Selu": selu, "Rsqrt": rsqrt}


def make_stable(graph: Any) -> None:
    """Replace operations of a `GraphDef` that may overflow by calls of stable functions.

    Args:
        graph: A `GraphDef` with its functions, modified in place.
    """
    calls = Calls(graph)
    for body in bodies(graph):
        for node in _unstable(body.nodes):
            calls.replace(node, body, f"stable_{node.op.lower()}", STABLE[node.op])
    calls.define()


def _unstable(nodes: Collection[Any]) -> Iterator[Any]:
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op in STABLE and not (node.op == "Rsqrt" and _is_positive(node.input[0], by_name)):
            yield node


def _is_positive(tensor: str, nodes: Mapping[str, Any]) -> bool:
    """Return whether a constant, such as a norm's epsilon, keeps a sum of squares above zero."""
    source = nodes.get(node_of(tensor))
    if source is None or source.op not in ("Add", "AddV2", "Maximum"):
        return False
    return any(nodes[name].op == "Const" for name in map(node_of, source.input) if name in nodes)
