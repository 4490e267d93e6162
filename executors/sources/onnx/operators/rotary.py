"""The rotation of queries and keys by their positions (Su et al. 2021)."""

from typing import Any

import keras
import numpy as np

from executors.sources.onnx.builder import Builder
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.operators.shapes import reshaped_to, with_heads
from executors.sources.onnx.registry import Argument, Node, constant, operator, tensor
from executors.sources.onnx.values import Value


@operator("RotaryEmbedding")
def rotary(builder: Builder, node: Node, data: Argument, *angles: Argument) -> Value:
    """Rotate pairs of entries of each head by the angles of its position."""
    value = tensor(data)
    cosines, sines, places = (*angles, None)[:3]
    heads = with_heads(builder, value, node.get("num_heads"))
    rotated = _rotated(builder, node, heads, (cosines, sines), places)
    return rotated if value.rank == 4 else reshaped_to(builder, rotated.swapped(1, 2), value.shape)


def _rotated(
    builder: Builder, node: Node, value: Value, caches: tuple[Argument, Argument], places: Argument
) -> Value:
    """Rotate the first entries of each head of a value [n, heads, positions, width]."""
    value = builder.moved_last(value, 3)
    width = node.get("rotary_embedding_dim", 0) or value.size(3)
    pairs = bool(node.get("interleaved", 0))
    cosine, sine = (_angles(builder, value, cache, places) for cache in caches)
    turned = value.tensor if width == value.size(3) else value.tensor[..., :width]
    made = keras.ops.add(
        keras.ops.multiply(turned, _for_both(builder, cosine, cosine, pairs)),
        keras.ops.multiply(_exchanged(builder, turned, pairs), _for_both(builder, -sine, sine, pairs)),
    )
    if width < value.size(3):
        made = keras.ops.concatenate([made, value.tensor[..., width:]], axis=-1)
    return Value(made, value.axes)


def _angles(builder: Builder, value: Value, cache: Argument, places: Argument) -> Any:
    """Return a function of the angles of each position, for the first of each pair of entries.

    Its axes are where those of the value stand, with half as many entries on the last.
    """
    if isinstance(places, Value):
        table = constant(cache, "cache for computed positions").astype(np.float32)
        looked_up = keras.ops.take(table, builder.as_in_onnx(places).tensor, axis=0)
        cache = Value(looked_up, (0, 1, 2))
    if isinstance(cache, Value):
        if cache.rank != 3 or cache.batch != 0:
            raise UnsupportedNodeError(f"has a cache of shape {cache.shape}; expected one for each position")
        apart = reshaped_to(builder, cache, (None, 1, cache.size(1), cache.size(2)))
        return builder.laid_out(apart, value.axes).tensor
    array = constant(cache, "cache")
    array = array if places is None else array[constant(places, "positions")]
    if np.any(array != array[:1]):
        raise UnsupportedNodeError("has positions that differ along the batch")
    return builder.constant(array[:1, None], value)


def _for_both(builder: Builder, first: Any, second: Any, pairs: bool) -> Any:
    """Return factors for all entries, given those of the first and of the second of each pair."""
    stored = isinstance(first, np.ndarray)
    functions: Any = np if stored else keras.ops
    if not pairs:
        return functions.concatenate([first, second], axis=-1)
    joined, shape = functions.stack([first, second], axis=-1), (*first.shape[1:-1], 2 * first.shape[-1])
    return joined.reshape(1, *shape) if stored else builder.reshaped(joined, shape)


def _exchanged(builder: Builder, entries: Any, pairs: bool) -> Any:
    """Return entries in which the two of each pair have changed places: neighbours, or both halves."""
    half = entries.shape[-1] // 2
    if not pairs:
        return keras.ops.concatenate([entries[..., half:], entries[..., :half]], axis=-1)
    shape = entries.shape[1:]
    apart = builder.reshaped(entries, (*shape[:-1], half, 2))
    exchanged = keras.ops.concatenate([apart[..., 1:], apart[..., :1]], axis=-1)
    return builder.reshaped(exchanged, shape)
