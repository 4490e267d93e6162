"""Inspections of models with their data, stored under digests of everything that they depend on."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from mistify.files.writing import write_bytes
from mistify_server.store.artifacts import writing
from mistify_server.tasks.base import Message
from mistify_server.tasks.results import Inspection

#: Maximum number of stored inspections; the least recently used ones are removed first.
MOST_KEPT: Final = 1_000

_SUFFIX: Final = ".json"


class _Kept(Message):
    """An inspection and the files and directories that it covers."""

    sources: tuple[str, ...]
    inspection: Inspection


class KeptInspections:
    """The inspections of a store, each in a separate file.

    Args:
        directory: Directory of the files; created with the first inspection.
        most: Maximum number of inspections.
    """

    def __init__(self, directory: Path, most: int = MOST_KEPT) -> None:
        self._directory = directory
        self._most = most

    def get(self, key: str) -> Inspection | None:
        """Return an inspection; None if there is none or it is no longer readable."""
        path = self._path(key)
        try:
            kept = _Kept.model_validate_json(path.read_bytes())
            path.touch()
        except (OSError, ValidationError):
            return None
        return kept.inspection

    def keep(self, key: str, inspection: Inspection, sources: Collection[str]) -> None:
        """Store an inspection; it is safely on disk on return.

        Args:
            key: Digest of everything that the inspection depends on.
            sources: Files and directories without which the inspection is useless.

        Raises:
            MistifyError: UNAVAILABLE, the disk is full or cannot be written.
        """
        content = _Kept(sources=tuple(sources), inspection=inspection).model_dump_json().encode()
        with writing(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            write_bytes(self._path(key), content, durable=True)
        kept = sorted(self._paths(), key=_last_used)
        for path in kept[: max(0, len(kept) - self._most)]:
            path.unlink(missing_ok=True)

    def remove_unneeded(self) -> int:
        """Remove the inspections of files that no longer exist; return the number of bytes freed."""
        return sum(_removed(path) for path in self._paths() if not _is_needed(path))

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}{_SUFFIX}"

    def _paths(self) -> list[Path]:
        return list(self._directory.glob(f"*{_SUFFIX}"))


def _last_used(path: Path) -> int:
    """Return the time at which an inspection was last used; 0 if it has just been removed."""
    with suppress(FileNotFoundError):
        return path.stat().st_mtime_ns
    return 0


def _is_needed(path: Path) -> bool:
    try:
        kept = _Kept.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return False
    return all(Path(source).exists() for source in kept.sources)


def _removed(path: Path) -> int:
    with suppress(FileNotFoundError):
        size = path.stat().st_size
        path.unlink()
        return size
    return 0
