"""Where the daemon keeps what has to last: beside the package, in the directory of its state."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files import locked, try_lock
from mistify.package.manifest import Manifest
from mistify_client.runtime.versions import state_directory


@dataclass(frozen=True)
class MonitorState:
    """The files of the daemon of one package.

    Attributes:
        directory: below the package's state directory.
    """

    directory: Path

    @classmethod
    def of(cls, package: Path) -> "MonitorState":
        """The files of a package's daemon; they need not be there.

        Raises:
            MistifyError: as `Manifest.load`: this is no package.
        """
        Manifest.load(package)
        return cls(state_directory(package) / "monitor")

    @property
    def targets(self) -> Path:
        """What `mistify target` has changed."""
        return self.directory / "targets.json"

    @property
    def status(self) -> Path:
        """What `mistify status` shows."""
        return self.directory / "status.json"

    @property
    def log(self) -> Path:
        """The decisions, one JSON object in a line."""
        return self.directory / "decisions.jsonl"

    @property
    def replacement(self) -> Path:
        """How far the work on a new package is."""
        return self.directory / "replacement.json"

    @property
    def reports(self) -> Path:
        """What packages were measured to take, and whether the server knows."""
        return self.directory / "reports.json"

    @property
    def candidate(self) -> Path:
        """The directory that a new package is downloaded into."""
        return self.directory / "candidate"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the only daemon of the package, until the end or the death of the process.

        Raises:
            MistifyError: CONFLICT, another one is.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a+") as file:
            with locked(self.directory):  # one who only asks whether the lock is held takes it as well
                if not try_lock(file):
                    file.seek(0)
                    raise _held_by(file.read(), self.directory)
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    @property
    def is_held(self) -> bool:
        """Whether a daemon runs."""
        if not self._lock.exists():
            return False
        with locked(self.directory), self._lock.open() as file:
            return not try_lock(file)

    @property
    def _lock(self) -> Path:
        return self.directory / "lock"


def stamp(path: Path) -> tuple[int, int] | None:
    """Tells a file from the one that takes its place, or is written over it; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _held_by(pid: str, directory: Path) -> MistifyError:
    process = f"process {pid}" if pid else "another process"
    return MistifyError(
        ErrorCode.CONFLICT,
        f"a monitor looks after this package already ({process}, {directory}); stop it first, "
        "or look at it with mistify status",
    )
