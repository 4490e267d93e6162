"""Operations that overflow in LiteRT as the converter writes them, rewritten into forms that do not.

The converter writes Softplus, the basis of log_sigmoid and mish, as EXP, ADD, LOG: wrong above 88. Selu
becomes an exponential of all numbers, whose range leaves integers no resolution for the others. The
reciprocal square root of zero is infinite in TensorFlow, and not a number in XNNPACK.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.rewriting.calls import Calls, bodies, node_of

_SMALLEST = float(np.finfo(np.float32).tiny)

#: Of Selu, for numbers below zero, and for all (Klambauer et al. 2017, section 2).
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), by the logarithm of a number between a half and one.

    It is max(x, 0) that this is taken from; of a ReLU, the converter would make a second matrix product.
    """
    size = tf.abs(x)
    return 0.5 * (x + size) - tf.math.log(tf.sigmoid(size))


def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x); for zero, the result for the smallest number."""
    return tf.math.rsqrt(tf.maximum(x, tf.cast(_SMALLEST, x.dtype)))


def selu(x: Any) -> Any:
    """Return x above zero and alpha * (exp(x) - 1) below it, scaled; by the exponential of ELU."""
    return _SELU_SCALE * tf.nn.leaky_relu(tf.nn.elu(x), _SELU_ALPHA)


#: The forms that do not overflow, by the types of the operations.
STABLE: Mapping[str, Callable[[Any], Any]] = {"Softplus": softplus, "Selu": selu, "Rsqrt": rsqrt}


def make_stable(graph: Any) -> None:
    """Replace the operations of a `GraphDef` that may overflow by calls of functions that do not.

    Args:
        graph: A `GraphDef` with its functions, which is changed.
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
    """Return whether a constant, such as the epsilon of a norm, keeps a sum of squares from being zero."""
    source = nodes.get(node_of(tensor))
    if source is None or source.op not in ("Add", "AddV2", "Maximum"):
        return False
    return any(nodes[name].op == "Const" for name in map(node_of, source.input) if name in nodes)
