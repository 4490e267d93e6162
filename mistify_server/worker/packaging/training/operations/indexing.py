"""Gather, tile, slice, reshape and resize operations with gradients that LiteRT has."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.training.operations.builtins import UntrainableError, replaces


@replaces("GatherV2")
def _gather(operation: Any, table: Any, indices: Any, axis: Any) -> Any:
    """Replace a gather along the first axis; the gradients of other gathers use the same operations."""
    if tf.get_static_value(operation.inputs[2]) != 0 or operation.get_attr("batch_dims"):
        return tf.gather(table, indices, axis=axis, batch_dims=operation.get_attr("batch_dims"))
    rows, *row = table.shape

    @tf.custom_gradient
    def gather(table: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            read = tf.one_hot(tf.reshape(indices, [-1]), rows)
            flat = tf.reshape(upstream, [-1, int(np.prod(row))])
            return tf.reshape(tf.matmul(read[None], flat[None], transpose_a=True), [rows, *row])

        return tf.gather(table, indices), gradient

    return gather(table)


@replaces("Tile")
def _tile(operation: Any, x: Any, multiples: Any) -> Any:
    """Replace a tile operation, whose gradient in TensorFlow has twice as many dimensions."""

    @tf.custom_gradient
    def tile(x: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            for dimension, size in enumerate(x.shape):
                copies = tf.split(upstream, upstream.shape[dimension] // size, dimension)
                upstream = tf.add_n(copies) if len(copies) > 1 else upstream
            return upstream

        return tf.tile(x, multiples), gradient

    return tile(x)


@replaces("StridedSlice")
def _strided_slice(operation: Any, x: Any, *bounds: Any) -> Any:
    masks = {name: operation.get_attr(name) for name in (*_MASKS, "new_axis_mask")}

    @tf.custom_gradient
    def pick(x: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            slices = list(_slices(operation, x.shape))
            kept = [len(range(size)[index]) for index, size in zip(slices, x.shape, strict=True)]
            whole = tf.reshape(upstream, kept)
            for dimension, (index, size) in enumerate(zip(slices, x.shape, strict=True)):
                whole = _put_back(whole, dimension, range(size)[index], size)
            return whole

        made = tf.raw_ops.StridedSlice(
            input=x, **dict(zip(("begin", "end", "strides"), bounds, strict=True)), **masks
        )
        return made, gradient

    return pick(x)


#: Attributes with one bit per entry of a slice.
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "shrink_axis_mask")


def _slices(operation: Any, shape: Any) -> Iterator[slice]:
    """Yield the slice of each dimension of the input."""
    begins, ends, steps = (tf.get_static_value(bound) for bound in operation.inputs[1:])
    if begins is None or ends is None or steps is None:
        raise UntrainableError("a slice with computed bounds")
    begin, end, ellipsis, shrink = (operation.get_attr(name) for name in _MASKS)
    new = operation.get_attr("new_axis_mask")
    named = sum(not (ellipsis | new) >> entry & 1 for entry in range(len(begins)))
    dimension = 0
    for entry, bounds in enumerate(zip(begins, ends, steps, strict=True)):
        if ellipsis >> entry & 1:
            yield from [slice(None)] * (len(shape) - named)
            dimension += len(shape) - named
        elif not new >> entry & 1:
            first, last, step = map(int, bounds)
            if shrink >> entry & 1:
                first %= shape[dimension]
                yield slice(first, first + 1)
            else:
                yield slice(None if begin >> entry & 1 else first, None if end >> entry & 1 else last, step)
            dimension += 1
    yield from [slice(None)] * (len(shape) - dimension)


def _put_back(gradient: Any, dimension: int, places: range, size: int) -> Any:
    """Return the gradient at some positions of a dimension, padded with zeros elsewhere."""
    if places == range(size):
        return gradient
    if places.step == 1:
        margin = [[0, 0]] * len(gradient.shape)
        margin[dimension] = [places.start, size - places.stop]
        return tf.pad(gradient, margin)
    spread = np.zeros(size, np.int32)
    spread[list(places)] = np.arange(1, 1 + len(places))
    margin = [[0, 0]] * len(gradient.shape)
    margin[dimension] = [1, 0]
    return tf.gather(tf.pad(gradient, margin), spread, axis=dimension)


@replaces("Reshape")
def _reshaped(operation: Any, x: Any, shape: Any) -> Any:
    """Replace a computed shape by the known sizes.

    The converter does not compute a shape from slices with gradients of their own, and would lose the sizes,
    without which LiteRT has no convolution with a constant kernel.
    """
    known = operation.outputs[0].shape
    if known.rank is not None and known.as_list().count(None) <= 1:
        shape = [-1 if size is None else size for size in known]
    return tf.reshape(x, shape)


@replaces("ResizeNearestNeighbor", "ResizeBilinear")
def _resized(operation: Any, image: Any, size: Any) -> Any:
    """Replace a resize; its gradient is a product with a row matrix and a column matrix."""
    resized = operation.outputs[0].shape[1:3]
    resize = getattr(tf.raw_ops, operation.type)
    options = {name: operation.get_attr(name) for name in ("align_corners", "half_pixel_centers")}
    matrices = [
        _matrix(resize, before, after, options)
        for before, after in zip(image.shape[1:3], resized, strict=True)
    ]

    @tf.custom_gradient
    def apply(image: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            (height, width), (rows, columns) = image.shape[1:3], resized
            channels = image.shape[-1]
            lines = tf.reshape(upstream, [-1, rows, columns * channels])
            across = tf.reshape(tf.matmul(_each(matrices[0], lines), lines), [-1, columns, channels])
            return tf.reshape(tf.matmul(_each(matrices[1], across), across), [-1, height, width, channels])

        return resize(images=image, size=size, **options), gradient

    return apply(image)


def _matrix(resize: Any, before: int, after: int, options: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the weight of each old row in each new row, [before, after]."""
    with tf.init_scope():
        rows = tf.eye(before)[:, :, None, None]
        weights: np.ndarray[Any, Any] = resize(images=rows, size=[after, 1], **options).numpy()[:, :, 0, 0]
    return weights


def _each(matrix: np.ndarray[Any, Any], batch: Any) -> Any:
    """Return the matrix repeated for each example of a batch."""
    return tf.tile(tf.constant(matrix)[None], [batch.shape[0], 1, 1])
