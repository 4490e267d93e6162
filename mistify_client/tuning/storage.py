"""Room for what a device keeps of its peers, and for them: where there is none it tunes alone."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError


@contextmanager
def stored_in(directory: Path) -> Iterator[None]:
    """Tell of a directory that cannot be written, and leave no parts of files (`*.part`) there.

    They take room that the version needs which was tuned alone.

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
