"""The lock of a store's directory, which one server holds at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import try_lock

#: Name of the directory of logs in a store.
LOGS: Final = "logs"

_LOCK: Final = "lock"

#: Mode of a store's directories: only the user who runs the server has access.
PRIVATE: Final = 0o700


@contextmanager
def locked_store(directory: Path) -> Iterator[None]:
    """Hold the lock for the store's only server within the block; it is released when the process ends.

    The directory is created if it does not exist.

    Raises:
        MistifyError: UNAVAILABLE, another server has the store, or it cannot be used.
    """
    make_store_directory(directory)
    with store_errors(directory):
        handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not try_lock(handle):
            raise MistifyError(
                ErrorCode.UNAVAILABLE,
                f"the store {directory} is in use by another server (process {_holder(handle)}); "
                "stop that server, use another --store or, with a database in PostgreSQL, join it (--join)",
            )
        os.truncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def make_store_directory(directory: Path) -> None:
    """Create the directories of a store and of its logs unless they exist.

    Raises:
        MistifyError: UNAVAILABLE, they cannot be used.
    """
    with store_errors(directory):
        directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        (directory / LOGS).mkdir(mode=PRIVATE, exist_ok=True)


@contextmanager
def store_errors(directory: Path) -> Iterator[None]:
    """Translate errors of the operating system within the block.

    Raises:
        MistifyError: UNAVAILABLE, the store cannot be used.
    """
    try:
        yield
    except OSError as error:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"the store {directory} cannot be used ({error.strerror}); "
            "give the server write access to it or use another --store",
        ) from error


def _holder(handle: int) -> str:
    return os.pread(handle, 32, 0).decode(errors="replace") or "unknown"
