"""`.npz`: arrays by the names of the model's inputs and outputs, or `x` and `y`."""

import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

import numpy as np

from executors.data.errors import invalid
from executors.data.storage import Array, Rows, StorageError
from executors.readers.formats import Arrays, Reader, Request, Schema
from executors.structure.signature import Output
from mistify.errors import Problem

_SUFFIX = ".npy"
_BLOCK_BYTES = 16 * 2**20

#: What damaged files raise.
_UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, BadZipFile, zlib.error)


class NpzReader(Reader):
    """Reads `.npz` files block by block, so that they may be larger than memory."""

    def accepts(self, path: Path) -> bool:
        """Check the suffix; accept `.npy` as well, to report what is wrong with it."""
        return path.suffix in (".npz", _SUFFIX)

    def read(self, path: Path, request: Request) -> Arrays:
        """Return the arrays that the model needs; of the others only the names, with nothing in them."""
        try:
            if path.suffix == _SUFFIX:
                raise ValueError("it is a single array")
            with ZipFile(path) as archive:
                members = _members(archive)
                wanted = request.wanted(list(members))
                return {
                    name: _array(archive, member) if name in wanted else np.empty(0)
                    for name, member in members.items()
                }
        except StorageError:
            raise
        except _UNREADABLE as error:
            actual = f"a file that cannot be read ({type(error).__name__}: {error})"
            problem = Problem(str(path), actual, "an .npz file", "write it by np.savez(FILE, x=..., y=...)")
            raise invalid(problem) from error

    def schema(self, path: Path, request: Request) -> Schema:
        """Return which targets are whole numbers, by their types; nothing of what `read` will refuse."""
        whole: dict[str, bool] = {}
        with suppress(*_UNREADABLE), ZipFile(path) as archive:
            members = _members(archive)
            for name, tensor in request.wanted(list(members)).items():
                if isinstance(tensor, Output):
                    with archive.open(members[name]) as file:
                        _, _, dtype = _header(file)
                    whole[tensor.name] = dtype.kind in "biu"
        return Schema(whole=whole)


def _members(archive: ZipFile) -> dict[str, str]:
    """Return the files in an archive by the names of their arrays."""
    return {name.removesuffix(_SUFFIX): name for name in archive.namelist()}


def _array(archive: ZipFile, member: str) -> Array:
    with archive.open(member) as file:
        shape, columns_first, dtype = _header(file)
        if dtype.hasobject:
            raise ValueError(f"{member} has Python objects in it")
        declared = dtype.itemsize * int(np.prod(shape, dtype=np.float64))
        if not shape or not declared:
            return np.empty(shape, dtype)
        if declared > archive.getinfo(member).file_size:
            raise ValueError(f"{member} is shorter than it says")
        if columns_first:
            return np.frombuffer(file.read(declared), dtype).reshape(shape[::-1]).T
        rows = Rows()
        row_bytes = declared // shape[0]
        at_once = max(1, _BLOCK_BYTES // row_bytes)
        for at in range(0, shape[0], at_once):
            count = min(at_once, shape[0] - at)
            rows.append(np.frombuffer(file.read(count * row_bytes), dtype).reshape(count, *shape[1:]))
        return rows.array()


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return shape, whether columns come first, and type."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)
