"""Convolutions with few channels: two output columns at once, with one product for all kernel rows.

XNNPACK multiplies in tiles of 7 x 32, of which 16 channels would fill half. Two columns of a padded image are
side by side in memory, and two such pairs have all that three taps read for two columns of the output. The
product has a part for each row of the kernel, which are cut and added, for one part of the batch after
another, so that a part stays in a cache. Images are [n, rows, columns, channels], kernels [1, rows, columns,
channels read, channels made].
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.training.operations.convolutions.block_axes import BlockAxis
from mistify_server.worker.packaging.training.operations.convolutions.connections import (
    both,
    kernel_of,
    matrix_of,
)
from mistify_server.worker.packaging.training.operations.windows import WindowAxis, cut, gathered, padded

#: Numbers of channels that fill a quarter to half of a tile.
_CHANNELS: Final = range(8, 17)

#: Image elements per part, such that results fit into the cache of a processor core.
_PART: Final = 1 << 17


def fits(kernel: Any, rows: WindowAxis, columns: WindowAxis) -> bool:
    """Return whether column pairs are the fastest method for a kernel of this shape."""
    groups, _, across, read, made = kernel
    return (
        groups == rows.stride == 1
        and across % 2 == 1
        and read in _CHANNELS
        and made in _CHANNELS
        and all(axis.pairable for axis in (BlockAxis.of_outputs(columns), BlockAxis.of_gradients(columns)))
    )


def convolved(image: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    """Return the convolution of an image, [n, output rows, output columns, output channels]."""
    return _multiplied(image, kernel, BlockAxis.of_outputs(rows), BlockAxis.of_outputs(columns))


def image_gradient(gradient: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    """Return the gradient of an image from the gradient of the output."""
    turned = tf.transpose(kernel, [0, 1, 2, 4, 3])
    return _multiplied(gradient, turned, BlockAxis.of_gradients(rows), BlockAxis.of_gradients(columns))


def kernel_gradient(image: Any, gradient: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    """Return the gradient of a kernel from the image and the gradient of the output.

    Like `image_gradient`, this reads the gradient in pairs, which are computed once for both.
    """
    down, across = BlockAxis.of_gradients(rows), BlockAxis.of_gradients(columns).paired()
    table = _table(down, across, kernel.shape[2])
    places, offsets = across.windows.outputs, np.array(_offsets(down))

    def part(image: Any, gradient: Any) -> Any:
        pairs = _pairs(gradient, down.windows, across.windows)
        height, before = pairs.shape[1] // places, int(offsets.max())
        image = padded(image, [(before, height - rows.size), (0, 0)])
        read = (np.arange(height)[:, None, None] - offsets + before) * places + np.arange(places)[:, None]
        placed = gathered(image, read.reshape(-1, len(offsets)), 2)
        return tf.reduce_sum(tf.matmul(pairs, placed, transpose_a=True), 0, keepdims=True)

    total = None
    for cut_part in _parts(image):
        product = part(cut_part(image), cut_part(gradient))
        total = product if total is None else total + product
    turned = kernel_of(total, table, [1, *kernel.shape[1:3], kernel.shape[4], kernel.shape[3]])
    return tf.transpose(turned, [0, 1, 2, 4, 3])


def _multiplied(image: Any, kernel: Any, rows: BlockAxis, columns: BlockAxis) -> Any:
    columns, made = columns.paired(), 2 * kernel.shape[-1]
    matrix = matrix_of(kernel, _table(rows, columns, kernel.shape[2]))
    places, outputs = columns.windows.outputs, rows.windows.outputs

    def part(image: Any) -> Any:
        product = tf.matmul(_pairs(image, rows.windows, columns.windows), matrix)
        total = None
        for at, offset in enumerate(_offsets(rows)):
            rows_read = cut(product, [0, offset * places, at * made], [-1, outputs * places, made])
            total = rows_read if total is None else total + rows_read
        return tf.reshape(total, [-1, outputs, 2 * places, kernel.shape[-1]])

    parts = [part(cut_part(image)) for cut_part in _parts(image)]
    return tf.concat(parts, 0) if len(parts) > 1 else parts[0]


def _offsets(rows: BlockAxis) -> list[int]:
    """Return the first row of the padded image that each kernel row reads."""
    return [int(row) for row in rows.windows.read[0]]


def _table(rows: BlockAxis, columns: BlockAxis, across: int) -> Any:
    """Return the tap between a column of two pairs and a combination of kernel row and output column."""
    return both(rows.taps[None, :, :], columns.taps[:, None, :], across).reshape(len(columns.taps), -1)


def _pairs(image: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    """Return the inputs of each output pair side by side, [n, input rows * pairs, input columns * c]."""
    image = padded(image, [(axis.before, axis.after) for axis in (rows, columns)])
    _, height, width, _ = image.shape
    starts = np.arange(height)[:, None] * (width // 2) + np.arange(columns.outputs)
    read = starts.reshape(-1, 1) + np.arange(columns.kernel // 2)
    return gathered(image, read, 2)


def _parts(image: Any) -> list[Callable[[Any], Any]]:
    """Return functions that slice the parts of a batch from a tensor."""
    batch, *sizes = image.shape
    if batch is None:
        return [lambda tensor: tensor]
    most = max(_PART // (sizes[0] * sizes[1] * sizes[2]), 1)
    size = max(number for number in range(1, min(most, batch) + 1) if batch % number == 0)
    if size == batch:
        return [lambda tensor: tensor]
    return [partial(_examples, first=first, count=size) for first in range(0, batch, size)]


def _examples(tensor: Any, first: int, count: int) -> Any:
    return cut(tensor, [first, 0, 0, 0], [count, -1, -1, -1])
