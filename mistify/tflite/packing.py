"""Changed networks, written as files that store equal values in several places once.

Readers follow offsets, and do not mind where two of them lead to one place.
"""

from functools import cache
from typing import Any

import flatbuffers
import numpy as np

_FILE_IDENTIFIER = b"TFL3"

#: The contents of buffers begin at multiples of so many bytes, as the schema asks: they are read in place.
_BUFFER_ALIGNMENT = 16


def packed(model: Any) -> bytes:
    """Return the file of a network: names, shapes and other values shared by several graphs are stored once.

    Args:
        model: Read by `flatbuffer_utils`; graphs may share tensors, operators and quantizations. It cannot
            be used afterwards.
    """
    builder, once = _Builder(), cache(_Once)
    for tensor in {id(tensor): tensor for graph in model.subgraphs for tensor in graph.tensors}.values():
        tensor.quantization = tensor.quantization and once(tensor.quantization)
        tensor.shape, tensor.shapeSignature = _vector(tensor.shape), _vector(tensor.shapeSignature)
    for graph in model.subgraphs:
        graph.tensors = [once(tensor) for tensor in graph.tensors]
        graph.operators = [once(operator) for operator in graph.operators]
    builder.Finish(model.Pack(builder), file_identifier=_FILE_IDENTIFIER)
    return bytes(builder.Output())


def _vector(sizes: Any) -> Any:
    """Return sizes in the form in which the builder takes a vector as a whole."""
    return None if sizes is None else np.asarray(sizes, np.int32)


class _Builder(flatbuffers.Builder):
    """A builder of files with each string once, and each vector of int32.

    Not the contents of buffers, which are bytes: tuning may make those differ that are equal now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.CreateString = cache(super().CreateString)
        self._vectors: dict[bytes, int] = {}

    def CreateNumpyVector(self, x: Any) -> int:  # noqa: N802 - it has that name in flatbuffers
        """Write a vector, and return its offset."""
        if x.dtype == np.uint8:
            self.Prep(_BUFFER_ALIGNMENT, x.size)
        if x.dtype != np.int32:
            return int(super().CreateNumpyVector(x))
        content = x.tobytes()
        if content not in self._vectors:
            self._vectors[content] = super().CreateNumpyVector(x)
        return self._vectors[content]


class _Once:
    """A part of a network that is written once."""

    def __init__(self, part: Any) -> None:
        self.Pack = cache(part.Pack)
