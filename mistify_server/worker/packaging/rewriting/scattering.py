"""Rewriting of scattered updates, which LiteRT gets wrong at zero, or at places with several updates.

SCATTER_ND adds up what goes to the same place. In int8, it adds the integers, whatever zero they have, in
the range of a single one; and it writes the integer zero, whatever it means, where no update goes. The update
of a tensor is converted to it, although TensorFlow keeps one of several updates of a place. It may be any, so
their average serves as well: they are equal in networks that mean something.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.rewriting.calls import Calls, GraphBody, bodies, node_of

#: Steps of a number in int32, in which sums of updates are computed: finer than int8 unless all of them are
#: below 0.06, with room for sums up to half a million.
_STEPS: Final = 2.0**12


def average_updates(graph: Any) -> None:
    """Average updates of the same place of a tensor, in floating point.

    Args:
        graph: A `GraphDef` with its functions, modified in place.
    """
    calls = Calls(graph)
    for body in bodies(graph):
        nodes = body.by_name()
        for node in body.nodes:
            if _is_float(node, "TensorScatterUpdate") and _may_repeat(node.input[1], nodes):
                calls.replace(node, body, "scatter_average", _averaged, _types(node, "T", "Tindices", "T"))
    calls.define()


def scatter_integers(node: Any, body: GraphBody, nodes: Mapping[str, Any], calls: Calls) -> None:
    """Replace a node, if it scatters floats, for a network that will use integers.

    Args:
        nodes: The nodes of the body by name.
    """
    if _is_float(node, "TensorScatterUpdate"):
        update = _updated_by_average if _may_repeat(node.input[1], nodes) else _updated
        calls.replace(node, body, f"scatter{update.__name__}", update, _types(node, "T", "Tindices", "T"))
    elif _is_float(node, "ScatterNd"):
        scatter = _sums if _may_repeat(node.input[0], nodes) else _scattered
        calls.replace(
            node, body, f"scatter{scatter.__name__}", scatter, _types(node, "Tindices", "T", "Tindices")
        )


def _updated(tensor: Any, indices: Any, updates: Any) -> Any:
    """Return a tensor with updates at some places, each with one update."""
    shape = tf.shape(tensor, out_type=indices.dtype)
    return tf.where(_counts(indices, updates, shape) > 0, tf.scatter_nd(indices, updates, shape), tensor)


def _scattered(indices: Any, updates: Any, shape: Any) -> Any:
    """Return updates at some places, each with one update, and zeros elsewhere."""
    scattered = tf.scatter_nd(indices, updates, shape)
    return tf.where(_counts(indices, updates, shape) > 0, scattered, tf.zeros_like(scattered))


def _averaged(tensor: Any, indices: Any, updates: Any) -> Any:
    """Return a tensor with the averages of updates at some places."""
    shape = tf.shape(tensor, out_type=indices.dtype)
    counts, sums = _counts(indices, updates, shape), tf.scatter_nd(indices, updates, shape)
    return tf.where(counts > 0, sums / tf.cast(tf.maximum(counts, 1), updates.dtype), tensor)


def _updated_by_average(tensor: Any, indices: Any, updates: Any) -> Any:
    """Return a tensor with the averages of updates at some places, as computed in int32."""
    shape = tf.shape(tensor, out_type=indices.dtype)
    counts = _counts(indices, updates, shape)
    averages = _integer_sums(indices, updates, shape) // tf.maximum(counts, 1)
    return tf.where(counts > 0, tf.cast(averages, updates.dtype) / _STEPS, tensor)


def _sums(indices: Any, updates: Any, shape: Any) -> Any:
    """Return the sums of updates at some places, and zeros elsewhere, as computed in int32."""
    return tf.cast(_integer_sums(indices, updates, shape), updates.dtype) / _STEPS


def _integer_sums(indices: Any, updates: Any, shape: Any) -> Any:
    """Return the sums of updates in int32, in which zero is zero, as multiples of a step."""
    return tf.scatter_nd(indices, tf.cast(updates * _STEPS, tf.int32), shape)


def _counts(indices: Any, updates: Any, shape: Any) -> Any:
    """Return the numbers of updates that go to each place."""
    return tf.scatter_nd(indices, tf.ones_like(updates, tf.int32), shape)


def _is_float(node: Any, op: str) -> bool:
    return bool(node.op == op and node.attr["T"].type == tf.float32.as_datatype_enum)


def _types(node: Any, *attributes: str) -> list[int]:
    return [int(node.attr[name].type) for name in attributes]


def _may_repeat(indices: str, nodes: Mapping[str, Any]) -> bool:
    """Check whether several updates may go to the same place: its indices are repeated or unknown."""
    while (node := nodes.get(node_of(indices))) is not None and node.op == "Identity":
        indices = node.input[0]
    if node is None or node.op != "Const":
        return True
    places = tf.make_ndarray(node.attr["value"].tensor)
    rows = places.reshape(-1, places.shape[-1])
    return len(np.unique(rows, axis=0)) < len(rows)
