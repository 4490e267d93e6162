"""Files and directories named by the user, checked before anything is started."""

import tempfile
from pathlib import Path

from mistify.errors import Problem, invalid_config


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
