"""Errors of a full disk while files of peers are stored: the device then tunes alone."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError


@contextmanager
def stored_in(directory: Path) -> Iterator[None]:
    """Report a directory that cannot be written, and remove parts of files (`*.part`) from it.

    They take room that the version tuned alone needs.

    Raises:
        MistifyError: UNAVAILABLE, it cannot be written, for example on a full disk.
    """
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            for part in directory.glob("*.part"):
                part.unlink()
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"{error.filename or directory} cannot be written ({error.strerror}); free space or restore "
            "write access",
        ) from error
