"""Arrays that may be larger than memory: from a size on they lie in a file, mapped into memory."""

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

#: Arrays of more bytes lie in a file.
IN_MEMORY_BYTES: Final = 256 * 2**20

#: Bytes that are copied at once.
_BLOCK_BYTES: Final = 16 * 2**20

#: Bytes that arrays leave free on the disk, for whatever else is kept there; on a small disk one in twenty.
_RESERVE_BYTES: Final = 2 * 2**30
_RESERVE_PART: Final = 20


class StorageError(OSError):
    """An array could not be kept in a file: a matter of this machine, and not of the data it comes from."""


class Rows:
    """Grows into an array, some rows at a time, while memory holds at most `IN_MEMORY_BYTES` of it.

    The file of a larger array has no name: it is gone when the array is, however the process ends.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] = io.BytesIO()
        self._like: Array | None = None
        self._count = 0

    @property
    def like(self) -> Array | None:
        """No rows [0, ...], of the shape and type of all; None before the first."""
        return self._like

    def append(self, rows: Array) -> None:
        """Add rows [count, ...], of the shape of the first ones, and of a type that theirs holds.

        Raises:
            StorageError: The file has no room.
            ValueError: Rows of another shape, or of a type that would lose digits.
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
            StorageError: The file has no room.
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
    """Return the rows of two arrays, in a type that holds both."""
    kind = np.result_type(first, second)
    if kind.itemsize * (first.size + second.size) <= IN_MEMORY_BYTES:
        return np.concatenate([first, second])
    rows = Rows()
    for array in (first, second):
        for part in np.array_split(array, -(-array.nbytes // _BLOCK_BYTES)):
            rows.append(part.astype(kind, copy=False))
    return rows.array()


def _moved(content: io.BytesIO) -> IO[bytes]:
    """Return a file with an array that has grown too large for memory."""
    file = temporary_file()
    _check_room(content.tell())
    file.write(content.getbuffer())
    return file


def _check_room(size: int) -> None:
    """Refuse to write so many bytes if too little room would be left for others.

    Raises:
        OSError: ENOSPC.
    """
    directory = cache_directory()
    disk = shutil.disk_usage(directory)
    if disk.free - size < min(_RESERVE_BYTES, disk.total // _RESERVE_PART):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))


@contextmanager
def _written() -> Iterator[None]:
    """Report a problem with the file of an array.

    Raises:
        StorageError: With the number of the error.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(error.errno, error.strerror, error.filename) from error
