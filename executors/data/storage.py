"""Arrays that may be larger than memory: large ones are memory-mapped files."""

import errno
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mistify.files.places import cache_directory, temporary_file

Array: TypeAlias = npt.NDArray[Any]

#: Larger arrays are stored in a file.
IN_MEMORY_BYTES: Final = 256 * 2**20

#: Bytes copied at a time.
_BLOCK_BYTES: Final = 16 * 2**20

#: Bytes that arrays leave free on the disk for other data; on a small disk, one in `_RESERVE_PART`.
_RESERVE_BYTES: Final = 2 * 2**30
_RESERVE_PART: Final = 20


class StorageError(OSError):
    """An array could not be stored in a file, because of this machine and not because of the data."""


class Rows:
    """An array under construction, to which rows are appended; at most `IN_MEMORY_BYTES` of it are in memory.

    The file of a larger array has no name, so it disappears with the array, however the process ends.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] = io.BytesIO()
        self._like: Array | None = None
        self._count = 0

    @property
    def like(self) -> Array | None:
        """An empty array [0, ...] with the shape and type of the rows; None before the first."""
        return self._like

    def append(self, rows: Array) -> None:
        """Add rows [count, ...] with the shape of the first ones, and a type that can be cast to theirs.

        Raises:
            StorageError: The disk is full.
            ValueError: The rows have a different shape, or a type that would lose precision.
        """
        if self._like is None:
            self._like = rows[:0]
        if rows.shape[1:] != self._like.shape[1:]:
            raise ValueError(f"rows of shape {rows.shape[1:]} among rows of {self._like.shape[1:]}")
        if not np.can_cast(rows.dtype, self._like.dtype):
            raise ValueError(f"rows of type {rows.dtype} among rows of {self._like.dtype}")
        content = np.ascontiguousarray(rows, self._like.dtype).reshape(-1).view(np.uint8).data
        with _written():
            if not isinstance(self._file, io.BytesIO):
                _check_room(len(content))
            self._file.write(content)
            if isinstance(self._file, io.BytesIO) and self._file.tell() > IN_MEMORY_BYTES:
                self._file = _moved(self._file)
        self._count += len(rows)

    def array(self) -> Array:
        """Return all rows [examples, ...].

        Raises:
            StorageError: The disk is full.
        """
        if self._like is None:
            return np.empty(0)
        shape = (self._count, *self._like.shape[1:])
        if isinstance(self._file, io.BytesIO):
            return np.frombuffer(self._file.getbuffer(), self._like.dtype).reshape(shape)
        with _written():
            self._file.flush()
            return np.memmap(self._file, self._like.dtype, "r", shape=shape)


def gathered(array: Array, indices: npt.NDArray[np.int64]) -> Array:
    """Return the rows of an array at these indices."""
    if array.itemsize * int(np.prod(array.shape[1:])) * len(indices) <= IN_MEMORY_BYTES:
        return array[indices]
    rows = Rows()
    for part in np.array_split(indices, -(-array.nbytes // _BLOCK_BYTES)):
        rows.append(array[part])
    return rows.array()


def stacked(first: Array, second: Array) -> Array:
    """Return the rows of two arrays, in a type that can hold both."""
    kind = np.result_type(first, second)
    if kind.itemsize * (first.size + second.size) <= IN_MEMORY_BYTES:
        return np.concatenate([first, second])
    rows = Rows()
    for array in (first, second):
        for part in np.array_split(array, -(-array.nbytes // _BLOCK_BYTES)):
            rows.append(part.astype(kind, copy=False))
    return rows.array()


def _moved(content: io.BytesIO) -> IO[bytes]:
    """Return a file with the content of an array that has become too large for memory."""
    file = temporary_file()
    _check_room(content.tell())
    file.write(content.getbuffer())
    return file


def _check_room(size: int) -> None:
    """Raise an error if writing `size` bytes would leave too little free space.

    Raises:
        OSError: ENOSPC.
    """
    directory = cache_directory()
    disk = shutil.disk_usage(directory)
    if disk.free - size < min(_RESERVE_BYTES, disk.total // _RESERVE_PART):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))


@contextmanager
def _written() -> Iterator[None]:
    """Convert errors in writing an array's file.

    Raises:
        StorageError: With the `errno` of the error.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(error.errno, error.strerror, error.filename) from error
