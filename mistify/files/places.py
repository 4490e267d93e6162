"""Locations of files: a user's caches and settings, and files that other users cannot open."""

import os
import tempfile
from pathlib import Path
from typing import IO


def make_files_private() -> None:
    """Set the umask so that other users cannot open files created by this process and its children."""
    os.umask(0o077)


def cache_directory() -> Path:
    """Return the user's cache directory: `$XDG_CACHE_HOME/mistify`, or `~/.cache/mistify` by default."""
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "mistify"


def config_directory() -> Path:
    """Return the user's settings directory: `$XDG_CONFIG_HOME/mistify`, or `~/.config/mistify` by default."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config") / "mistify"


def temporary_file() -> IO[bytes]:
    """Open an unnamed file for large data in the user's cache directory, because `/tmp` may be in memory.

    Raises:
        OSError: It cannot be created.
    """
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=directory)


def _home() -> Path:
    """Return the user's home directory; for a user without one, the root directory, as in containers."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
