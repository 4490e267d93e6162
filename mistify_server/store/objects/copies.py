"""Copies of artifacts on the disk of a machine, limited in size."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

from mistify.files.locking import try_lock

#: Seconds after its last use for which a copy is kept, so that its path can be handed on.
KEPT_SECONDS: Final = 3_600.0

#: Copies are counted again after new ones of this share of the limit.
_SHARE: Final = 1 / 16

#: Copies of artifacts, and incomplete ones.
_COPIES: Final = ("??/*", "incoming/*")


class LocalCopies:
    """The copies in a directory, of which those unused for longest are removed. Processes can share it.

    A copy that is locked or was used within the last hour stays, even if this exceeds the limit.

    Args:
        most_bytes: Limit on their total size.
        now: Returns seconds since 1970.
    """

    def __init__(self, directory: Path, most_bytes: float, now: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._most_bytes = most_bytes
        self._now = now
        self._uncounted = inf  # those of earlier processes

    def use(self, path: Path) -> None:
        """Note that a copy is used; its content is not read again because of this, except every half hour.

        Raises:
            FileNotFoundError: It was removed.
        """
        status = path.stat()
        if _last_use(status) < self._now() - KEPT_SECONDS / 2:
            os.utime(path, ns=(int(self._now() * 1e9), status.st_mtime_ns))

    def add(self, size: int) -> None:
        """Note a new copy of this size in bytes, and remove old ones if necessary."""
        self._uncounted += size
        if self._uncounted >= self._most_bytes * _SHARE:
            self._uncounted = 0
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        before = self._now() - KEPT_SECONDS
        copies = [(_last_use(status), status.st_size, path) for path, status in self._all()]
        excess = sum(size for _, size, _ in copies) - self._most_bytes
        for used, size, path in sorted(copies):
            if excess <= 0 or used >= before:
                return
            excess -= size if _removed(path, before) else 0

    def _all(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in (path for pattern in _COPIES for path in self._directory.glob(pattern)):
            with suppress(FileNotFoundError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    yield path, status


def _last_use(status: os.stat_result) -> float:
    return max(status.st_atime, status.st_mtime)


def _removed(path: Path, before: float) -> bool:
    """Remove a copy, unless it is locked or has been used meanwhile."""
    with suppress(OSError), path.open("rb") as file:
        if try_lock(file) and _last_use(os.fstat(file.fileno())) < before:
            path.unlink()
            return True
    return False
