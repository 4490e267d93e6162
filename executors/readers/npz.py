"""`.npz`: arrays named after the model's inputs and outputs, or `x` and `y`."""

from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

import numpy as np

from executors.data.errors import invalid
from executors.data.storage import IN_MEMORY_BYTES, Array, Rows, StorageError
from executors.readers.formats import Arrays, Reader, Request, Schema
from executors.readers.matching import check_shape
from executors.structure.signature import Output, Tensor
from mistify.errors import MistifyError, Problem
from mistify.files.suffixes import suffix_of
from mistify.parsing.quantities import format_bytes

_SUFFIX = ".npy"
_BLOCK_BYTES = 16 * 2**20

#: NumPy's kind codes of booleans, integers and floats.
_NUMBERS = "biuf"

#: Maximum ratio of an array's size to its compressed size: gigabytes of zeros compress to a few megabytes.
_MOST_TIMES = 200


class NpzReader(Reader):
    """A reader of `.npz` files that works block by block, so that they may be larger than memory."""

    def accepts(self, path: Path) -> bool:
        """Check the suffix; accept `.npy` as well, to report what is wrong with it."""
        return suffix_of(path) in (".npz", _SUFFIX)

    def read(self, path: Path, request: Request) -> Arrays:
        """Return the arrays that the model needs, and only the names of the others."""
        try:
            if suffix_of(path) == _SUFFIX:
                raise ValueError("it is a single array")
            with ZipFile(path) as archive:
                members = _members(archive)
                wanted = request.wanted(list(members))
                return {
                    name: _array(archive, member, str(path), wanted[name]) if name in wanted else np.empty(0)
                    for name, member in members.items()
                }
        except (StorageError, MistifyError, MemoryError):
            raise
        except Exception as error:  # archive and header readers may raise anything
            actual = f"a file that cannot be read ({_reason(error)})"
            problem = Problem(str(path), actual, "an .npz file", "write it with np.savez(FILE, x=..., y=...)")
            raise invalid(problem) from error

    def schema(self, path: Path, request: Request) -> Schema:
        """Return which targets are integers, by their types; skip arrays that `read` will refuse."""
        whole: dict[str, bool] = {}
        with suppress(Exception), ZipFile(path) as archive:
            members = _members(archive)
            for name, tensor in request.wanted(list(members)).items():
                if isinstance(tensor, Output):
                    with archive.open(members[name]) as file:
                        _, _, dtype = _header(file)
                    whole[tensor.name] = dtype.kind in "biu"
        return Schema(whole=whole)


def _reason(error: Exception) -> str:
    """Return why a file cannot be read, without the path that system errors contain."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.splitlines()[0][:200] if text else type(error).__name__


def _members(archive: ZipFile) -> dict[str, str]:
    """Return the files in an archive by the names of their arrays.

    Raises:
        ValueError: Two arrays have the same name.
    """
    names = archive.namelist()
    members = {name.removesuffix(_SUFFIX): name for name in names}
    if len(members) < len(names):
        raise ValueError("two arrays in it have the same name")
    return members


def _check_size(archive: ZipFile, member: str, size: int) -> None:
    """Refuse an array that would fill the disk although its file is small, and a truncated one.

    Raises:
        ValueError: The array is one of these.
    """
    info = archive.getinfo(member)
    if size > info.file_size:
        raise ValueError(f"{member} is truncated")
    if size > max(IN_MEMORY_BYTES, _MOST_TIMES * info.compress_size):
        raise ValueError(
            f"{member} has {format_bytes(size, 3)} in {format_bytes(info.compress_size, 3)}, more than "
            f"{_MOST_TIMES} times as much; np.savez writes it without compression"
        )


def _array(archive: ZipFile, member: str, source: str, wanted: Tensor) -> Array:
    """Return an array in native byte order; if it is not numeric, describe it without reading it."""
    with archive.open(member) as file:
        shape, columns_first, dtype = _header(file)
        if dtype.hasobject:
            raise ValueError(f"{member} contains Python objects")
        if 0 in shape[1:]:
            raise ValueError(f"{member} has empty rows")
        unread = np.broadcast_to(np.empty((), dtype), shape)
        check_shape(source, member.removesuffix(_SUFFIX), unread, wanted)
        if not unread.size or dtype.kind not in _NUMBERS:
            return unread
        _check_size(archive, member, unread.nbytes)
        rows, native = Rows(), _native(dtype)
        at_once = _BLOCK_BYTES // dtype.itemsize
        for at in range(0, unread.size, at_once):
            count = min(at_once, unread.size - at)
            rows.append(np.frombuffer(file.read(count * dtype.itemsize), dtype).astype(native, copy=False))
        return rows.array().reshape(shape, order="F" if columns_first else "C")


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return TensorFlow's type for a numeric type of another byte order or of more than 64 bits."""
    if dtype.kind == "f" and dtype.itemsize > np.dtype(np.float64).itemsize:
        return np.dtype(np.float64)
    return dtype.newbyteorder("=")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return the shape, whether it is in column-major order, and the type."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)
