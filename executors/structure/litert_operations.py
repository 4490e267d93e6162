"""Replacements in packages for Keras operations and layers that LiteRT lacks, or computes slowly."""

from collections.abc import Mapping
from typing import Any, Final

import tensorflow as tf
from typing_extensions import override

from executors.structure.keras_internals import numpy
from executors.structure.served_dense import SERVED_DENSE
from executors.structure.served_pooling import SERVED_POOLING
from executors.structure.served_recurrent import SERVED_RECURRENT


class ServedArgmax(numpy.Argmax):  # type: ignore[misc]  # Keras has no types
    """The index of the largest value; Keras orders 0 above -0, which are equal here."""

    @override
    def call(self, x: Any) -> tf.Tensor:
        return _place(tf.math.argmax, x, self.axis, self.keepdims)


class ServedArgmin(numpy.Argmin):  # type: ignore[misc]  # Keras has no types
    """The index of the smallest value, computed in the same way."""

    @override
    def call(self, x: Any) -> tf.Tensor:
        return _place(tf.math.argmin, x, self.axis, self.keepdims)


def _place(extreme: Any, x: Any, axis: int | None, keepdims: bool) -> tf.Tensor:
    place = extreme(tf.reshape(x, [-1]) if axis is None else x, axis or 0, output_type=tf.int32)
    if not keepdims:
        return place
    return tf.reshape(place, [1] * len(x.shape)) if axis is None else tf.expand_dims(place, axis)


#: Keras operation or layer -> its replacement in a package.
SERVED: Final[Mapping[type, Any]] = {
    numpy.Argmax: ServedArgmax,
    numpy.Argmin: ServedArgmin,
    **SERVED_DENSE,
    **SERVED_POOLING,
    **SERVED_RECURRENT,
}
