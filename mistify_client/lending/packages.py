"""The packages of a helper: it runs their blocks, named by digest, and no others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BlockStore, BlockVariant
from mistify.package.manifest import TensorInfo
from mistify.package.opened import Package
from mistify_client.assembly.shipped import blocks_of
from mistify_client.lending.tensors import MESSAGE_BYTES, bytes_of

#: Characters of a digest in error messages.
_SHOWN = 12


@dataclass(frozen=True)
class BlockNetwork:
    """A network of blocks of a package.

    Attributes:
        directory: The directory of the package.
        blocks: From the inputs of the network to its outputs.
    """

    directory: Path
    store: BlockStore
    blocks: tuple[BlockVariant, ...]

    def inputs_of(self, first: int) -> tuple[TensorInfo, ...]:
        """Return the input tensors of a block, given its index."""
        return self.store.tensors_at(self.blocks[first].start)

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

    Args:
        packages: Packages with blocks.

    Raises:
        MistifyError: NOT_FOUND, a package has no blocks; or as for `Package.blocks`.
    """

    def __init__(self, packages: Iterable[Package]) -> None:
        self._stores = [(package.directory, blocks_of(package)) for package in packages]

    @property
    def largest_message(self) -> int:
        """The largest message that an inference needs, in bytes."""
        return MESSAGE_BYTES + max(
            bytes_of(store.tensors_at(position))
            for _, store in self._stores
            for position in range(store.last + 1)
        )

    def network(self, digests: Sequence[str]) -> BlockNetwork:
        """Return the network of blocks with these digests.

        Args:
            digests: SHA-256 of each block's file in hex, from the inputs of the network to its outputs.

        Raises:
            MistifyError: NOT_FOUND, no package has all of these blocks; INVALID_CONFIG, they do not form a
                network.
        """
        missing = ""
        for directory, store in self._stores:
            files = {variant.content.sha256: variant.file for variant in store.variants}
            unknown = [digest for digest in digests if digest not in files]
            if not unknown:
                return BlockNetwork(directory, store, store.network_of([files[digest] for digest in digests]))
            missing = unknown[0]
        message = f"no package of this helper has the block with SHA-256 {missing[:_SHOWN]!a}...; start "
        raise MistifyError(ErrorCode.NOT_FOUND, f"{message}mistify lend with --package for it as well")
