"""Stitched networks on disk: those of the most recent subnets, at most two."""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mistify.files.locking import locked
from mistify.files.writing import write_bytes
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockVariant
from mistify.package.records import PackagedFile

#: In the state directory of a package.
STITCHED: Final = "stitched"

#: The current and the previous one.
_MOST: Final = 2

#: Version of the stitching. Changes to it need a new number, so that old files are not used.
_FORMAT: Final = 1

_KEY_DIGITS: Final = 32


class StitchedNetworks:
    """The stitched networks of a package's subnets, shared between processes.

    A file's name contains the digest of its blocks, to find it, and the digest of its content, to detect
    damage. Only one process at a time creates networks. A file may be removed while its network runs, because
    the network is in memory.

    Attributes:
        directory: The directory of the files. It need not exist.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, blocks: Sequence[BlockVariant]) -> BlockVariant | None:
        """Return the network of blocks as one block, from inputs to outputs; None if there is none.

        Its file may be damaged, or be removed before it is opened.
        """
        for path in self.directory.glob(f"{_key(blocks)}-*.tflite"):
            with suppress(OSError, ValueError):  # it was removed, or its name does not contain a digest
                content = PackagedFile(size=path.stat().st_size, sha256=path.stem.partition("-")[2])
                return BlockVariant(file=path.name, content=content, start=0, span=blocks[-1].end)
        return None

    def note_use(self, network: BlockVariant) -> None:
        """Record that a network is used, so that others are removed first."""
        with suppress(OSError):
            os.utime(self.directory / network.file)

    def remove(self, network: BlockVariant) -> None:
        """Remove the damaged file of a network."""
        with suppress(OSError):
            (self.directory / network.file).unlink()

    def make(self, blocks: Sequence[BlockVariant], stitch: Callable[[], bytes]) -> None:
        """Stitch blocks, unless another process has already done so. Remove older networks.

        Args:
            stitch: Returns the network of the blocks.

        Raises:
            MistifyError: As for `stitch`.
            OSError: The network cannot be written, for example on a full disk.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with locked(self.directory):
            if self._has_after_cleaning(blocks):
                return
            content = stitch()
            self._remove_all_but(_MOST - 1)
            name = f"{_key(blocks)}-{hashlib.sha256(content).hexdigest()}.tflite"
            write_bytes(self.directory / name, content, durable=True)

    def _has_after_cleaning(self, blocks: Sequence[BlockVariant]) -> bool:
        """Delete damaged networks, and return whether these blocks have an undamaged one."""
        while (network := self.find(blocks)) is not None:
            with BlockFiles(self.directory) as files:
                if files.has(network):
                    return True
            (self.directory / network.file).unlink(missing_ok=True)
        return False

    def _remove_all_but(self, count: int) -> None:
        """Remove all files except the most recently used networks."""
        kept = sorted(self.directory.glob("*.tflite"), key=_used, reverse=True)[:count]
        for path in set(self.directory.iterdir()).difference(kept):  # including incomplete ones
            path.unlink(missing_ok=True)


def _key(blocks: Sequence[BlockVariant]) -> str:
    """Return a digest of a network's parts and settings."""
    digests = "\n".join(block.content.sha256 for block in blocks)
    return hashlib.sha256(f"{_FORMAT}\n{digests}".encode()).hexdigest()[:_KEY_DIGITS]


def _used(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
