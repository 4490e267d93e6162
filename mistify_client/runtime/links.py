"""Symbolic links in the state of a package, which are replaced atomically."""

import errno
import os
from pathlib import Path

from mistify.files.writing import sync_path


def set_link(link: Path, target: Path) -> None:
    """Make a link point to a path, relative to the directory of the link."""
    new = link.with_name(f"{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)
    sync_path(link.parent)


def link_target(link: Path) -> str:
    """Return the target of a link.

    Raises:
        FileNotFoundError: There is none, or anything else in its place.
        OSError: The link cannot be read.
    """
    try:
        return os.readlink(link)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ELOOP):
            raise FileNotFoundError(errno.ENOENT, "no link", str(link)) from error
        raise
