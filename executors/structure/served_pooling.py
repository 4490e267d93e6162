"""Pooling of volumes in packages: LiteRT pools images only, so height and width are pooled before depth."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import keras
import tensorflow as tf
from typing_extensions import override

layers = keras.layers


def _pooled(pool: Callable[..., tf.Tensor], volumes: tf.Tensor, layer: Any) -> tf.Tensor:
    """Return pooled volumes [n, depth, height, width, channels].

    Args:
        pool: Pools images.
        volumes: [n, depth, height, width, channels].
        layer: The layer with the window.
    """
    _, depth, height, width, channels = volumes.shape
    size, strides, padding = layer.pool_size, layer.strides, layer.padding.upper()
    slices = pool(tf.reshape(volumes, [-1, height, width, channels]), size[1:], strides[1:], padding)
    _, height, width, _ = slices.shape
    columns = tf.reshape(slices, [-1, depth, height * width, channels])
    columns = pool(columns, _of_depth(size), _of_depth(strides), padding)
    return tf.reshape(columns, [-1, columns.shape[1], height, width, channels])


def _of_depth(sizes: Sequence[int]) -> tuple[int, int]:
    return sizes[0], 1


class _MaxPooling3D(keras.layers.MaxPooling3D):  # type: ignore[misc]  # Keras has no types
    """The largest value of each window."""

    @override
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return _pooled(tf.nn.max_pool2d, inputs, self)


class _AveragePooling3D(keras.layers.AveragePooling3D):  # type: ignore[misc]  # Keras has no types
    """The mean of each window, without the padding: of the means of its slices, which are equally large."""

    @override
    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return _pooled(tf.nn.avg_pool2d, inputs, self)


#: Layer -> its replacement.
SERVED_POOLING: Final[Mapping[type, type]] = {
    layers.MaxPooling3D: _MaxPooling3D,
    layers.AveragePooling3D: _AveragePooling3D,
}
