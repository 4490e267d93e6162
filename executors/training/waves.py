"""Inputs as sums of waves, the strength of which falls with their frequency as in photos and recordings."""

import numpy as np
import tensorflow as tf


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
        self._rank = len(shape)

    def __call__(self, amplitudes: tf.Tensor) -> tf.Tensor:
        """Return the inputs [examples, ...] of as many amplitudes."""
        rotated = [0, *range(2, self._rank + 1), 1]
        sums = amplitudes * self._strengths
        for _ in range(self._rank - 1):
            sums = tf.signal.idct(tf.transpose(sums, rotated), norm="ortho")
        return tf.transpose(sums, rotated) + self.scale * self.mean
