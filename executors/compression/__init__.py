"""Training for the form in which a package stores kernels: as integers, sparse, or with few values.

It trains the Keras model itself, with the usual trainer, and the roundings and the schedule of TensorFlow
Model Optimization: every layer that can be packaged can be compressed.
"""

from executors.compression.compression import compressed
from executors.compression.quantization import quantization_aware

__all__ = ["compressed", "quantization_aware"]
