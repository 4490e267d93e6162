"""Convolutions: LiteRT's own operator for constant kernels, matrix products for trained ones.

LiteRT's own convolution is only fast for constant kernels: with a trained kernel, it takes three to five
times as long. `column_pairs` has the products for few channels, `window_products` for all other cases. Images
are [groups * n, rows, columns, channels per group], kernels [groups, rows, columns, input channels, output
channels].
"""

from typing import Any

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.training.operations.builtins import UntrainableError, replaces
from mistify_server.worker.packaging.training.operations.convolutions import column_pairs, window_products
from mistify_server.worker.packaging.training.operations.windows import WindowAxis

#: Maximum number of elements in the windows of one part of a batch, unless a part is a single image.
_NUMBERS = 1 << 23


def _apart(image: Any, groups: int) -> Any:
    """Return the channel groups as separate examples."""
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
    """Reshape [rows, columns, inputs, groups * outputs] to [groups, rows, columns, inputs, outputs]."""
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
    """Return the movement of a two-dimensional operation's kernel along rows and columns.

    Args:
        operation: An operation with its attributes.
        image: Shape of the image, [n, rows, columns, channels].
        kernel: Shape of the kernel, rows and columns first.

    Raises:
        UntrainableError: Channels are not the last axis, sizes are unknown, or the padding is explicit.
    """
    if operation.get_attr("data_format") != b"NHWC":
        raise UntrainableError("a convolution in which channels are not the last axis")
    strides, dilations = operation.get_attr("strides"), operation.get_attr("dilations")
    padding = operation.get_attr("padding").decode()
    rows, columns = (
        WindowAxis.of(kernel[at], strides[at + 1], dilations[at + 1], image[at + 1], padding) for at in (0, 1)
    )
    return rows, columns


@replaces("Conv2D")
def _convolution(operation: Any, image: Any, kernel: Any) -> Any:
    if tf.get_static_value(kernel) is not None:
        return _frozen(operation, image, kernel)
    rows, columns = axes_of(operation, image.shape, kernel.shape)
    groups = image.shape[-1] // kernel.shape[2]

    @tf.custom_gradient
    def convolve(image: Any, kernel: Any) -> Any:
        apart, weights = _apart(image, groups), _kernel_apart(kernel, groups)
        layout = _layout(weights.shape, rows, columns)

        def gradient(upstream: Any) -> Any:
            apart_upstream = _apart(upstream, groups)
            back = _together(layout.image_gradient(apart_upstream, weights, rows, columns), groups)
            by_kernel = layout.kernel_gradient(apart, apart_upstream, weights, rows, columns)
            return back, _kernel_together(by_kernel)

        return _together(layout.convolved(apart, weights, rows, columns), groups), gradient

    parts = _parts(image.shape[0], kernel.shape, rows, columns)
    if parts == 1:
        return convolve(image, kernel)
    return tf.concat([convolve(part, kernel) for part in tf.split(image, parts)], 0)


def _frozen(operation: Any, image: Any, kernel: Any) -> Any:
    """Keep a convolution with a constant kernel, for which LiteRT's own operators are the fastest.

    The gradient is a transposed convolution, where LiteRT has it: without groups and dilation.
    """
    names = ("strides", "padding", "explicit_paddings", "data_format", "dilations")
    attributes = {name: operation.get_attr(name) for name in names}

    @tf.custom_gradient
    def convolve(image: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            rows, columns = axes_of(operation, image.shape, kernel.shape)
            groups = image.shape[-1] // kernel.shape[2]
            if groups == rows.dilation == columns.dilation == 1 and image.shape.is_fully_defined():
                return tf.raw_ops.Conv2DBackpropInput(
                    input_sizes=image.shape.as_list(), filter=kernel, out_backprop=upstream, **attributes
                )
            weights = _kernel_apart(kernel, groups)
            layout = _layout(weights.shape, rows, columns)
            apart_upstream = _apart(upstream, groups)
            return _together(layout.image_gradient(apart_upstream, weights, rows, columns), groups)

        return tf.raw_ops.Conv2D(input=image, filter=kernel, **attributes), gradient

    return convolve(image)


def _layout(kernel: Any, rows: WindowAxis, columns: WindowAxis) -> Any:
    """Return the fastest module for a kernel [groups, rows, columns, input channels, output channels]."""
    return column_pairs if column_pairs.fits(kernel, rows, columns) else window_products


def _parts(batch: int | None, kernel: Any, rows: WindowAxis, columns: WindowAxis) -> int:
    """Return the number of equal parts of a batch that limits the memory for windows."""
    count = batch or 1
    most = max(_NUMBERS // (rows.outputs * columns.outputs * int(np.prod(kernel[:3]))), 1)
    return count // max(size for size in range(1, min(most, count) + 1) if count % size == 0)


@replaces("Conv2DBackpropInput")
def _transposed_convolution(operation: Any, sizes: Any, kernel: Any, image: Any) -> Any:
    """Replace a transposed convolution.

    It is the gradient of a convolution used as a layer, and its own gradients are convolutions.
    """
    rows, columns = axes_of(operation, operation.outputs[0].shape, kernel.shape)

    @tf.custom_gradient
    def convolve(kernel: Any, image: Any) -> Any:
        weights = _kernel_apart(kernel, 1)
        layout = _layout(weights.shape, rows, columns)

        def gradient(upstream: Any) -> Any:
            back = layout.kernel_gradient(upstream, image, weights, rows, columns)
            return _kernel_together(back), layout.convolved(upstream, weights, rows, columns)

        return layout.image_gradient(image, weights, rows, columns), gradient

    return convolve(kernel, image)
