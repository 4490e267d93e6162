"""Transforms of signals."""

import keras
import numpy as np

from executors.sources.onnx.batch import Array
from executors.sources.onnx.builder import Builder, set_weights
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.registry import Argument, Node, constant, operator, optional, tensor
from executors.sources.onnx.values import Value

layers = keras.layers


@operator("STFT")
def short_time_fourier_transform(
    builder: Builder, node: Node, signal: Argument, frame_step: Argument, *options: Argument
) -> Value:
    """Build a convolution of real signals with the cosines and sines of all frequencies."""
    value = builder.ordered(tensor(signal))
    if value.batch != 0 or (value.rank == 3 and value.size(2) != 1):
        raise UnsupportedNodeError("transforms complex signals, or has its batch on another axis")
    step = int(constant(frame_step, "frame step").reshape(-1)[0])
    window, frame_length = (*options, None, None)[:2]
    weights, length = optional(window, "window"), optional(frame_length, "frame length")
    size = int(length.reshape(-1)[0]) if length is not None else _length_of(weights)
    if weights is None:
        weights = np.ones(size, np.float32)
    bins = size // 2 + 1 if node.get("onesided", 1) else size
    entries = builder.reshaped(value.tensor, (value.size(1), 1))
    layer = layers.Conv1D(2 * bins, size, strides=step, use_bias=False, name=builder.plain(node))
    made = layer(entries)
    set_weights(layer, _waves(bins, weights))
    return Value(builder.reshaped(made, (made.shape[1], bins, 2)), (0, 1, 2, 3))


def _length_of(window: Array | None) -> int:
    if window is None:
        raise UnsupportedNodeError("has neither a window nor a frame length")
    return window.size


def _waves(bins: int, window: Array) -> Array:
    """Return a kernel [size, 1, 2 * bins] with the real and the imaginary part of each frequency in turn."""
    times = np.arange(window.size)
    angles = 2 * np.pi * times[:, None] * np.arange(bins) / window.size
    waves = np.stack([np.cos(angles), -np.sin(angles)], axis=-1) * window.reshape(-1, 1, 1)
    return waves.reshape(window.size, 1, 2 * bins).astype(np.float32)
