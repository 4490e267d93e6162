"""Cached digests of files and directories, which are read again only after changes."""

import errno
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

#: Number of cached digests.
_REMEMBERED: Final = 1_024

#: Time in nanoseconds within which a second change of a file may leave its stamp unchanged.
_SAME_TICK_NS: Final = 2_000_000_000

_CHUNK: Final = 1 << 20


class _Stamp(NamedTuple):
    """The identity and state of a file without its content. A change of the content changes the stamp.

    The time of metadata changes is excluded, because access to uploads changes it.
    """

    name: str
    device: int
    inode: int
    size: int
    modified_ns: int


class FileDigests:
    """The SHA-256 of files and directories. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, tuple[tuple[_Stamp, ...], str]] = OrderedDict()
        self._lock = Lock()

    def of(self, path: Path) -> str:
        """Return the digest of a file's content, or of the names and contents of all files in a directory.

        Raises:
            OSError: The file cannot be read, or a directory contains a link to another directory.
        """
        stamps = tuple(_stamps(path))
        known = self._known_of(path, stamps)
        if known is not None:
            return known
        read_at = time.time_ns()
        digest = _digest(path, stamps)
        if all(stamp.modified_ns < read_at - _SAME_TICK_NS for stamp in stamps):
            self._remember(path, stamps, digest)
        return digest

    def known(self, path: Path) -> str | None:
        """Return the digest of a file that has not changed since it was read; None if it has to be read.

        It is also None for a directory: looking at its files alone can take seconds.

        Raises:
            OSError: The file cannot be accessed.
        """
        return None if path.is_dir() else self._known_of(path, tuple(_stamps(path)))

    def _known_of(self, path: Path, stamps: tuple[_Stamp, ...]) -> str | None:
        with self._lock:
            known = self._known.get(path)
        return known[1] if known is not None and known[0] == stamps else None

    def _remember(self, path: Path, stamps: tuple[_Stamp, ...], digest: str) -> None:
        with self._lock:
            self._known[path] = stamps, digest
            self._known.move_to_end(path)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


def _stamps(path: Path) -> Iterator[_Stamp]:
    """Yield the stamps of a file, or of all files in a directory, in order of name."""
    if not path.is_dir():
        yield _stamp("", path)
        return
    for directory, folders, names in os.walk(path):
        folders.sort()
        for folder in (os.path.join(directory, folder) for folder in folders):
            if os.path.islink(folder):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)
        for name in sorted(names):
            file = os.path.join(directory, name)
            yield _stamp(os.path.relpath(file, path), file)


def _stamp(name: str, path: str | Path) -> _Stamp:
    status = os.stat(path)
    return _Stamp(name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _digest(path: Path, stamps: tuple[_Stamp, ...]) -> str:
    digest = hashlib.sha256()
    for stamp in stamps:
        digest.update(f"{stamp.name}\0{stamp.size}\0".encode())
        with (path / stamp.name).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
