"""Convolutions as a single matrix product each, of all gathered windows with the kernel.

XNNPACK multiplies in tiles of 7 x 32: one matrix with the windows of all images fills them, one of 8 rows for
each row of an image does not. LiteRT's gather is as fast as a copy. Images are [groups * n, rows, columns,
channels of a group], kernels [groups, rows, columns, channels read, channels made].
"""

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.training.operations.convolutions.block_axes import BlockAxis
from mistify_server.worker.packaging.training.operations.convolutions.connections import (
    both,
    kernel_of,
    matrix_of,
)
from mistify_server.worker.packaging.training.operations.windows import WindowAxis, cut, gathered, padded

#: Columns of a tile in XNNPACK's products; with half as many channels, two columns are computed at once.
_TILE = 32

#: Rows of each partial product for the gradient of a kernel, such that one fits into the cache.
_ROWS = 1024

#: Ratio of output to image channels from which an image counts as having few channels.
_FEW = 4


class _Blocks(NamedTuple):
    """Blocks of outputs along the rows and columns."""

    rows: BlockAxis
    columns: BlockAxis

    @classmethod
    def of(cls, rows: BlockAxis, columns: BlockAxis, channels: int) -> "_Blocks":
        """Return blocks for a number of channels, with two columns each if that fills a tile."""
        paired = 2 * channels <= _TILE and rows.taps.shape[1] == 1 and columns.pairable
        return cls(rows, columns.paired() if paired else columns)

    @property
    def table(self) -> np.ndarray[Any, Any]:
        """Return the tap between each position of a window and each output, [positions, outputs]."""
        rows, columns = self.rows.taps, self.columns.taps
        taps = both(rows[:, None, :, None], columns[None, :, None, :], columns.max() + 1)
        return taps.reshape(len(rows) * len(columns), -1)


def convolved(image: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    """Return the convolution of an image, [groups * n, output rows, output columns, output channels]."""
    made = kernel.shape[-1]
    blocks = _Blocks.of(BlockAxis.of_outputs(rows), BlockAxis.of_outputs(columns), made)
    return _outputs(image, matrix_of(kernel, blocks.table), blocks, made)


def image_gradient(gradient: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    """Return the gradient of an image from the gradient of the output."""
    read = kernel.shape[3]
    blocks = _Blocks.of(BlockAxis.of_gradients(rows), BlockAxis.of_gradients(columns), read)
    turned = tf.transpose(kernel, [0, 1, 2, 4, 3])
    image = _outputs(gradient, matrix_of(turned, blocks.table), blocks, read)
    begin = [axis.before % axis.stride for axis in (rows, columns)]
    if image.shape[1:3] == (rows.size, columns.size):
        return image
    return cut(image, [0, *begin, 0], [-1, rows.size, columns.size, -1])


def kernel_gradient(image: Any, gradient: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    """Return the gradient of a kernel from the image and the gradient of the output.

    Without a stride, the windows are those of `image_gradient`, gathered once for both. Windows of an image
    with few channels are smaller: such an image is usually the network's input, for which no gradient is
    needed.
    """
    *_, read, made = kernel.shape
    if rows.stride == columns.stride == 1 and read * _FEW > made:
        blocks = _Blocks.of(BlockAxis.of_gradients(rows), BlockAxis.of_gradients(columns), read)
        turned = _connected(image, gradient, kernel.shape, blocks)
        return tf.transpose(turned, [0, 1, 2, 4, 3])
    blocks = _Blocks.of(BlockAxis.of_outputs(rows), BlockAxis.of_outputs(columns), made)
    return _connected(gradient, image, kernel.shape, blocks)


def _windows(image: Any, blocks: _Blocks) -> Any:
    """Return the inputs of each block side by side, [groups * n, blocks, positions * channels]."""
    rows, columns = blocks.rows.windows, blocks.columns.windows
    image = padded(image, [(axis.before, axis.after) for axis in (rows, columns)])
    _, height, width, channels = image.shape
    places, positions = rows.outputs * columns.outputs, rows.kernel * columns.kernel
    unit = math.gcd(columns.kernel, columns.stride, width) if columns.dilation == 1 else 1
    read = rows.read[:, None, :, None] * (width // unit) + columns.read[None, :, None, ::unit] // unit
    if np.array_equal(read.ravel(), np.arange(height * width // unit)):
        return tf.reshape(image, [-1, places, positions * channels])
    return gathered(image, read.reshape(places, -1), unit)


def _outputs(image: Any, matrix: Any, blocks: _Blocks, channels: int) -> Any:
    """Return the product of all windows with a matrix as an image."""
    groups, width, _ = matrix.shape
    rows, columns = blocks.rows.windows.outputs, blocks.columns.windows.outputs
    down, across = (axis.taps.shape[1] for axis in blocks)
    product = tf.matmul(tf.reshape(_windows(image, blocks), [groups, -1, width]), matrix)
    if down > 1:
        lines = tf.reshape(product, [-1, columns, down, across * channels])
        product = tf.transpose(lines, [0, 2, 1, 3])
    return tf.reshape(product, [-1, rows * down, columns * across, channels])


def _connected(outputs: Any, image: Any, kernel: Any, blocks: _Blocks) -> Any:
    """Return the gradient of a kernel with the axes of the image and the outputs as its last two axes."""
    groups, down, across, *_ = kernel
    windows, made = _windows(image, blocks), outputs.shape[-1]
    apart = tf.reshape(outputs, [-1, windows.shape[1], blocks.table.shape[1] * made])
    matrix = _transposed_product(windows, apart, groups)
    return kernel_of(matrix, blocks.table, [groups, down, across, image.shape[-1], made])


def _transposed_product(windows: Any, outputs: Any, groups: int) -> Any:
    """Return the product of all rows of two matrices, computed for a few images at a time."""
    images, places, _ = windows.shape
    count = (images or groups) // groups
    most = max(_ROWS // places, 1)
    together = max(number for number in range(1, most + 1) if count % number == 0)
    parts = [tf.reshape(part, [-1, together * places, part.shape[-1]]) for part in (windows, outputs)]
    each = tf.matmul(*parts, transpose_a=True)
    if images == together * groups:
        return each
    return tf.reduce_sum(tf.reshape(each, [groups, -1, *each.shape[1:]]), 1)
