"""Files and directories of commands: named by the user, or locked for one process at a time."""

import errno
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.files.locking import try_lock

#: Errors of paths that have an unexpected type or are not accessible.
_DAMAGE: Final = frozenset(
    {
        *(errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL),
        *(errno.EACCES, errno.EPERM),
    }
)


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        MistifyError: INVALID_CONFIG if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problem = Problem(
            str(path), f"a file that is not UTF-8 ({error.reason})", "UTF-8 text", "save it as UTF-8"
        )
        raise invalid_config([problem], str(path)) from error
    except (OSError, ValueError) as error:  # a name with a null character is a `ValueError`
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problem = Problem(str(path), reason, "a file to read", "check the path")
        raise invalid_config([problem], str(path)) from error


def read_toml(path: Path, expected: str) -> dict[str, Any]:
    """Return the content of a TOML file.

    Args:
        expected: Its kind in errors, such as "a monitor.toml".

    Raises:
        MistifyError: INVALID_CONFIG if it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # some numbers and depths are only too large for Python
        problem = Problem(str(path), "a file that is not valid TOML", expected, f"fix it: {error}")
        raise invalid_config([problem], str(path)) from error


def output_directory(path: Path, option: str = "--out") -> None:
    """Create a directory if it does not exist, and check that files can be created in it.

    Args:
        option: The option that names the directory, or a file in it.

    Raises:
        MistifyError: INVALID_CONFIG if the directory cannot be created or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        value = f"{path} ({error.strerror})"
        problem = Problem(option, value, "a directory to write into", "give another one")
        raise invalid_config([problem], "the output") from error


@contextmanager
def damage_reported(state: Path) -> Iterator[None]:
    """Report invalid or inaccessible state files of a package as a `MistifyError`.

    Args:
        state: The state directory, or a directory below it.

    Raises:
        MistifyError: CORRUPT_PACKAGE, naming the file.
        OSError: Another failure, such as a full disk.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _DAMAGE:
            raise
        expected = "a file or directory that Mistify has made, and that this process may read and write"
        fix = "remove it, or change its permissions"
        problem = Problem(
            str(error.filename2 or error.filename or state), error.strerror or str(error), expected, fix
        )
        message = f"the state of the package cannot be used ({state})"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message, [problem]) from error


@contextmanager
def held_alone(directory: Path, otherwise: str) -> Iterator[None]:
    """Lock a directory exclusively for this process.

    Args:
        otherwise: The activity of another process that holds the lock, for the error.

    Raises:
        MistifyError: CONFLICT, another process holds the lock.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if not try_lock(descriptor):
            raise MistifyError(ErrorCode.CONFLICT, f"{otherwise} ({directory}); wait for its end")
        yield
    finally:
        os.close(descriptor)


@contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """Yield an empty directory, which is removed at the end: `/tmp` may lie in memory."""
    shutil.rmtree(directory, ignore_errors=True)  # a process may have been killed
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
