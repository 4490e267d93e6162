"""The files of preparations: each preparation has a key, and its files have names."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from mistify.files.writing import write_bytes


class PreparationFiles(ABC):
    """The files of preparations. Any number of processes can use them concurrently."""

    @abstractmethod
    def read(self, key: str, name: str) -> bytes:
        """Return the content of a file; empty if there is none."""

    @abstractmethod
    def write(self, key: str, name: str, content: bytes) -> None:
        """Store a file; it is safely stored on return."""

    @abstractmethod
    def keep_only(self, key: str, name: str) -> None:
        """Remove all other files of a preparation."""

    @abstractmethod
    def written(self) -> Mapping[str, float]:
        """Return when the files of each preparation were last changed, in seconds since 1970."""

    @abstractmethod
    def remove(self, key: str) -> int:
        """Remove all files of a preparation, and return the number of bytes freed."""


class LocalPreparationFiles(PreparationFiles):
    """The files of preparations in one directory. Methods raise `OSError` if the disk cannot be used."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @override
    def read(self, key: str, name: str) -> bytes:
        try:
            return (self._directory / key / name).read_bytes()
        except FileNotFoundError:
            return b""

    @override
    def write(self, key: str, name: str, content: bytes) -> None:
        directory = self._directory / key
        directory.mkdir(parents=True, exist_ok=True)
        write_bytes(directory / name, content, durable=True)

    @override
    def keep_only(self, key: str, name: str) -> None:
        for path in (self._directory / key).iterdir():
            if path.name != name:
                path.unlink(missing_ok=True)

    @override
    def written(self) -> Mapping[str, float]:
        if not self._directory.is_dir():
            return {}
        return {path.name: path.stat().st_mtime for path in self._directory.iterdir()}

    @override
    def remove(self, key: str) -> int:
        directory = self._directory / key
        size = sum(path.stat().st_size for path in directory.iterdir())
        shutil.rmtree(directory, ignore_errors=True)
        return size
