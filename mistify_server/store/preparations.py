"""Storage of algorithms' preparations by key: first the finished parts, then the complete artifact.

A key is a digest of all inputs of a preparation, so it identifies the preparation across jobs.
"""

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mistify.errors import MistifyError
from mistify.files.locking import locked
from mistify.files.writing import write_bytes
from mistify_server.store.artifacts import Artifacts, digest_of, writing

#: Name of the directory next to the artifacts.
_DIRECTORY: Final = "preparations"

#: Name of the file that holds the artifact's name once it exists, and the artifact's suffix.
_MADE: Final = ".made"
_SUFFIX: Final = ".prepared"


class Preparations:
    """The preparations in a store. Any number of processes can use them concurrently.

    Args:
        artifacts: The artifacts of the same store.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._directory = artifacts.directory / _DIRECTORY

    @contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Lock a preparation within the block, so that others that need it wait and then use its artifact.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        directory = self._directory / key
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
        with locked(directory):
            yield

    def artifact(self, key: str) -> str | None:
        """Return the artifact of a finished preparation, marked as in use; None if there is no intact one."""
        try:
            name = (self._directory / key / _MADE).read_text()
            content = self._artifacts.intact(name).read_bytes()
        except (FileNotFoundError, MistifyError):
            return None
        return self._artifacts.put(content, _SUFFIX)

    def finish(self, key: str, content: bytes) -> str:
        """Store a complete preparation as an artifact, remove its parts, and return the artifact's name."""
        name = self._artifacts.put(content, _SUFFIX)
        self.keep(key, _MADE, name.encode())
        for path in (self._directory / key).iterdir():
            if path.name != _MADE:
                path.unlink(missing_ok=True)
        return name

    def part(self, key: str, name: str) -> bytes:
        """Return a part of a preparation; empty if it is not stored."""
        try:
            return (self._directory / key / name).read_bytes()
        except FileNotFoundError:
            return b""

    def keep(self, key: str, name: str, content: bytes) -> None:
        """Store a part of a preparation; it is safely on disk on return.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        directory = self._directory / key
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            write_bytes(directory / name, content, durable=True)

    def beside(self, artifact: str) -> str:
        """Return the key of parts that are derived from a finished preparation, and removed with it.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        key = digest_of(artifact)
        if not self.part(key, _MADE):
            self.keep(key, _MADE, artifact.encode())
        return key

    def remove_unused(self, referenced: Collection[str], before: float, *, with_parts: bool) -> int:
        """Remove preparations with unreferenced artifacts.

        Args:
            referenced: Digests of all referenced artifacts.
            before: Seconds since 1970; files written at this time or later are kept.
            with_parts: Whether to remove unfinished preparations too.

        Returns:
            Number of bytes freed, not counting artifacts.
        """
        return sum(
            _removed(directory)
            for directory in self._all()
            if directory.stat().st_mtime < before and self._is_unused(directory, referenced, with_parts)
        )

    def _all(self) -> Iterator[Path]:
        if self._directory.is_dir():
            yield from self._directory.iterdir()

    def _is_unused(self, directory: Path, referenced: Collection[str], with_parts: bool) -> bool:
        made = directory / _MADE
        return digest_of(made.read_text()) not in referenced if made.exists() else with_parts


def _removed(directory: Path) -> int:
    size = sum(path.stat().st_size for path in directory.iterdir())
    shutil.rmtree(directory, ignore_errors=True)
    return size
