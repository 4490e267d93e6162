"""Attention, which exporters write as products, a softmax and changes of layout, as a single layer.

The entries that each head reads from a projection are found by moving their numbers through the layers
between them, so that neither the order of these layers nor that of queries, keys and values matters.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import takewhile
from math import prod, sqrt
from typing import Any, Final, NamedTuple

import keras
import numpy as np

from executors.sources.onnx.batch import Array
from executors.sources.onnx.builder import Builder, set_weights
from executors.sources.onnx.masks import is_causal, without_masks
from executors.structure import keras_internals

layers = keras.layers

_MATMUL: Final = keras_internals.numpy.Matmul

#: Layers that move or repeat entries, or multiply all of them by the same number.
_MOVING: Final = (
    *(layers.Reshape, layers.Permute, layers.Rescaling),
    *(keras_internals.numpy.GetItem, keras_internals.numpy.Repeat),
)

#: Number of entries that float32 can count.
_MOST_ENTRIES: Final = 2**24


class _Projection(NamedTuple):
    """The projection of an input to heads.

    Attributes:
        source: The input [n, positions, channels].
        name: The name of the dense layer that contains it.
        kernel: [channels, heads, width].
        bias: [heads, width].
        columns: The output of the dense layer that each entry of a head is [heads, width].
    """

    source: Any
    name: str
    kernel: Array
    bias: Array
    columns: Array


class _Scores(NamedTuple):
    """The product of queries and keys whose softmax is a factor.

    Attributes:
        product: Its call.
        scale: The factor of its entries.
        masks: Arrays or Keras tensors of truth values, all of which must be true to read a key.
    """

    product: Any
    scale: float
    masks: Sequence[Any]


def attended(builder: Builder, name: str, mixed: Any, kernel: Array, bias: Array | None) -> Any:
    """Return the output of an attention layer; None if a product with a kernel does not end an attention.

    Args:
        name: An unused name, for the layer of the product.
        mixed: The Keras tensor that the product reads, [n, positions, channels] for an attention.
        kernel: [channels, C_out].
    """
    path = _path(mixed, lambda operation: isinstance(operation, _MATMUL)) if len(mixed.shape) == 3 else None
    if path is None:
        return None
    product, moves = path
    scores, order = _scores(product), _order(product, moves, mixed)
    if scores is None or order is None:
        return None
    query, key = (_projection(scores.product, place, axis) for place, axis in ((0, 2), (1, 3)))
    value, masks = _projection(product, 1, 2), _mask_arguments(scores.masks)
    if query is None or key is None or value is None or masks is None:
        return None
    heads, width = query.columns.shape
    groups, value_width, channels = _groups(key, value, heads), value.columns.shape[1], kernel.shape[1]
    module = _common(query.name, name)
    shares_keys = groups < heads
    if not groups or (shares_keys and (width != value_width or channels != query.source.shape[-1])):
        return None
    name = builder.helper(module) if module else name
    if shares_keys:
        layer = layers.GroupQueryAttention(width, heads, groups, name=name)
    else:
        layer = layers.MultiHeadAttention(heads, width, value_width, output_shape=channels, name=name)
    result = layer(query.source, value.source, key.source, **masks)
    factor = np.float32(scores.scale * sqrt(width))  # which the layer divides by
    shared = slice(None, None, heads // groups)
    last = np.empty_like(kernel)
    last[order] = kernel
    weights = (
        *(query.kernel * factor, query.bias * factor, key.kernel[:, shared], key.bias[shared]),
        *(value.kernel[:, shared], value.bias[shared], last.reshape(heads, value_width, channels)),
        np.zeros(channels) if bias is None else bias,
    )
    set_weights(layer, *weights)
    return result


def _groups(key: _Projection, value: _Projection, heads: int) -> int:
    """Return the number of heads of keys and values, each of which as many successive queries share.

    It is 0 if the queries do not share them so.
    """
    groups = len(np.unique(key.columns[:, 0]))
    counts = {len(each.columns) for each in (key, value)}
    if heads % groups or not counts <= ({1, heads} if groups == 1 else {heads}):
        return 0
    repeats = heads // groups
    for columns in (key.columns, value.columns):
        every = np.broadcast_to(columns, (heads, columns.shape[1]))
        if not np.array_equal(every, np.repeat(every[::repeats], repeats, axis=0)):
            return 0
    return groups


def _mask_arguments(masks: Sequence[Any]) -> dict[str, Any] | None:
    """Return the arguments by which a layer masks its scores; None if heads have masks of their own."""
    if any(len(mask.shape) != 4 or mask.shape[1] != 1 for mask in masks):
        return None
    computed = [mask for mask in masks if keras.backend.is_keras_tensor(mask)]
    constants = [mask for mask in masks if not keras.backend.is_keras_tensor(mask)]
    causal = False
    if constants:
        constant = np.logical_and.reduce(np.broadcast_arrays(*constants))
        causal = is_causal(constant)
        computed += [] if causal else [constant]
    arguments: dict[str, Any] = {"use_causal_mask": True} if causal else {}
    if computed:
        arguments["attention_mask"] = reduce(keras.ops.logical_and, computed)
    return arguments


def _scores(product: Any) -> _Scores | None:
    """Return the scores of an attention, given its product with the values; None for other products."""
    shares = product.arguments.args[0]
    softmax = keras_internals.making_call(shares).operation
    if not isinstance(softmax, layers.Softmax) or softmax.axis not in (-1, len(shares.shape) - 1):
        return None
    scores, masks = without_masks(_input_of(shares))
    path = _path(scores, lambda operation: isinstance(operation, _MATMUL))
    if path is None or len(shares.shape) != 4:
        return None
    made, moves = path
    if not all(isinstance(move.operation, layers.Rescaling) for move in moves):
        return None
    return _Scores(made, prod(float(move.operation.scale) for move in moves), masks)


def _input_of(tensor: Any) -> Any:
    return keras_internals.making_call(tensor).arguments.keras_tensors[0]


def _path(tensor: Any, is_first: Callable[[Any], bool]) -> tuple[Any, list[Any]] | None:
    """Return the call that makes the entries of a tensor, and those that move them; None for others."""
    moves: list[Any] = []
    while True:
        call = keras_internals.making_call(tensor)
        if is_first(call.operation):
            return call, moves[::-1]
        if not isinstance(call.operation, _MOVING) or len(call.arguments.keras_tensors) != 1:
            return None
        if isinstance(call.operation, layers.Rescaling) and not _is_factor(call.operation):
            return None
        moves.append(call)
        (tensor,) = call.arguments.keras_tensors


def _is_factor(layer: keras.layers.Rescaling) -> bool:
    return np.ndim(layer.scale) == 0 and np.ndim(layer.offset) == 0 and layer.offset == 0


def _moved(array: Array, moves: Sequence[Any]) -> Array:
    """Return an array [1, ...] as the calls move it."""
    for call in moves:
        args = [array if keras.backend.is_keras_tensor(each) else each for each in call.arguments.args]
        array = call.operation(*args, **call.arguments.kwargs)
    return np.asarray(array)


def _numbered(shape: Sequence[int | None]) -> Array | None:
    """Return the number of each entry of an example [1, ...]; None if there are too many."""
    sizes = [size or 0 for size in shape[1:]]
    if not 0 < prod(sizes) < _MOST_ENTRIES:
        return None
    return np.arange(prod(sizes), dtype=np.float32).reshape(1, *sizes)


def _projection(product: Any, place: int, axis: int) -> _Projection | None:
    """Return the projection that makes a factor of a product.

    Args:
        place: Index of the factor [n, heads, positions, width], or with the last two exchanged.
        axis: The axis of its positions.
    """
    factor = product.arguments.args[place]
    path = _path(factor, lambda operation: isinstance(operation, layers.Dense))
    if path is None or len(factor.shape) != 4:
        return None
    dense, moves = path
    (source,), (made,) = dense.arguments.keras_tensors, dense.output_tensors
    numbers = _numbered(made.shape)
    plain = dense.operation.activation is keras.activations.linear
    if not plain or len(made.shape) != 3 or numbers is None:
        return None
    scales = _moved(np.ones_like(numbers), moves)
    places = np.moveaxis(_moved(numbers, moves) / scales, axis, 2)[0]  # [heads, positions, width]
    columns = np.rint(places[:, 0]).astype(int)
    positions = np.arange(places.shape[1]).reshape(1, -1, 1) * made.shape[-1]
    in_order = places.shape[1] == made.shape[1] and np.array_equal(
        np.rint(places), columns[:, None] + positions
    )
    if not in_order or columns.max() >= made.shape[-1]:
        return None
    kernel, *biases = dense.operation.get_weights()
    bias = biases[0] if biases else np.zeros(made.shape[-1], np.float32)
    scale = scales.reshape(-1)[0]
    own = (kernel[:, columns] * scale, bias[columns] * scale, columns)
    return _Projection(source, dense.operation.name, *own)


def _order(product: Any, moves: Sequence[Any], mixed: Any) -> Array | None:
    """Return the place among all heads of each channel of a tensor [n, positions, channels]."""
    (made,) = product.output_tensors
    numbers = _numbered(made.shape)
    if numbers is None or len(made.shape) != 4:
        return None
    heads, positions, width = made.shape[1:]
    moved = np.rint(_moved(numbers, moves)[0]).astype(int)
    if moved.shape != (positions, heads * width):
        return None
    head, position, unit = np.unravel_index(moved, (heads, positions, width))
    order: Array = (head * width + unit)[0]
    alike = np.array_equal(position, np.broadcast_to(np.arange(positions)[:, None], position.shape))
    return (
        order if alike and np.array_equal(head * width + unit, np.broadcast_to(order, head.shape)) else None
    )


def _common(first: str, last: str) -> str:
    """Return the name of the module that contains both layers; empty if none does."""
    parts = zip(first.split("."), last.split("."), strict=False)
    return ".".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], parts))
