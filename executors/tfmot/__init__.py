"""TensorFlow Model Optimization, which knows Keras 2 alone: everything of it is in this package.

A folded network is translated to tf_keras layer by layer, its layers are made to imitate integers, to lose
their smallest weights or to share them, and it learns to do so from the training data and the teacher.
"""

from executors.tfmot.compression import compressed
from executors.tfmot.quantization import quantization_aware

__all__ = ["compressed", "quantization_aware"]
