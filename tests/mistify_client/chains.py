"""Networks of blocks, given by their file names: run as a chain, or stitched into one network."""

from collections.abc import Sequence
from pathlib import Path

from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BLOCKS, BlockStore
from mistify.package.manifest import MANIFEST
from mistify.package.opened import Package
from mistify_client.assembly import stitching
from mistify_client.assembly.chaining import Chain, ChosenBlocks, LoadedBlock
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.shipped import with_shipped


def store_in(directory: Path) -> BlockStore:
    """Return the block store in a directory, with or without a package."""
    if (directory / MANIFEST).exists() and (directory / BLOCKS).exists():
        return with_shipped(BlockStore.load(directory), Package.open(directory))
    return BlockStore.load(directory)


def load_chain(
    directory: Path, names: Sequence[str], threads: int, execution: Execution = Execution.INTERPRETER
) -> Chain:
    """Load the blocks of a network as a chain."""
    with BlockFiles(directory) as files:
        blocks = store_in(directory).network_of(names)
        chosen = ChosenBlocks(files=tuple(names), execution=execution)
        return Chain([LoadedBlock(files, block, threads, execution) for block in blocks], chosen)


def stitch(directory: Path, names: Sequence[str]) -> bytes:
    """Stitch blocks of a store into one network."""
    with BlockFiles(directory) as files:
        return stitching.stitch(files, store_in(directory).network_of(names))
