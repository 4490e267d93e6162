"""Operations that overflow in LiteRT as the converter writes them, rewritten into forms that do not.

The converter writes Softplus, of which log_sigmoid and mish are made, as EXP, ADD, LOG: wrong above 88. The
reciprocal square root of zero is infinite in TensorFlow, and not a number in XNNPACK.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

#: The nodes of a graph, and the tensors that a function of them returns, by name; empty for the main graph.
_Graph: TypeAlias = tuple[Collection[Any], MutableMapping[str, str]]

_SMALLEST = float(np.finfo(np.float32).tiny)


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), by the logarithm of a number between a half and one.

    It is max(x, 0) that this is taken from; of a ReLU, the converter would make a second matrix product.
    """
    size = tf.abs(x)
    return 0.5 * (x + size) - tf.math.log(tf.sigmoid(size))


def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x); of zero, that of the smallest number."""
    return tf.math.rsqrt(tf.maximum(x, tf.cast(_SMALLEST, x.dtype)))


#: The forms that do not overflow, by the types of the operations.
STABLE: Mapping[str, Callable[[Any], Any]] = {"Softplus": softplus, "Rsqrt": rsqrt}


def make_stable(graph: Any) -> None:
    """Replace the operations of a `GraphDef` that may overflow by calls of functions that do not.

    Args:
        graph: The graph with its functions, which is changed.
    """
    functions: dict[tuple[str, int], Any] = {}
    for nodes, returned in _graphs(graph):
        for node in _unstable(nodes):
            key = node.op, node.attr["T"].type
            functions.setdefault(key, _function(*key))
            _replace(node, functions[key].signature.name, nodes, returned)
    graph.library.function.extend(functions.values())


def _graphs(graph: Any) -> Iterator[_Graph]:
    yield graph.node, {}
    for function in graph.library.function:
        yield function.node_def, function.ret


def _unstable(nodes: Collection[Any]) -> Iterator[Any]:
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op == "Softplus" or (node.op == "Rsqrt" and not _is_positive(node.input[0], by_name)):
            yield node


def _is_positive(tensor: str, nodes: Mapping[str, Any]) -> bool:
    """Return whether a constant, such as the epsilon of a norm, keeps a sum of squares from being zero."""
    source = nodes.get(_node_of(tensor))
    if source is None or source.op not in ("Add", "AddV2", "Maximum"):
        return False
    return any(nodes[name].op == "Const" for name in map(_node_of, source.input) if name in nodes)


def _node_of(tensor: str) -> str:
    return tensor.partition(":")[0]


def _function(kind: str, dtype: int) -> Any:
    """Return the definition of the function that stands for an operation, always under the same name."""
    taken = tf.TensorSpec(None, tf.as_dtype(dtype))
    definition = tf.function(STABLE[kind], autograph=False).get_concrete_function(taken).function_def
    definition.signature.name = f"stable_{kind.lower()}_{dtype}"
    return definition


def _replace(node: Any, function: str, nodes: Collection[Any], returned: MutableMapping[str, str]) -> None:
    """Make a node a call of a function; who reads its output by name does so by its new one."""
    (output,) = op_def_registry.get(node.op).output_arg
    old, new = f"{node.name}:{output.name}:", f"{node.name}:output:"
    for reader in nodes:
        reader.input[:] = [
            tensor.replace(old, new) if tensor.startswith(old) else tensor for tensor in reader.input
        ]
    for name, tensor in returned.items():
        if tensor.startswith(old):
            returned[name] = tensor.replace(old, new)
    dtype = node.attr["T"].type
    node.op = "PartitionedCall"
    node.attr.clear()
    node.attr["Tin"].list.type.append(dtype)
    node.attr["Tout"].list.type.append(dtype)
    node.attr["f"].func.name = function
