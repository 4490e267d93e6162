"""Depthwise convolutions with separate kernels per channel, [rows, columns, channels, multiplier]."""

from typing import Any

import tensorflow as tf

from mistify_server.worker.packaging.training.operations.builtins import replaces
from mistify_server.worker.packaging.training.operations.convolutions.convolution import axes_of
from mistify_server.worker.packaging.training.operations.windows import (
    WindowAxis,
    fitted,
    rows_read,
    scattered,
)


@replaces("DepthwiseConv2dNative")
def _depthwise(operation: Any, image: Any, kernel: Any) -> Any:
    rows, columns = axes_of(operation, image.shape, kernel.shape)
    attributes = {
        name: operation.get_attr(name) for name in ("strides", "padding", "data_format", "dilations")
    }

    @tf.custom_gradient
    def convolve(image: Any, kernel: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return (
                _image_gradient(upstream, kernel, rows, columns),
                _kernel_gradient(image, upstream, kernel, rows, columns),
            )

        return tf.raw_ops.DepthwiseConv2dNative(input=image, filter=kernel, **attributes), gradient

    return convolve(image, kernel)


def _image_gradient(upstream: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    *_, channels, multiplier = kernel.shape
    split = tf.reshape(upstream, [-1, rows.outputs, columns.outputs * channels, multiplier])
    by_tap = {}
    for row in range(rows.kernel):
        for column in range(columns.kernel):
            weights = tf.tile(kernel[row, column], [columns.outputs, 1])
            product = split * weights
            summed = tf.reduce_sum(product, -1) if multiplier > 1 else product
            by_tap[row, column] = tf.reshape(summed, [-1, rows.outputs, columns.outputs, channels])
    return scattered(by_tap, rows, columns)


def _kernel_gradient(image: Any, upstream: Any, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    _, taps, channels, multiplier = kernel.shape
    flat = tf.reshape(upstream, [-1, 1, channels, multiplier])
    parts = [
        tf.reduce_sum(tf.reshape(window, [-1, taps, channels, 1]) * flat, 0)
        for window in rows_read(fitted(image, rows, columns), rows, columns)
    ]
    return tf.stack(parts)
