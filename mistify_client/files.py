"""Files and directories of commands: named by the user, or for one process at a time."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.files import try_lock


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        MistifyError: INVALID_CONFIG if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problem = Problem(str(path), f"bytes that are no text ({error.reason})", "UTF-8 text", "save it so")
        raise invalid_config([problem], str(path)) from error
    except OSError as error:
        problem = Problem(str(path), error.strerror or str(error), "a file to read", "check the path")
        raise invalid_config([problem], str(path)) from error


def output_directory(path: Path, option: str = "--out") -> None:
    """Create a directory if it is absent, and check that files can be created in it.

    Args:
        path: the path of the directory.
        option: the option that names the directory, or a file in it.

    Raises:
        MistifyError: INVALID_CONFIG if there is no such directory and none can be created.
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
def held_alone(directory: Path, otherwise: str) -> Iterator[None]:
    """Lock a directory for this process alone.

    Args:
        directory: the directory.
        otherwise: what another process does that has locked it.

    Raises:
        MistifyError: CONFLICT, another process has.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if not try_lock(descriptor):
            raise MistifyError(ErrorCode.CONFLICT, f"{otherwise} ({directory}); wait for its end")
        yield
    finally:
        os.close(descriptor)
