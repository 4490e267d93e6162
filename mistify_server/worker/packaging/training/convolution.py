"""Convolutions as matrix products: the image as one row of taps reads it, times all rows of the kernel.

LiteRT's own convolution is fast for constant kernels only: with one that is trained it takes three to five
times as long as these products. Images are [groups * n, rows, columns, channels of a group], kernels
[groups, rows, columns, channels read, channels made].
"""

from typing import Any

import tensorflow as tf

from mistify_server.worker.packaging.training.builtins import UntrainableError, replaces
from mistify_server.worker.packaging.training.windows import WindowAxis, bands_read, cut, fitted, spread

#: Numbers that fit into the cache of one processor core.
_CACHED = 1 << 19

#: Numbers of parts into which a batch may be split; each part has operators of its own.
_PARTS = (1, 2, 4)


def _convolved(image: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    groups, _, across, read, made = kernel.shape
    parts = []
    for phase, band in bands_read(fitted(image, rows, columns), rows, columns).items():
        taps = rows.taps(phase)
        weights = [tf.reshape(kernel[:, tap], [groups, across * read, made]) for tap in taps]
        product = _product(band, weights)
        parts += [_cut(product, rows.place(tap)[0], rows.made, at, made) for at, tap in enumerate(taps)]
    return _sum(parts)


def _image_gradient(gradient: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    _, _, _, read, _ = kernel.shape
    turned = tf.transpose(kernel, [0, 1, 2, 4, 3])

    def part(upstream: Any, down: list[int], across: list[int]) -> Any:
        weights = [tf.concat([turned[:, tap, column] for column in across], 1) for tap in down]
        product = _product(upstream, weights)
        first = [rows.reach - rows.place(tap)[0] for tap in down]
        return _sum([_cut(product, block, rows.blocks, at, read) for at, block in enumerate(first)])

    return spread(gradient, rows, columns, part)


def _kernel_gradient(image: Any, gradient: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    groups, _, across, read, made = kernel.shape
    by_tap: dict[int, Any] = {}
    for phase, band in bands_read(fitted(image, rows, columns), rows, columns).items():
        taps = rows.taps(phase)
        placed = _side_by_side([_among_blocks(gradient, rows, tap) for tap in taps], 3)
        upstream = tf.reshape(placed, [-1, rows.blocks * columns.made, len(taps) * made])
        read_there = tf.reshape(band, [-1, rows.blocks * columns.made, across * read])
        # Image by image, which fits into a cache.
        each = tf.matmul(read_there, upstream, transpose_a=True)
        product = tf.reduce_sum(tf.reshape(each, [groups, -1, *each.shape[1:]]), 1)
        by_tap.update(zip(taps, tf.split(product, len(taps), 2), strict=True))
    ordered = [by_tap[tap] for tap in range(rows.kernel)]
    return tf.reshape(tf.stack(ordered, 1), kernel.shape)


def _product(band: Any, weights: list[Any]) -> Any:
    """Return the products of a band [n, h, w, read] with several matrices, side by side."""
    groups, read, _ = weights[0].shape
    _, height, width, _ = band.shape
    # TensorFlow's product of images of one row with one matrix for all writes beyond its memory (oneDNN).
    if groups == 1 and height > 1:
        # Without reshaping it, which would copy it.
        return tf.matmul(band, tf.expand_dims(_side_by_side(weights, 2), 0))
    product = tf.matmul(tf.reshape(band, [groups, -1, read]), _side_by_side(weights, 2))
    return tf.reshape(product, [-1, height, width, product.shape[-1]])


def _cut(product: Any, block: int, blocks: int, number: int, channels: int) -> Any:
    """Return some rows of the product with one of several matrices."""
    return cut(product, [0, block, 0, number * channels], [-1, blocks, -1, channels])


def _among_blocks(gradient: Any, rows: WindowAxis, tap: int) -> Any:
    """Pad the gradient of the places so that it lies at the blocks that a tap of the rows reads."""
    block, _ = rows.place(tap)
    return tf.pad(gradient, [[0, 0], [block, rows.reach - block], [0, 0], [0, 0]]) if rows.reach else gradient


def _side_by_side(parts: list[Any], axis: int) -> Any:
    return tf.concat(parts, axis) if len(parts) > 1 else parts[0]


def _sum(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _apart(image: Any, groups: int) -> Any:
    """Return the groups of the channels as examples of their own."""
    if groups == 1:
        return image
    _, height, width, channels = image.shape
    split = tf.reshape(image, [-1, height, width, groups, channels // groups])
    return tf.reshape(tf.transpose(split, [3, 0, 1, 2, 4]), [-1, height, width, channels // groups])


def _together(image: Any, groups: int) -> Any:
    if groups == 1:
        return image
    _, height, width, channels = image.shape
    split = tf.transpose(tf.reshape(image, [groups, -1, height, width, channels]), [1, 2, 3, 0, 4])
    return tf.reshape(split, [-1, height, width, groups * channels])


def _kernel_apart(kernel: Any, groups: int) -> Any:
    """Reshape [rows, columns, read, groups * made] to [groups, rows, columns, read, made]."""
    *sizes, made = kernel.shape
    if groups == 1:
        return tf.reshape(kernel, [1, *kernel.shape])
    return tf.transpose(tf.reshape(kernel, [*sizes, groups, made // groups]), [3, 0, 1, 2, 4])


def _kernel_together(kernel: Any) -> Any:
    groups, *sizes, made = kernel.shape
    if groups == 1:
        return tf.reshape(kernel, kernel.shape[1:])
    return tf.reshape(tf.transpose(kernel, [1, 2, 3, 0, 4]), [*sizes, groups * made])


def axes_of(operation: Any, image: Any, kernel: Any) -> tuple[WindowAxis, WindowAxis]:
    """Return how the kernel of a two-dimensional operation moves along rows and columns.

    Args:
        operation: The operation, whose attributes are read.
        image: The shape of the image [n, rows, columns, channels].
        kernel: The shape of the kernel, rows and columns first.

    Raises:
        UntrainableError: Channels are not the last axis, sizes are free, or the padding is explicit.
    """
    if operation.get_attr("data_format") != b"NHWC":
        raise UntrainableError("a convolution whose channels are not the last axis")
    strides, dilations = operation.get_attr("strides"), operation.get_attr("dilations")
    padding = operation.get_attr("padding").decode()
    rows, columns = (
        WindowAxis.of(kernel[at], strides[at + 1], dilations[at + 1], image[at + 1], padding) for at in (0, 1)
    )
    return rows, columns


@replaces("Conv2D")
def _convolution(operation: Any, image: Any, kernel: Any) -> Any:
    rows, columns = axes_of(operation, image.shape, kernel.shape)
    groups = image.shape[-1] // kernel.shape[2]

    @tf.custom_gradient
    def convolve(image: Any, kernel: Any) -> Any:
        apart, weights = _apart(image, groups), _kernel_apart(kernel, groups)

        def gradient(upstream: Any) -> Any:
            apart_upstream = _apart(upstream, groups)
            back = _together(_image_gradient(apart_upstream, weights, rows, columns), groups)
            return back, _kernel_together(_kernel_gradient(apart, apart_upstream, weights, rows, columns))

        return _together(_convolved(apart, weights, rows, columns), groups), gradient

    parts = tf.split(image, _parts(image.shape[0], kernel.shape, rows, columns))
    return _side_by_side([convolve(part, kernel) for part in parts], 0)


def _parts(batch: int | None, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> int:
    """Return into how many equal parts a batch is split, so that one part fits into a cache."""
    numbers = (batch or 0) * rows.padded * columns.made * columns.kernel * kernel[2]
    possible = [parts for parts in _PARTS if batch and batch % parts == 0] or [1]
    return next((parts for parts in possible if numbers <= parts * _CACHED), possible[-1])


@replaces("Conv2DBackpropInput")
def _transposed_convolution(operation: Any, sizes: Any, kernel: Any, image: Any) -> Any:
    """Replace a transposed convolution.

    It is the gradient of a convolution, used as a layer: its own gradients are those of the convolution.
    """
    rows, columns = axes_of(operation, operation.outputs[0].shape, kernel.shape)

    @tf.custom_gradient
    def convolve(kernel: Any, image: Any) -> Any:
        weights = _kernel_apart(kernel, 1)

        def gradient(upstream: Any) -> Any:
            back = _kernel_gradient(upstream, image, weights, rows, columns)
            return _kernel_together(back), _convolved(upstream, weights, rows, columns)

        return _image_gradient(image, weights, rows, columns), gradient

    return convolve(kernel, image)
