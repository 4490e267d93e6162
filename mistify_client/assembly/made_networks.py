"""Files that a device made out of those of a package, such as networks: the most recent ones, at most two."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mistify.files.locking import locked
from mistify.files.writing import write_bytes
from mistify.package.block_files import BlockFiles
from mistify.package.records import PackagedFile

#: The current and the previous one.
_MOST: Final = 2

_KEY_DIGITS: Final = 32


@dataclass(frozen=True)
class NetworkFile:
    """A network on disk.

    Attributes:
        file: Name of its `.tflite`.
        content: The size of the file, and the digest that it was written with.
    """

    file: str
    content: PackagedFile


class MadeNetworks:
    """The networks of one kind, or files for them, that were made for a package, shared between processes.

    A file's name contains the key of the network, to find it, and the digest of its content, to detect
    damage. Only one process at a time makes networks. A file may be removed while its network runs, because
    the network is in memory.

    Attributes:
        directory: The directory of the files. It need not exist.
    """

    def __init__(self, directory: Path, suffix: str = ".tflite") -> None:
        self.directory = directory
        self._suffix = suffix

    def find(self, key: str) -> NetworkFile | None:
        """Return the network with a key; None if there is none.

        Its file may be damaged, or be removed before it is opened.
        """
        for path in self.directory.glob(f"{key}-*{self._suffix}"):
            with suppress(OSError, ValueError):  # it was removed, or its name does not contain a digest
                content = PackagedFile(size=path.stat().st_size, sha256=path.stem.partition("-")[2])
                return NetworkFile(path.name, content)
        return None

    def has(self, key: str) -> bool:
        """Check whether there is an undamaged network with a key."""
        network = self.find(key)
        return network is not None and self._is_undamaged(network)

    def note_use(self, network: NetworkFile) -> None:
        """Record that a network is used, so that others are removed first."""
        with suppress(OSError):
            os.utime(self.directory / network.file)

    def remove(self, network: NetworkFile) -> None:
        """Remove the damaged file of a network."""
        with suppress(OSError):
            (self.directory / network.file).unlink()

    def make(self, key: str, build: Callable[[], bytes]) -> None:
        """Make the network with a key, unless another process has already done so. Remove older networks.

        Args:
            build: Returns the content of its file.

        Raises:
            MistifyError: Raised by `build`.
            OSError: The network cannot be written, for example on a full disk.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with locked(self.directory):
            if self._has_after_cleaning(key):
                return
            content = build()
            self._remove_all_but(_MOST - 1)
            name = f"{key}-{hashlib.sha256(content).hexdigest()}{self._suffix}"
            write_bytes(self.directory / name, content, durable=True)

    def _is_undamaged(self, network: NetworkFile) -> bool:
        with BlockFiles(self.directory) as files:
            return files.has(network)

    def _has_after_cleaning(self, key: str) -> bool:
        """Delete damaged networks, and return whether the key has an undamaged one."""
        while (network := self.find(key)) is not None:
            if self._is_undamaged(network):
                return True
            (self.directory / network.file).unlink(missing_ok=True)
        return False

    def _remove_all_but(self, count: int) -> None:
        """Remove all files except the most recently used networks."""
        kept = sorted(self.directory.glob(f"*{self._suffix}"), key=_used, reverse=True)[:count]
        for path in set(self.directory.iterdir()).difference(kept):  # including incomplete ones
            path.unlink(missing_ok=True)


def key_of(*parts: str) -> str:
    """Return the key of a network that is determined by these texts, such as digests of files."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_KEY_DIGITS]


def _used(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
