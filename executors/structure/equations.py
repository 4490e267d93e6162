"""Equations of products along any axes, such as `abc,cd->abd`."""

from typing import Final, NamedTuple

import keras

#: Letters for the axes that an ellipsis stands for; an equation has letters of the alphabet.
_ELIDED: Final = "0123456789"


class Equation(NamedTuple):
    """The axes of the tensors of a product, one letter each.

    Attributes:
        read: Axes of the input, batch first.
        kernel: Axes of the kernel.
        made: Axes of the output, batch first.
    """

    read: str
    kernel: str
    made: str

    @classmethod
    def of(cls, layer: keras.layers.EinsumDense) -> "Equation":
        """Return the equation of a built layer."""
        tensors, made = layer.equation.replace(" ", "").split("->")
        read, kernel = tensors.split(",")
        elided = _ELIDED[: layer.input_spec.ndim - len(read.replace("...", ""))]
        return cls(read.replace("...", elided), kernel, made.replace("...", elided))

    @property
    def summed(self) -> str:
        """The axes of the kernel that are summed over."""
        return "".join(axis for axis in self.kernel if axis not in self.made)

    @property
    def new(self) -> str:
        """The axes of the kernel that only the output has as well."""
        return "".join(axis for axis in self.kernel if axis not in self.read)
