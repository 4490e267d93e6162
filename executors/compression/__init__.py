"""Training for what a package stores: kernels of integers, of many zeros, or of few values.

It trains the Keras model itself, with the usual trainer, and the roundings and the schedule of TensorFlow
Model Optimization: every layer that can be packaged can be compressed.
"""

from executors.compression.compression import compressed
from executors.compression.quantization import quantization_aware

__all__ = ["compressed", "quantization_aware"]
