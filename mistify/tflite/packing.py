"""Serialisation of modified networks with deduplication of equal values.

Readers follow offsets, so several offsets may point to one place.
"""

from functools import cache
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt

_FILE_IDENTIFIER = b"TFL3"

#: Buffers are aligned to this many bytes, as the schema requires: they are read in place.
_BUFFER_ALIGNMENT = 16

#: Bytes for everything else in the file; it grows if they are too few.
_ROOM = 1 << 16


def packed(model: Any) -> bytes:
    """Return a network as a file in which names, shapes and other values of several graphs are stored once.

    Besides the file, it takes little memory: constants are dropped once they are written, and the builder has
    room for all of them from the start, so that it need not be copied to grow.

    Args:
        model: A network parsed by `flatbuffer_utils`; graphs may share tensors, operators and quantizations.
            It cannot be used afterwards.
    """
    builder, once = _Builder(_size_of_constants(model) + _ROOM), cache(_Once)
    for tensor in {id(tensor): tensor for graph in model.subgraphs for tensor in graph.tensors}.values():
        tensor.quantization = tensor.quantization and once(tensor.quantization)
        tensor.shape, tensor.shapeSignature = _vector(tensor.shape), _vector(tensor.shapeSignature)
    for graph in model.subgraphs:
        graph.tensors = [once(tensor) for tensor in graph.tensors]
        graph.operators = [once(operator) for operator in graph.operators]
    model.buffers = [_WrittenOnce(buffer) for buffer in model.buffers]
    builder.Finish(model.Pack(builder), file_identifier=_FILE_IDENTIFIER)
    return bytes(memoryview(builder.Bytes)[builder.Head() :])


def _size_of_constants(model: Any) -> int:
    """Return the bytes of all buffers, with those for their alignment."""
    return sum(_BUFFER_ALIGNMENT + len(buffer.data) for buffer in model.buffers if buffer.data is not None)


def _vector(sizes: Any) -> Any:
    """Return sizes in the form that the builder accepts as a whole vector."""
    return None if sizes is None else np.asarray(sizes, np.int32)


class _Builder(flatbuffers.Builder):
    """A builder that stores each string and each vector of int32 once.

    The contents of buffers, which are bytes, are not shared: tuning may change buffers that are equal now.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._strings: dict[bytes | str, int] = {}
        self._vectors: dict[bytes, int] = {}

    def CreateString(self, s: bytes | str) -> int:  # noqa: N802 - overrides flatbuffers
        """Write a string and return its offset."""
        if s not in self._strings:
            self._strings[s] = super().CreateString(s)
        return self._strings[s]

    def CreateNumpyVector(self, x: Any) -> int:  # noqa: N802 - overrides flatbuffers
        """Write a vector and return its offset."""
        if x.dtype == np.uint8:
            return self._create_constant(x)
        if x.dtype != np.int32:
            return int(super().CreateNumpyVector(x))
        content = x.tobytes()
        if content not in self._vectors:
            self._vectors[content] = super().CreateNumpyVector(x)
        return self._vectors[content]

    def _create_constant(self, content: npt.NDArray[np.uint8]) -> int:
        """Write the content of a buffer and return its offset; the base class would copy it twice."""
        self.Prep(_BUFFER_ALIGNMENT, content.size)
        self.StartVector(1, content.size, 1)
        self.head -= content.size
        np.frombuffer(self.Bytes, np.uint8)[self.head : self.head + content.size] = content
        self.vectorNumElems = content.size
        return int(self.EndVector())


class _Once:
    """A part of a network that is written once."""

    def __init__(self, part: Any) -> None:
        self._part = part
        self._offset: int | None = None

    def Pack(self, builder: _Builder) -> int:  # noqa: N802 - as in flatbuffers
        """Write the part, unless it has been, and return its offset."""
        if self._offset is None:
            self._offset = int(self._part.Pack(builder))
        return self._offset


class _WrittenOnce:
    """A buffer that is dropped once it is written; another network may share it."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def Pack(self, builder: _Builder) -> int:  # noqa: N802 - as in flatbuffers
        """Write the buffer and return its offset."""
        offset = int(self._buffer.Pack(builder))
        del self._buffer
        return offset
