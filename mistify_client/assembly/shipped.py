"""The block store of a package on a device, of which the network that was shipped is one block more."""

from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BLOCKS, BlockStore, BlockVariant
from mistify.package.manifest import MANIFEST, NETWORK, Manifest


def load_store(directory: Path) -> BlockStore:
    """Return the block store of a package, with the network that was shipped; or one that is by itself.

    Raises:
        MistifyError: NOT_FOUND, there is no such package, or it has no blocks; as for `BlockStore.load`.
    """
    if (directory / MANIFEST).exists():
        manifest = Manifest.load(directory)
        if BLOCKS not in manifest.files:
            note = f" ({manifest.note})" if manifest.note else ""
            raise MistifyError(
                ErrorCode.NOT_FOUND,
                f"the package {directory} has no blocks to make other networks from{note}; "
                "packages made by the algorithm adaptivenet can have some",
            )
    return with_shipped(BlockStore.load(directory), directory)


def with_shipped(store: BlockStore, directory: Path) -> BlockStore:
    """Return a block store with the network of its package as the last variant, from inputs to outputs.

    One file is faster than blocks one after the other. A store without a package has no shipped network, nor
    has a package with branches; and a tuned network is none of its blocks.

    Args:
        store: The package's store, or some of its blocks.
        directory: The package.

    Raises:
        MistifyError: As for `Manifest.load`.
    """
    if not (directory / MANIFEST).exists():
        return store
    manifest = Manifest.load(directory)
    if NETWORK not in manifest.files or manifest.branches or manifest.tuned_from:
        return store
    shipped = BlockVariant(file=NETWORK, content=manifest.files[NETWORK], start=0, span=store.last)
    return store.model_copy(update={"variants": (*store.variants, shipped)})
