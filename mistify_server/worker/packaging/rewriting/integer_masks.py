"""Rewriting of attention masks, whose very low scores leave integers no resolution for all others."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import tensorflow as tf

from mistify_server.worker.packaging.rewriting.calls import Calls, GraphBody, bodies, node_of

#: Scores up to this one exclude a position.
_LOW: Final = -1e4

#: Difference between the lowest score of a row and that of an excluded position: even the shares of 4,096
#: excluded positions together are less than a step of 1 / 256.
_MARGIN: Final = 14.0


def keep_resolution(graph: Any) -> None:
    """Make excluded scores slightly lower than the others, where only softmaxes read them.

    Args:
        graph: A `GraphDef` with its functions, modified in place.
    """
    calls = Calls(graph)
    for body in bodies(graph):
        nodes, readers = body.by_name(), _readers(body)
        for node in body.nodes:
            if node.op not in ("Select", "SelectV2") or readers[node.name] != {"Softmax"}:
                continue
            low = [_is_low(tensor, nodes) for tensor in node.input[1:]]
            if low in ([False, True], [True, False]):
                kind = node.attr["T"].type
                types = tf.bool.as_datatype_enum, kind, kind
                name, function = ("masked", _masked) if low[1] else ("masked_opposite", _masked_opposite)
                calls.replace(node, body, name, function, types)
    calls.define()


def _masked(allowed: Any, scores: Any, low: Any) -> Any:
    return tf.where(allowed, scores, tf.reduce_min(scores, axis=-1, keepdims=True) - _MARGIN)


def _masked_opposite(excluded: Any, low: Any, scores: Any) -> Any:
    return tf.where(excluded, tf.reduce_min(scores, axis=-1, keepdims=True) - _MARGIN, scores)


def _readers(body: GraphBody) -> Mapping[str, set[str]]:
    """Return the operations that read each node's output, directly or forwarded by `Identity`."""
    nodes = body.by_name()
    readers: dict[str, set[str]] = defaultdict(set)
    read = [(tensor, node.op) for node in body.nodes if node.op != "Identity" for tensor in node.input]
    for tensor, kind in (*read, *((tensor, "return") for tensor in body.returned.values())):
        readers[_source(tensor, nodes)].add(kind)
    return readers


def _source(tensor: str, nodes: Mapping[str, Any]) -> str:
    """Return the node that makes a tensor, which `Identity` may forward."""
    while (node := nodes.get(node_of(tensor))) is not None and node.op == "Identity":
        tensor = node.input[0]
    return node_of(tensor)


def _is_low(tensor: str, nodes: Mapping[str, Any]) -> bool:
    """Check whether a tensor is a constant that excludes all positions."""
    node = nodes.get(_source(tensor, nodes))
    if node is None or node.op != "Const" or node.attr["dtype"].type != tf.float32.as_datatype_enum:
        return False
    return bool((tf.make_ndarray(node.attr["value"].tensor) <= _LOW).all())
