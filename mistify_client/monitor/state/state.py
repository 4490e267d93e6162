"""The daemon's persistent files, in the state directory next to the package."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked, try_lock
from mistify.package.manifest import Manifest
from mistify_client.files import damage_reported
from mistify_client.runtime.versions import state_directory


@dataclass(frozen=True)
class MonitorState:
    """Paths of the files of one package's daemon.

    Attributes:
        directory: The daemon's own directory, below the package's state directory.
    """

    directory: Path

    @classmethod
    def of(cls, package: Path) -> "MonitorState":
        """Return the paths of a package's daemon; the files need not exist.

        Raises:
            MistifyError: The directory is not a package; raised by `Manifest.load`.
        """
        Manifest.load(package)
        return cls(state_directory(package) / "monitor")

    @property
    def targets(self) -> Path:
        """The file with the targets set by `mistify target`."""
        return self.directory / "targets.json"

    @property
    def status(self) -> Path:
        """The file shown by `mistify status`."""
        return self.directory / "status.json"

    @property
    def log(self) -> Path:
        """The log of decisions, one JSON object per line."""
        return self.directory / "decisions.jsonl"

    @property
    def replacement(self) -> Path:
        """The file with the progress of the work on a new package."""
        return self.directory / "replacement.json"

    @property
    def search(self) -> Path:
        """The file with the output of the last search for other subnets."""
        return self.directory / "search.log"

    @property
    def reports(self) -> Path:
        """The file with the measured latencies of packages, and whether they were reported."""
        return self.directory / "reports.json"

    @property
    def candidate(self) -> Path:
        """The download directory for a new package."""
        return self.directory / "candidate"

    @property
    def rollout(self) -> Path:
        """The file with the last package of a roll-out, and the phase of its installation."""
        return self.directory / "rollout.json"

    @property
    def rollout_candidate(self) -> Path:
        """The download directory for the package of a roll-out."""
        return self.directory / "rollout"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock that makes this process the package's only daemon.

        The lock is released at the end of the context, or when the process dies.

        Raises:
            MistifyError: CONFLICT, another daemon holds the lock; CORRUPT_PACKAGE, the state is damaged.
        """
        with damage_reported(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            opened = self._lock.open("ab+", buffering=0)
        with opened as file:
            with locked(self.directory):  # `is_held` briefly takes the daemon's lock as well
                if not try_lock(file):
                    file.seek(0)
                    raise _held_by(file.read().decode(errors="replace"), self.directory)
            with suppress(OSError):  # on a full disk, it only lacks its number
                file.truncate(0)
                file.write(str(os.getpid()).encode())
            yield

    @property
    def is_held(self) -> bool:
        """Return True if a daemon is running."""
        if not self._lock.exists():
            return False
        with damage_reported(self.directory), locked(self.directory), self._lock.open() as file:
            return not try_lock(file)

    @property
    def _lock(self) -> Path:
        return self.directory / "lock"


def stamp(path: Path) -> tuple[int, int] | None:
    """Return a value that changes when a file is replaced or overwritten.

    Returns:
        The inode and the modification time in nanoseconds; None if there is no file.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _held_by(pid: str, directory: Path) -> MistifyError:
    process = f"process {pid}" if pid else "another process"
    return MistifyError(
        ErrorCode.CONFLICT,
        f"a monitor already runs for this package ({process}, {directory}); stop it first, "
        "or see mistify status",
    )
