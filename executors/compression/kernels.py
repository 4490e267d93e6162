"""The kernels of a network: weights that are summed over, or with rows that are looked up."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import keras

from executors.structure.each_step import applied

layers = keras.layers

#: Names of the kernels in Keras's layers.
_NAMES: Final = frozenset(
    {"kernel", "depthwise_kernel", "pointwise_kernel", "recurrent_kernel", "embeddings"}
)

_DEPTHWISE: Final = (layers.DepthwiseConv1D, layers.DepthwiseConv2D)
_TRANSPOSED: Final = (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose)


@dataclass(frozen=True)
class Kernel:
    """One kernel of a layer.

    Attributes:
        variable: The kernel's values.
        is_depthwise: Whether each channel has its own weights; these are too few to be compressed.
        channel_axes: Axes with a quantization scale per index; none for a single scale.
    """

    variable: keras.Variable
    is_depthwise: bool
    channel_axes: tuple[int, ...]

    @property
    def shared_axes(self) -> list[int]:
        """The axes that share one quantization scale."""
        return [axis for axis in range(len(self.variable.shape)) if axis not in self.channel_axes]


def kernels(model: keras.Model) -> Iterator[Kernel]:
    """Yield the kernels of a flat model, including those of layers inside its layers."""
    for layer in model.layers:
        for variable in layer.weights:
            if variable.name in _NAMES:
                yield _kernel(applied(layer), variable)


def _kernel(layer: keras.layers.Layer, variable: keras.Variable) -> Kernel:
    last = len(variable.shape) - 1
    if variable.name == "depthwise_kernel" or isinstance(layer, _DEPTHWISE):
        return Kernel(variable, is_depthwise=True, channel_axes=(last - 1, last))
    if variable.name == "embeddings":
        return Kernel(variable, is_depthwise=False, channel_axes=())
    made = last - 1 if isinstance(layer, _TRANSPOSED) else last
    return Kernel(variable, is_depthwise=False, channel_axes=(made,))
