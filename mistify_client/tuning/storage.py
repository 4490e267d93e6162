"""The directory of a package's tuner, and errors of a full disk: the device then tunes without peers."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify_client.runtime.versions import state_directory


def tuning_directory(package: Path) -> Path:
    """Return the directory of a package's tuner, created if necessary, and private to its owner.

    Args:
        package: The directory of the shipped package.
    """
    directory = state_directory(package) / "tuning"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # its weights reveal the data
    return directory


@contextmanager
def stored_in(directory: Path) -> Iterator[None]:
    """Report a directory that cannot be written, and remove partial files (`*.part`) from it.

    They use space that the version tuned alone needs.

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
