"""Files and directories that a user names, checked before anything is started."""

import os
import tempfile
from pathlib import Path

from mistify.errors import Problem, invalid_config


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        MistifyError: INVALID_CONFIG, it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problem = Problem(str(path), f"bytes that are no text ({error.reason})", "UTF-8 text", "save it so")
        raise invalid_config([problem], str(path)) from error
    except OSError as error:
        problem = Problem(str(path), error.strerror or str(error), "a file to read", "check the path")
        raise invalid_config([problem], str(path)) from error


def read_token(path: Path | None) -> str | None:
    """The access token in a file; None where none is named.

    Raises:
        MistifyError: INVALID_CONFIG, it cannot be read.
    """
    return None if path is None else read_text(path).strip()


def output_directory(path: Path, option: str = "--out") -> None:
    """Make sure that there is a directory in which files can be made.

    Args:
        path: of the directory.
        option: that names it, or a file in it.

    Raises:
        MistifyError: INVALID_CONFIG, there is none and none can be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        given = f"{path} ({error.strerror})"
        problem = Problem(option, given, "a directory to write into", "give another one")
        raise invalid_config([problem], "the output") from error


def cache_directory() -> Path:
    """Where downloads are kept if nobody says where."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mistify"
