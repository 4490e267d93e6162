"""Flattening of tensors to one vector, so that an update takes few operations for any number of tensors."""

from collections.abc import Iterable, Sequence
from math import prod

import keras
import numpy as np
import tensorflow as tf

from executors.outputs.objectives import Floats


class Flattener:
    """Flattens tensors with the shapes of a network's weights to one vector, and restores them.

    Args:
        weights: The network's weights, which define order and shapes.
    """

    def __init__(self, weights: Sequence[keras.Variable]) -> None:
        self._shapes = [tuple(weight.shape) for weight in weights]
        self._sizes = [prod(shape) for shape in self._shapes]

    def flatten(self, tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return tensors with the weights' shapes as one vector [values]."""
        return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)

    def unflatten(self, vector: tf.Tensor) -> list[tf.Tensor]:
        """Split a vector into tensors with the weights' shapes."""
        parts = tf.split(vector, self._sizes)
        return [tf.reshape(part, shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def repeat(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """Repeat each weight's value for all entries of the weight [values]."""
        # `tf.repeat` would fill a row of the largest weight's length for each value.
        parts = zip(self._sizes, values, strict=True)
        return tf.concat([tf.fill([size], value) for size, value in parts], axis=0)

    def by_name(self, vector: Floats, names: Iterable[str]) -> dict[str, Floats]:
        """Split a vector into arrays named after the weights, which are in order."""
        parts = np.split(vector, np.cumsum(self._sizes)[:-1])
        shaped = (part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True))
        return dict(zip(names, shaped, strict=True))
