"""TensorFlow Model Optimization (TFMOT), which knows Keras 2 only: it is used in this package alone.

A folded network is translated to tf_keras layer by layer. Its layers then imitate integers, lose their
smallest weights or share values, while it is trained on the training data and the teacher's predictions.
"""

from executors.tfmot.compression import compressed
from executors.tfmot.quantization import quantization_aware

__all__ = ["compressed", "quantization_aware"]
