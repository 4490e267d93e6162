"""The packages of a helper: it runs their blocks, named by digest, and no others."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BlockStore, BlockVariant
from mistify.package.manifest import TensorInfo
from mistify.package.opened import Package
from mistify_client.assembly.shipped import blocks_of
from mistify_client.lending.tensors import MESSAGE_BYTES, bytes_of

#: Characters of a digest, and numbers of a list, in error messages.
_SHOWN = 12

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BlockNetwork:
    """A network of blocks of a package.

    Attributes:
        directory: The directory of the package.
        blocks: From the inputs of the network to its outputs.
        starts: Indices of the blocks with which its segments begin, ascending from 0.
        rounded: Indices of the segments whose inputs are rounded to bytes when they are sent.
    """

    directory: Path
    store: BlockStore
    blocks: tuple[BlockVariant, ...]
    starts: tuple[int, ...]
    rounded: frozenset[int] = frozenset()

    @property
    def segments(self) -> tuple[tuple[BlockVariant, ...], ...]:
        """The blocks of each segment."""
        ends = (*self.starts[1:], len(self.blocks))
        return tuple(self.blocks[start:end] for start, end in zip(self.starts, ends, strict=True))

    def inputs_of(self, segment: int) -> tuple[TensorInfo, ...]:
        """Return the input tensors of a segment, given its index."""
        return self.store.tensors_at(self.blocks[self.starts[segment]].start)

    def tensors_at(self, cut: int) -> tuple[TensorInfo, ...]:
        """Return the tensors before a segment, given its index; behind the last one, the outputs."""
        return self.outputs if cut == len(self.starts) else self.inputs_of(cut)

    def sent_bytes(self, cut: int) -> int:
        """Return the bytes of the tensors before a segment as they are sent, for one example."""
        size = bytes_of(self.tensors_at(cut))
        return size // np.dtype(np.float32).itemsize if cut in self.rounded else size

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs of the network."""
        return self.store.outputs

    @property
    def digests(self) -> tuple[str, ...]:
        """SHA-256 of each block's file, in hex."""
        return tuple(block.content.sha256 for block in self.blocks)


class LentPackages:
    """The packages whose blocks a helper runs for other devices.

    A package that is replaced on disk is opened again for the next session; earlier ones have their blocks in
    memory.

    Args:
        packages: Packages with blocks.
        open_again: Opens the package in a directory; raises `MistifyError` for one that must not be lent.

    Raises:
        MistifyError: NOT_FOUND, a package has no blocks, or no `blocks.json`; STORE_VERSION, a newer version
            of Mistify wrote that; CORRUPT_PACKAGE, with every problem in it.
    """

    def __init__(
        self, packages: Iterable[Package], open_again: Callable[[Path], Package] = Package.open
    ) -> None:
        self._lent = [_Lent(package, blocks_of(package)) for package in packages]
        self._open_again = open_again

    @property
    def largest_message(self) -> int:
        """The largest message that an inference needs, in bytes."""
        return MESSAGE_BYTES + max((_largest_tensors(lent.store) for lent in self._lent), default=0)

    def network(self, digests: Sequence[str], starts: Sequence[int]) -> BlockNetwork:
        """Return the network of blocks with these digests.

        Args:
            digests: SHA-256 of each block's file in hex, from the inputs of the network to its outputs.
            starts: Indices of the blocks with which its segments begin.

        Raises:
            MistifyError: NOT_FOUND, no package has all of these blocks; INVALID_CONFIG, they do not form a
                network, or the segments are not consecutive.
        """
        if not starts or starts[0] != 0 or starts[-1] >= len(digests) or list(starts) != sorted({*starts}):
            message = f"segments of {len(digests)} blocks cannot begin at {list(starts)[:_SHOWN]}"
            raise MistifyError(ErrorCode.INVALID_CONFIG, message)
        self._lent = [self._newest(lent) for lent in self._lent]
        missing = ""
        for package, store in self._lent:
            files = {variant.content.sha256: variant.file for variant in store.variants}
            unknown = [digest for digest in digests if digest not in files]
            if not unknown:
                blocks = store.network_of([files[digest] for digest in digests])
                return BlockNetwork(package.directory, store, blocks, tuple(starts))
            missing = unknown[0]
        message = f"no package of this helper has the block with SHA-256 {missing[:_SHOWN]!a}...; start "
        raise MistifyError(ErrorCode.NOT_FOUND, f"{message}mistify lend with --package for it as well")

    def _newest(self, lent: "_Lent") -> "_Lent":
        """Return a package as it is on disk now; as it was, if it cannot be lent as it is now."""
        directory = lent.package.directory
        try:
            package = self._open_again(directory)
            if package.digest == lent.package.digest:
                return lent
            newest = _Lent(package, blocks_of(package))
            if _largest_tensors(newest.store) > _largest_tensors(lent.store):
                message = f"the tensors of the package in {directory} have become larger; "
                raise MistifyError(ErrorCode.NO_ROOM, f"{message}start mistify lend again to lend it")
        except MistifyError as error:
            logger.warning("%s is lent as it was: %s", directory, error.message)
            return lent
        logger.info("%s was replaced; new sessions get the package that is there now", directory)
        return newest


class _Lent(NamedTuple):
    """A package with its blocks."""

    package: Package
    store: BlockStore


def _largest_tensors(store: BlockStore) -> int:
    """Return the largest number of bytes between blocks, or before or behind all of them."""
    return max(store.bytes_at(position) for position in range(store.last + 1))
