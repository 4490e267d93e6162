"""Inputs with a spectrum that falls with frequency, like those of photos and recordings."""

from functools import lru_cache
from typing import Final

import numpy as np
import tensorflow as tf

from executors.outputs.objectives import Floats

#: Longer axes use fast transforms; for shorter ones, matrix multiplication is faster.
_LONGEST: Final = 512


class SpectralInputs:
    """Inputs of one shape as sums of cosines along every axis but the last, which holds channels.

    Neighbouring values are similar in most inputs: the amplitude of a wave is its frequency to the power of
    `-fall`, about 1 in photos (Field, Relations between the Statistics of Natural Images and Cortical Cells,
    1987). Optimizing amplitudes instead of values preserves this property (Olah et al., Feature
    Visualization, 2017).

    Args:
        shape: Shape of one input without a batch, channels last.

    Attributes:
        variables: The logarithm of the scale, and the mean of each channel as a multiple of the scale;
            trainable.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._lengths = shape[:-1]
        lowest = 1 / max(self._lengths, default=1)
        along = np.meshgrid(*(np.arange(length) / length for length in self._lengths), indexing="ij")
        squares = sum((frequencies**2 for frequencies in along), np.zeros(self._lengths))
        # Relative to the lowest frequency, which is also used for the constant.
        frequencies = np.sqrt(np.maximum(squares, lowest**2)) / lowest
        self._frequencies = tf.constant(frequencies[..., None], tf.float32)
        self.variables = [tf.Variable(0.0), tf.Variable(tf.zeros(shape[-1:]))]
        self._fall = tf.Variable(0.0)

    def configure(self, fall: float, scale: float, mean: float) -> None:
        """Set the distribution of the inputs.

        Args:
            fall: Decay of the amplitude with frequency; 0 for white noise.
            scale: Standard deviation of the sums for amplitudes of unit variance.
            mean: Mean of all channels, as a multiple of the scale.
        """
        log_scale, means = self.variables
        self._fall.assign(fall)
        log_scale.assign(np.log(scale))
        means.assign(tf.fill(means.shape, mean))

    def __call__(self, amplitudes: tf.Tensor) -> tf.Tensor:
        """Return the inputs [examples, ...] for these amplitudes."""
        log_scale, mean = self.variables
        strengths = self._frequencies**-self._fall
        sums = amplitudes * (strengths / tf.sqrt(tf.reduce_mean(tf.square(strengths))))
        rotated = [0, *range(2, len(sums.shape)), 1][: len(sums.shape)]
        for length in self._lengths:
            sums = _summed(tf.transpose(sums, rotated), length)
        return tf.exp(log_scale) * (tf.transpose(sums, rotated) + mean)


def _summed(amplitudes: tf.Tensor, length: int) -> tf.Tensor:
    """Return the sums of cosines [..., length] for these amplitudes."""
    if length > _LONGEST:
        return tf.signal.idct(amplitudes, norm="ortho")
    return tf.tensordot(amplitudes, tf.constant(_cosines(length)), 1)


@lru_cache(maxsize=8)
def _cosines(length: int) -> Floats:
    """Return the orthonormal basis of the discrete cosine transform [frequencies, places]."""
    places = (np.arange(length) + 0.5) / length
    waves = np.cos(np.pi * np.arange(length)[:, None] * places)
    return np.asarray(waves / np.linalg.norm(waves, axis=1, keepdims=True), np.float32)
