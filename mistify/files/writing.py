"""Atomic and durable writes of files."""

import errno
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from mistify.files.locking import lock, try_lock

#: Suffix of a file that is still being written.
PART = ".part"

#: Errors of disks that accept no more data.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


@contextmanager
def replacing(path: Path, *, durable: bool = False, private: bool = False) -> Iterator[IO[bytes]]:
    """Yield an open file that replaces another one when the block ends without an error.

    Readers see the old or the new content, never a mixture; of several writers at once, the last one to end
    wins. Until then the file is `NAME.part`, or `NAME.1.part` and so on beside other writers. It is removed
    if the block fails.

    Args:
        path: The file to replace; it need not exist.
        durable: Wait for the disk, so that a power cut cannot restore the old content. Otherwise, both may be
            lost in a power cut.
        private: Let only the owner read the file.

    Raises:
        OSError: The file cannot be written; the old one is unchanged.
    """
    partial, descriptor = _new_partial(path, 0o600 if private else 0o666)
    with os.fdopen(descriptor, "wb") as file:
        try:
            yield file
            if durable:
                sync_file(file)
            file.flush()
            partial.replace(path)  # still locked: another writer would remove it otherwise
        except BaseException:
            partial.unlink(missing_ok=True)  # on a full disk, it takes the room of others
            raise
    if durable:
        sync_path(path.parent)


def _new_partial(path: Path, mode: int) -> tuple[Path, int]:
    """Create a partial file for a path and lock it, so that no other writer removes it.

    It is always created: a link that somebody has put in its place could point elsewhere.
    """
    numbers = itertools.count(1)
    partial = path.with_name(path.name + PART)
    while True:
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            if not _removed(partial):
                partial = path.with_name(f"{path.name}.{next(numbers)}{PART}")
            continue
        with suppress(OSError):  # a file system without locks
            lock(descriptor)
        if _is_open_at(partial, descriptor):
            return partial, descriptor
        os.close(descriptor)  # it was removed before it was locked


def _removed(partial: Path) -> bool:
    """Remove a partial file of a process that has ended; return False for one that has to stay.

    It is being written, or is a link or a file of somebody else. A path is only removed while its file is
    locked, since another writer may begin there at any moment.
    """
    try:
        descriptor = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:  # its writer has ended
        return True
    except OSError:
        return False
    try:
        with suppress(OSError):
            if not try_lock(descriptor):
                return False
        if _is_open_at(partial, descriptor):
            partial.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


def _is_open_at(path: Path, descriptor: int) -> bool:
    """Check whether a path leads to an open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def open_partial(partial: Path) -> IO[bytes]:
    """Open a partial file for appending; replace a link, which could point elsewhere.

    Raises:
        OSError: It cannot be written.
    """
    if partial.is_symlink() or (partial.exists() and partial.stat().st_nlink > 1):
        partial.unlink()
    descriptor = os.open(partial, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    return os.fdopen(descriptor, "ab")


def write_bytes(path: Path, content: bytes, *, durable: bool = False, private: bool = False) -> None:
    """Write a file as `replacing` does."""
    with replacing(path, durable=durable, private=private) as file:
        file.write(content)


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a UTF-8 file as `replacing` does."""
    write_bytes(path, text.encode(), durable=durable)


def write_json(path: Path, value: object, *, durable: bool = False) -> None:
    """Write a JSON file as `replacing` does."""
    write_text(path, json.dumps(value, indent=2) + "\n", durable=durable)


def sync_file(file: int | IO[bytes]) -> None:
    """Wait until the content written to an open file, or to its descriptor, is on the disk."""
    if not isinstance(file, int):
        file.flush()
        file = file.fileno()
    os.fsync(file)


def sync_path(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
