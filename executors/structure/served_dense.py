"""Dense layers in packages, which multiply all positions of a sequence by their kernel in one operator.

Keras multiplies tensors of more than two axes by `tf.tensordot`: LiteRT would compute the shapes before and
after the product in ten further operators for each layer, as the batch is free.
"""

from collections.abc import Mapping
from typing import Any, Final

import keras
import tensorflow as tf
from typing_extensions import override

#: The number of axes of a batch of vectors.
_VECTORS: Final = 2


@keras.saving.register_keras_serializable("served")
class ServedDense(keras.layers.Dense):  # type: ignore[misc]  # Keras has no types
    """A dense layer over the last axis."""

    @override
    def call(self, inputs: Any, training: Any = None) -> Any:
        if len(inputs.shape) == _VECTORS or self.quantization_mode is not None:
            return super().call(inputs, training)
        made = tf.matmul(inputs, self.kernel)
        made = made if self.bias is None else made + self.bias
        return made if self.activation is None else self.activation(made)


#: Dense layer -> the same in a package.
SERVED_DENSE: Final[Mapping[type, type]] = {keras.layers.Dense: ServedDense}
