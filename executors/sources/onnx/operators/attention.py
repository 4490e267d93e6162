"""Attention as an operator of its own."""

from typing import Any

import keras
import numpy as np

from executors.sources.onnx.batch import Array
from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.masks import LOW, excludes_all, masked, with_choice
from executors.sources.onnx.operators.dense import product
from executors.sources.onnx.operators.shapes import reshaped_to, with_heads
from executors.sources.onnx.registry import Argument, Node, constant, operator, tensor
from executors.sources.onnx.values import Value

layers = keras.layers


@operator("Attention")
def attention(
    builder: Builder, node: Node, query: Argument, key: Argument, value: Argument, *others: Argument
) -> list[Value]:
    """Build an attention layer together with its projections, and products with a softmax otherwise."""
    mask, earlier_keys, earlier_values, lengths = (*others, *[None] * 4)[:4]
    if lengths is not None:
        raise UnsupportedNodeError("has sequences of different lengths")
    queries = with_heads(builder, tensor(query), node.get("q_num_heads"))
    shared = node.get("kv_num_heads")
    keys = _after(builder, earlier_keys, with_heads(builder, tensor(key), shared))
    values = _after(builder, earlier_values, with_heads(builder, tensor(value), shared))
    heads = queries.size(1)
    scores = product(builder, queries, _repeated(keys, heads).swapped(2, 3))
    scores = scores.with_tensor(_scaled(builder, node, scores.tensor, queries.size(3)))
    earlier = 0 if earlier_keys is None else tensor(earlier_keys).size(2)
    made = _masked(builder, node, scores, mask, earlier)
    shares = layers.Softmax(axis=-1, name=builder.plain(node))(made)
    mixed = product(builder, scores.with_tensor(shares), _repeated(values, heads))
    if tensor(query).rank == 3:
        merged = (None, queries.size(2), heads * values.size(3))
        mixed = reshaped_to(builder, mixed.swapped(1, 2), merged)
    return [mixed, keys, values]


def _after(builder: Builder, earlier: Argument, value: Value) -> Value:
    """Return keys or values after those of earlier calls, which the network has as an input."""
    if earlier is None:
        return value
    parts = [builder.laid_out(each, value.axes).tensor for each in (tensor(earlier), value)]
    cache = layers.Concatenate(axis=value.position(2), name=builder.helper("cache"))
    return value.with_tensor(cache(parts))


def _repeated(value: Value, heads: int) -> Value:
    """Return a tensor with each head repeated for all heads of queries that share it."""
    if value.size(1) == heads:
        return value
    repeats, axis = heads // value.size(1), value.position(1)
    return value.with_tensor(keras.ops.repeat(value.tensor, repeats, axis=axis))


def _scaled(builder: Builder, node: Node, scores: Any, width: int) -> Any:
    """Return scaled scores, which `softcap` may limit."""
    factor, limit = float(node.get("scale", 1 / np.sqrt(width))), float(node.get("softcap", 0.0))
    if not limit:
        return layers.Rescaling(factor, name=builder.helper("scale"))(scores)
    scores = layers.Rescaling(factor / limit, name=builder.helper("scale"))(scores)
    return layers.Rescaling(limit, name=builder.helper("scale"))(keras.ops.tanh(scores))


def _masked(builder: Builder, node: Node, scores: Value, mask: Argument, earlier: int) -> Any:
    """Return scores [n, heads, queries, keys] that are very low where a query must not read a key.

    Args:
        earlier: Number of keys before those at the positions of the queries.
    """
    queries, keys = scores.size(2), scores.size(3)
    allowed, result = _window(node, queries, keys, earlier), scores.tensor
    if isinstance(mask, Value):
        if mask.rank != 4 or mask.batch != 0 or mask.size(3) != keys:
            raise UnsupportedNodeError(f"has a mask of shape {mask.shape}; expected one for {keys} keys")
        placed = builder.as_in_onnx(mask).tensor
        chooses = placed.dtype == "bool"
        result = masked(result, placed) if chooses else with_choice(keras.ops.add(result, placed))
    elif mask is not None:
        addends = _addends(constant(mask, "mask"), keys)
        within = addends > LOW
        allowed = within if allowed is None else allowed & within
        if np.any(addends[within]):
            result = keras.ops.add(result, builder.constant(np.where(within, addends, 0), scores))
    if allowed is None or allowed.all():
        return result
    if excludes_all(allowed):
        raise UnsupportedNodeError("has a query that must not read any key")
    return masked(result, builder.constant(allowed, scores))


def _window(node: Node, queries: int, keys: int, earlier: int) -> Array | None:
    """Return which keys each query may read by its position [queries, keys]; None if all."""
    before, after = node.get("left_window_size", -1), node.get("right_window_size", -1)
    after = 0 if node.get("is_causal") else after
    distance = np.arange(keys) - np.arange(queries)[:, None] - earlier
    allowed = np.ones(distance.shape, bool)
    if before >= 0:
        allowed &= distance >= -before
    if after >= 0:
        allowed &= distance <= after
    return allowed if before >= 0 or after >= 0 else None


def _addends(mask: Array, keys: int) -> Array:
    """Return a mask of truth values or of addends as addends for all keys; keys beyond it are excluded."""
    addends = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
    return np.pad(addends, missing, constant_values=-np.inf).astype(np.float32)
