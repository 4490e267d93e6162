"""Inputs as sums of waves, the strength of which falls with their frequency as in photos and recordings."""

from functools import lru_cache
from typing import Final

import numpy as np
import tensorflow as tf

from executors.training.objectives import Floats

#: Along longer axes, sums are made by fast transforms; along others, multiplying matrices is faster.
_LONGEST: Final = 512


class Waves:
    """Inputs of one shape as sums of cosines along every axis but the last, whose entries are channels.

    What lies close together is alike in most inputs: the strength of a wave is its frequency to the power
    of `-fall`, about 1 in photos (Field, Relations between the Statistics of Natural Images and Cortical
    Cells, 1987). It stays so in steps that change amplitudes in place of the figures themselves (Olah et
    al., Feature Visualization, 2017).

    Args:
        shape: Of an input.
        fall: How fast the strength falls; 0 for white noise.
        scale: Of the sums, which is their deviation if amplitudes are of unit variance.
        mean: Of the sums, as a multiple of the scale.
    """

    def __init__(
        self, shape: tuple[int, ...], fall: float = 0.0, scale: float = 1.0, mean: float = 0.0
    ) -> None:
        self.scale, self.mean = scale, mean
        lengths = shape[:-1]
        frequencies = np.meshgrid(*(np.arange(length) / length for length in lengths), indexing="ij")
        squares = sum((along**2 for along in frequencies), np.zeros(lengths))
        strengths = np.maximum(squares, max(lengths, default=1) ** -2.0) ** (-fall / 2)
        strengths *= scale / np.sqrt((strengths**2).mean())
        self._strengths = tf.constant(strengths[..., None], tf.float32)
        self._lengths = lengths

    def __call__(self, amplitudes: tf.Tensor) -> tf.Tensor:
        """Return the inputs [examples, ...] of as many amplitudes."""
        sums = amplitudes * self._strengths
        rotated = [0, *range(2, len(sums.shape)), 1]
        for length in self._lengths:
            sums = _summed(tf.transpose(sums, rotated), length)
        return tf.transpose(sums, rotated) + self.scale * self.mean


def _summed(amplitudes: tf.Tensor, length: int) -> tf.Tensor:
    """Return the sums of cosines [..., length] of as many amplitudes."""
    if length > _LONGEST:
        return tf.signal.idct(amplitudes, norm="ortho")
    return tf.tensordot(amplitudes, tf.constant(_cosines(length)), 1)


@lru_cache(maxsize=8)
def _cosines(length: int) -> Floats:
    """Return the orthonormal basis of the cosine transform [frequencies, places]."""
    places = (np.arange(length) + 0.5) / length
    waves = np.cos(np.pi * np.arange(length)[:, None] * places)
    return np.asarray(waves / np.linalg.norm(waves, axis=1, keepdims=True), np.float32)
