"""Training for compressed kernels: stored as integers, sparse, or with few distinct values.

The Keras model itself is trained with the usual trainer, with the rounding and the schedule of TensorFlow
Model Optimization, so every layer that can be packaged can be compressed.
"""

from executors.compression.compression import compressed
from executors.compression.quantization import quantization_aware

__all__ = ["compressed", "quantization_aware"]
