"""Rewriting of operations for which the converter chooses wrong integer scales.

The converter assigns the output range of MINIMUM, MAXIMUM and SELECT to their inputs, so other readers of
these get clipped values. REVERSE_V2 copies its input integers but declares a different scale. ONE_HOT writes
the zero of a different scale, which means one half on its own scale; other values are correct. For scattered
updates, see `scattering`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.rewriting.calls import Calls, GraphBody, bodies, node_of
from mistify_server.worker.packaging.rewriting.scattering import scatter_integers

#: Operation -> indices of the inputs whose range it forces.
_FORCED: Final[Mapping[str, tuple[int, ...]]] = {
    "Minimum": (0, 1),
    "Maximum": (0, 1),
    "Select": (1, 2),
    "SelectV2": (1, 2),
    "TensorScatterUpdate": (0, 2),  # becomes a selection
}

#: Spacing of float32 numbers below one.
_STEP: Final = float(np.finfo(np.float32).epsneg)


def keep_ranges(graph: Any) -> None:
    """Insert copies of inputs if an operation would force its range on other readers.

    A one-hot tensor is computed from ones and minus ones, with zero derived from the latter. Scattered
    updates are replaced as well.

    Args:
        graph: A `GraphDef` with its functions, modified in place.
    """
    calls, copies = Calls(graph), 0
    for body in bodies(graph):
        for node, place in list(_inputs_to_copy(body)):
            copies += 1
            calls.insert(node, place, body, f"copy_{copies}", partial(_copied, number=copies))
        nodes = body.by_name()
        for node in body.nodes:
            if node.op == "OneHot" and _is_float(node) and _of_last_axis(node):
                value = node.attr["T"].type
                types = _type_of_indices(node), tf.int32.as_datatype_enum, value, value
                calls.replace(node, body, "one_hot", _one_hot, types)
            scatter_integers(node, body, nodes, calls)
    calls.define()


# Attributes with default values may be missing.


def _of_last_axis(one_hot: Any) -> bool:
    return "axis" not in one_hot.attr or bool(one_hot.attr["axis"].i == -1)


def _type_of_indices(one_hot: Any) -> int:
    return int(one_hot.attr["TI"].type if "TI" in one_hot.attr else tf.int64.as_datatype_enum)


def _one_hot(indices: Any, depth: Any, on: Any, off: Any) -> Any:
    """Return `on` at the indices along the last dimension of [..., depth], and `off` elsewhere.

    Intermediate integers would not help, because the converter fuses ONE_HOT and CAST.
    """
    return 0.5 * (on - off) * tf.one_hot(indices, depth, 1.0, -1.0) + 0.5 * (on + off)


def _copied(x: Any, number: int) -> Any:
    """Return a tensor unchanged, with an operation that the converter neither drops nor merges."""
    return tf.nn.leaky_relu(x, 1.0 - number * _STEP)


def _inputs_to_copy(body: GraphBody) -> Iterator[tuple[Any, int]]:
    nodes = body.by_name()
    readers = _readers(body, nodes)
    for node in body.nodes:
        if node.op == "ReverseV2" and _is_float(node):
            yield node, 0
        elif node.op in _FORCED and _is_float(node) and not _is_relu(node, nodes):
            for place in _FORCED[node.op]:
                source = _source(node.input[place], nodes)
                if readers[source] > 1 and not _is_constant(source, nodes):
                    yield node, place


def _is_float(node: Any) -> bool:
    return bool(node.attr["T"].type == tf.float32.as_datatype_enum)


def _readers(body: GraphBody, nodes: Mapping[str, Any]) -> Counter[str]:
    """Count the readers of tensors, ignoring operations that only forward them."""
    read = [tensor for node in body.nodes if node.op != "Identity" for tensor in node.input]
    return Counter(_source(tensor, nodes) for tensor in (*read, *body.returned.values()))


def _source(tensor: str, nodes: Mapping[str, Any]) -> str:
    """Return the original of a tensor that was forwarded under another name."""
    while (node := nodes.get(node_of(tensor))) is not None and node.op == "Identity":
        tensor = node.input[0]
    return tensor.removesuffix(":0")


def _is_relu(node: Any, nodes: Mapping[str, Any]) -> bool:
    """Check whether the converter turns a node into a RELU, which has its own range."""
    return node.op == "Maximum" and any(_constant_is_zero(tensor, nodes) for tensor in node.input)


def _constant_is_zero(tensor: str, nodes: Mapping[str, Any]) -> bool:
    source = _source(tensor, nodes)
    return _is_constant(source, nodes) and not np.any(
        tf.make_ndarray(nodes[node_of(source)].attr["value"].tensor)
    )


def _is_constant(tensor: str, nodes: Mapping[str, Any]) -> bool:
    node = nodes.get(node_of(tensor))
    return node is not None and node.op == "Const"
