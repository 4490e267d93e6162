"""Locks on files and directories, between threads and processes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a file or directory; other threads and processes wait.

    Args:
        shared: Allow others to hold a shared lock at the same time.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        lock(descriptor, shared=shared)
        yield
    finally:
        os.close(descriptor)


def lock(file: int | IO[Any], *, shared: bool = False) -> None:
    """Lock an open file or directory until it is closed; wait while it is locked elsewhere.

    Args:
        shared: Allow others to hold a shared lock at the same time.
    """
    fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(file: int | IO[Any], *, shared: bool = False) -> bool:
    """Lock an open file or directory until it is closed; return False if it is locked elsewhere.

    Args:
        file: An open file, or its descriptor.
        shared: Allow others to hold a shared lock at the same time.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
