"""Pooling over windows of an image. Global pooling is a reduction, whose gradient LiteRT has."""

from typing import Any

import numpy as np
import tensorflow as tf

from mistify_server.worker.packaging.training.operations.builtins import UntrainableError, replaces
from mistify_server.worker.packaging.training.operations.windows import (
    WindowAxis,
    fitted,
    rows_read,
    scattered,
)


def _axes(operation: Any, image: Any) -> tuple[WindowAxis, WindowAxis]:
    if operation.get_attr("data_format") != b"NHWC":
        raise UntrainableError("a pooling in which channels are not the last axis")
    sizes, strides = operation.get_attr("ksize"), operation.get_attr("strides")
    padding = operation.get_attr("padding").decode()
    rows, columns = (WindowAxis.of(sizes[at], strides[at], 1, image.shape[at], padding) for at in (1, 2))
    return rows, columns


def _attributes(operation: Any) -> dict[str, Any]:
    return {name: operation.get_attr(name) for name in ("ksize", "strides", "padding", "data_format")}


@replaces("MaxPool")
def _max_pool(operation: Any, image: Any) -> Any:
    """Replace a max pooling; the first of several equal maxima gets the gradient, as in TensorFlow."""
    rows, columns = _axes(operation, image)

    @tf.custom_gradient
    def pool(image: Any) -> Any:
        largest = tf.raw_ops.MaxPool(input=image, **_attributes(operation))

        def gradient(upstream: Any) -> Any:
            by_tap, left = {}, upstream
            padded = fitted(image, rows, columns, tf.float32.min)
            for row, window in enumerate(rows_read(padded, rows, columns)):
                for column, values in enumerate(tf.split(window, columns.kernel, -1)):
                    by_tap[row, column] = left * tf.cast(tf.equal(values, largest), tf.float32)
                    left = left - by_tap[row, column]
            return scattered(by_tap, rows, columns)

        return largest, gradient

    return pool(image)


@replaces("AvgPool")
def _average_pool(operation: Any, image: Any) -> Any:
    rows, columns = _axes(operation, image)
    counts = np.outer(_counts(rows), _counts(columns)).astype(np.float32)[:, :, None]

    @tf.custom_gradient
    def pool(image: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            share = upstream / counts
            taps = [(row, column) for row in range(rows.kernel) for column in range(columns.kernel)]
            return scattered(dict.fromkeys(taps, share), rows, columns)

        return tf.raw_ops.AvgPool(value=image, **_attributes(operation)), gradient

    return pool(image)


def _counts(axis: WindowAxis) -> np.ndarray[Any, Any]:
    """Return the number of image rows, without padding, that each output position reads."""
    read = np.arange(axis.outputs)[:, None] * axis.stride + np.arange(axis.kernel) - axis.before
    counts: np.ndarray[Any, Any] = np.sum((read >= 0) & (read < axis.size), 1)
    return counts
