"""Inputs and outputs of an exported network."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Port:
    """An input or output as the exported file has it.

    Attributes:
        name: Its name in the file.
        axes: For each axis, the axis of the package's tensor that stands there; None for the package's order.
        dtype: NumPy's name of its type; None for the package's.
    """

    name: str
    axes: tuple[int, ...] | None = None
    dtype: str | None = None


#: The package's name of each input and output -> what the exported file has, in the order of the file; names,
#: layouts and types are those of the package by default.
Interface = Mapping[str, Port]
