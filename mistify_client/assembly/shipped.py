"""The block store of a package on a device, with the shipped network as an additional block."""

from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BlockStore, BlockVariant
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package


def blocks_of(package: Package) -> BlockStore:
    """Return the block store of a package.

    Raises:
        MistifyError: NOT_FOUND, the package has no blocks, or no `blocks.json`; STORE_VERSION, a newer
            version of Mistify wrote that; CORRUPT_PACKAGE, with every problem in it.
    """
    if package.blocks is None:
        note = f" ({package.manifest.note})" if package.manifest.note else ""
        raise MistifyError(
            ErrorCode.NOT_FOUND,
            f"the package {package.directory} has no blocks to make other networks from{note}; "
            'algorithms that make blocks put them into a package with "blocks": true',
        )
    return package.blocks


def with_shipped(store: BlockStore, package: Package) -> BlockStore:
    """Return a block store with the network of its package as the last variant, from inputs to outputs.

    A single file is faster than a chain of blocks. A package with branches has no such network; a tuned
    network does not consist of its blocks.

    Args:
        store: The package's store, or part of it.
    """
    manifest = package.manifest
    if NETWORK not in manifest.files or manifest.branches or manifest.tuned_from:
        return store
    shipped = BlockVariant(file=NETWORK, content=manifest.files[NETWORK], start=0, span=store.last)
    return store.model_copy(update={"variants": (*store.variants, shipped)})
