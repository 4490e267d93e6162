"""Training for the form in which a package stores kernels: as integers, sparse, or with few values.

The Keras model itself is trained with the usual trainer, using the rounding and the schedule of TensorFlow
Model Optimization, so every layer that can be packaged can be compressed.
"""

from executors.compression.compression import compressed
from executors.compression.quantization import quantization_aware

__all__ = ["compressed", "quantization_aware"]
