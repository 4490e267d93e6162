"""`.npz`: arrays by the names of the model's inputs and outputs, or `x` and `y`."""

import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

import numpy as np

from executors.data.errors import invalid
from executors.data.storage import Array, Rows, StorageError
from executors.readers.fitting import check_shape
from executors.readers.formats import Arrays, Reader, Request, Schema
from executors.structure.signature import Output, Tensor
from mistify.errors import Problem

_SUFFIX = ".npy"
_BLOCK_BYTES = 16 * 2**20

#: Kinds of types: truth, whole numbers, floats.
_NUMBERS = "biuf"

#: What damaged files raise.
_UNREADABLE = (OSError, ValueError, OverflowError, EOFError, RuntimeError, BadZipFile, zlib.error)


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
                    name: _array(archive, member, str(path), wanted[name]) if name in wanted else np.empty(0)
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


def _array(archive: ZipFile, member: str, source: str, wanted: Tensor) -> Array:
    """Return an array; one of no numbers is told by its type and shape, and not read."""
    with archive.open(member) as file:
        shape, columns_first, dtype = _header(file)
        if dtype.hasobject:
            raise ValueError(f"{member} has Python objects in it")
        if 0 in shape[1:]:
            raise ValueError(f"{member} has rows with nothing in them")
        unread = np.broadcast_to(np.empty((), dtype), shape)
        check_shape(source, member.removesuffix(_SUFFIX), unread, wanted)
        if not unread.size or dtype.kind not in _NUMBERS:
            return unread
        if unread.nbytes > archive.getinfo(member).file_size:
            raise ValueError(f"{member} is shorter than it says")
        rows = Rows()
        at_once = _BLOCK_BYTES // dtype.itemsize
        for at in range(0, unread.size, at_once):
            count = min(at_once, unread.size - at)
            rows.append(np.frombuffer(file.read(count * dtype.itemsize), dtype))
        return rows.array().reshape(shape, order="F" if columns_first else "C")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return shape, whether columns come first, and type."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)
