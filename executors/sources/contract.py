"""The contract of source models: the needs of Mistify, whatever the file of a pretrained model."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

import keras

from executors.structure.exporting import NamedFunction
from executors.structure.signature import Signature


class SourceModel(ABC):
    """A pretrained model.

    A source with a network can be cut and trained. Any other is packaged unchanged, at every precision.

    Attributes:
        suffix: The ending of the files that `write` writes, by which they are told apart.
    """

    suffix: ClassVar[str]

    @property
    @abstractmethod
    def network(self) -> keras.Model | None:
        """The network that is cut and trained; None where only its inputs and outputs are known."""

    @property
    @abstractmethod
    def signature(self) -> Signature:
        """The inputs and outputs."""

    @abstractmethod
    def export(self) -> NamedFunction:
        """Return the function that is converted, its weights as constants."""

    @abstractmethod
    def write(self, path: Path) -> None:
        """Write it to a file: equal models make equal files, whenever they are written."""

    @classmethod
    @abstractmethod
    def read(cls, path: Path) -> Self:
        """Return the model that `write` has written."""
