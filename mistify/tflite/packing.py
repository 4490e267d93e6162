"""Serialisation of modified networks with deduplication of equal values.

Readers follow offsets, so several offsets may point to one place.
"""

from functools import cache
from typing import Any

import flatbuffers
import numpy as np

_FILE_IDENTIFIER = b"TFL3"

#: Buffers are aligned to this many bytes, as the schema requires: they are read in place.
_BUFFER_ALIGNMENT = 16


def packed(model: Any) -> bytes:
    """Return a network as a file in which names, shapes and other values of several graphs are stored once.

    Args:
        model: A network parsed by `flatbuffer_utils`; graphs may share tensors, operators and quantizations.
            It cannot be used afterwards.
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
    """Return sizes in the form that the builder accepts as a whole vector."""
    return None if sizes is None else np.asarray(sizes, np.int32)


class _Builder(flatbuffers.Builder):
    """A builder that stores each string and each vector of int32 once.

    The contents of buffers, which are bytes, are not shared: tuning may change buffers that are equal now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.CreateString = cache(super().CreateString)
        self._vectors: dict[bytes, int] = {}

    def CreateNumpyVector(self, x: Any) -> int:  # noqa: N802 - overrides flatbuffers
        """Write a vector and return its offset."""
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
