"""The interface of source models, independent of the file format."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self, TypeAlias

import keras

from executors.structure.exporting import NamedFunction
from executors.structure.signature import Signature
from mistify.package.source import SourceInterface

#: The least and the largest number that the integers of a tensor stand for.
Range: TypeAlias = tuple[float, float]


class SourceModel(ABC):
    """A pretrained model.

    A source with a network can be cut and trained. Other sources are packaged unchanged, at every precision.

    Attributes:
        suffix: Suffix of the files written by `write`, which identifies their kind.
    """

    suffix: ClassVar[str]

    @property
    @abstractmethod
    def network(self) -> keras.Model | None:
        """The network to cut and train; None if only its inputs and outputs are known."""

    @property
    def interface(self) -> SourceInterface | None:
        """The inputs and outputs of the user's file, if they differ from the signature's."""
        return None

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Layer -> the range of its output's integers, if the user's file simulates quantization."""
        return {}

    @property
    @abstractmethod
    def signature(self) -> Signature:
        """The inputs and outputs."""

    @property
    def channels_first(self) -> tuple[str, ...]:
        """The inputs whose channels are first in the file from which the source was loaded."""
        inputs = () if self.interface is None else self.interface.inputs
        return tuple(tensor.name for tensor in inputs if tensor.channels_first)

    @abstractmethod
    def export(self) -> NamedFunction:
        """Return the function to convert, with its weights as constants."""

    @abstractmethod
    def write(self, path: Path) -> None:
        """Write the model to a file. Equal models produce identical files, regardless of the time."""

    @classmethod
    @abstractmethod
    def read(cls, path: Path) -> Self:
        """Load a model written by `write`."""
