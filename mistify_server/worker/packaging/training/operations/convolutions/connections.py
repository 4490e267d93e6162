"""Kernels as matrices between inputs and outputs, defined by tables of taps.

A table [positions, outputs] contains the tap that connects a position with an output, in row-major order of
the kernel, or `NO_TAP`.
"""

from typing import Any, Final

import numpy as np
import tensorflow as tf

#: Table entry if no tap connects a position with an output.
NO_TAP: Final = -1


def both(rows: np.ndarray[Any, Any], columns: np.ndarray[Any, Any], across: int) -> np.ndarray[Any, Any]:
    """Return the table of a kernel from broadcastable tables of its rows and of its `across` columns."""
    return np.where((rows == NO_TAP) | (columns == NO_TAP), NO_TAP, rows * across + columns)


def matrix_of(kernel: Any, table: np.ndarray[Any, Any]) -> Any:
    """Return the matrix of a kernel, [groups, positions * input channels, outputs * output channels].

    Args:
        kernel: [groups, rows, columns, input channels, output channels].
        table: The taps of the kernel, [positions, outputs].
    """
    groups, *_, read, made = kernel.shape
    flat = tf.reshape(kernel, [groups, -1, read * made])
    if not np.array_equal(table.ravel(), np.arange(flat.shape[1])):
        if NO_TAP in table:
            flat = tf.pad(flat, [[0, 0], [0, 1], [0, 0]])  # the last tap is zero: NO_TAP indexes from the end
        flat = tf.gather(flat, (table.ravel() % flat.shape[1]).astype(np.int32), axis=1)
    positions, outputs = table.shape
    if outputs > 1:
        flat = tf.transpose(tf.reshape(flat, [groups, positions, outputs, read, made]), [0, 1, 3, 2, 4])
    return tf.reshape(flat, [groups, positions * read, outputs * made])


def kernel_of(matrix: Any, table: np.ndarray[Any, Any], shape: Any) -> Any:
    """Return the gradient of a kernel from the gradient of its matrix.

    Args:
        matrix: Gradient of the matrix, [groups, positions * input channels, outputs * output channels].
        table: The taps, [positions, outputs], all with equal frequency.
        shape: Shape of the kernel, [groups, rows, columns, input channels, output channels].
    """
    groups, *sizes, read, made = shape
    positions, outputs = table.shape
    if outputs > 1:
        apart = tf.reshape(matrix, [groups, positions, read, outputs, made])
        matrix = tf.transpose(apart, [0, 1, 3, 2, 4])
    flat = tf.reshape(matrix, [groups, table.size, read * made])
    order = np.argsort(table.ravel(), kind="stable")[np.sum(table == NO_TAP) :]
    if not np.array_equal(order, np.arange(table.size)):
        flat = tf.gather(flat, order.astype(np.int32), axis=1)
    by_tap = tf.reshape(flat, [groups, int(np.prod(sizes)), -1, read * made])
    return tf.reshape(tf.reduce_sum(by_tap, 2) if by_tap.shape[2] > 1 else by_tap, shape)
