"""Places of files: the caches of a user, and files that no other user can open."""

import os
import tempfile
from pathlib import Path
from typing import IO


def make_files_private() -> None:
    """Let no file that this process makes, or one that it starts, be open to other users."""
    os.umask(0o077)


def cache_directory() -> Path:
    """Return the directory of the user's caches: `$XDG_CACHE_HOME/mistify`, or else `~/.cache/mistify`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mistify"


def temporary_file() -> IO[bytes]:
    """Open a file without a name, which may be large: in the user's caches, as `/tmp` may lie in memory.

    Raises:
        OSError: It cannot be made.
    """
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=directory)
