"""Incomplete files, each received by one caller at a time, also if several servers share their directory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import try_lock
from mistify.uploads import FileDigest


@contextmanager
def received_alone(part: Path) -> Iterator[None]:
    """Keep others from receiving an incomplete file within the block; an empty one does not stay.

    Raises:
        MistifyError: UNAVAILABLE, another caller is uploading it.
    """
    with part.open("ab") as held:
        if not is_locked_at(held, part):
            raise MistifyError(
                ErrorCode.UNAVAILABLE, f"{part.name} is being uploaded by another client; try again later"
            )
        try:
            yield
        finally:
            if _is_at(held, part) and not size_of(part):
                part.unlink()


def is_locked_at(file: IO[bytes], path: Path) -> bool:
    """Lock an open file until it is closed; return False if it is locked elsewhere, or not there any more.

    Completed files are moved to their places, and another one may arrive at the path.
    """
    return try_lock(file) and _is_at(file, path)


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def check_offset(file: FileDigest, offset: int, arrived: int) -> None:
    """Raise an error if data from an offset would leave a gap after the bytes that have arrived.

    Raises:
        MistifyError: CONFLICT.
    """
    if not 0 <= offset <= arrived:
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"got data of {file.sha256} from byte {offset:,} on; expected byte {arrived:,}, "
            "because the bytes before it have been received; query its state and send the rest",
        )


def size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
