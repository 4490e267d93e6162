"""Chaining: run blocks of a store one after the other, each on the previous one's output."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.block_files import BlockFiles
from mistify.package.records import NamedFile, Record
from mistify_client.assembly.executions import Array, Execution, Tensors, open_network, part_that_runs

#: Identifies a network that can be chosen.
Choice = TypeVar("Choice")


class ChosenBlocks(Record):
    """Blocks of a store that make a network, and their execution.

    Attributes:
        files: Files of the blocks, from the inputs of the network to its outputs.
        execution: The execution of all blocks.
        mapped_weights: Map the weights once the blocks are one network; see `Engine`.
    """

    files: tuple[str, ...]
    execution: Execution = Execution.INTERPRETER
    mapped_weights: bool = False


class LoadedBlock:
    """A block in memory, for one thread at a time. Its file may be removed after loading.

    Attributes:
        variant: The block's file, such as its entry in the store.
        weights: The directory of packed weights; None for weights in memory.
    """

    def __init__(
        self,
        files: BlockFiles,
        variant: NamedFile,
        threads: int,
        execution: Execution,
        weights: Path | None = None,
    ) -> None:
        """Load a block.

        Args:
            files: The files of its directory.
            weights: The directory of packed weights, for `CompiledModel`; None to pack them into memory.

        Raises:
            MistifyError: CORRUPT_PACKAGE, naming the file: it is missing, damaged, or from another network,
                or LiteRT cannot run it.
        """
        self.variant = variant
        self.execution = execution
        self.weights = weights
        try:
            with files.mapped(variant) as content:
                network = part_that_runs(content, execution)
            self._run = open_network(network, execution, threads, weights)
        except (ValueError, RuntimeError) as error:
            problem = Problem(
                str(files.directory / variant.file),
                f"a file that is not a network ({error})",
                "a block",
                "fetch it again",
            )
            raise MistifyError(ErrorCode.CORRUPT_PACKAGE, "a block cannot be run", [problem]) from error

    def __call__(self, tensors: Tensors) -> dict[str, Array]:
        """Return the block's output tensors for its input tensors, for any number of examples."""
        return self._run(tensors)


class Chain(Generic[Choice]):
    """Blocks that make a network.

    Attributes:
        blocks: From the inputs of the network to its outputs. A stitched network is a single block, and so is
            a slice.
        chosen: Identifies the network, such as the files of its blocks and their execution.
    """

    def __init__(self, blocks: Sequence[LoadedBlock], chosen: Choice) -> None:
        self.blocks = tuple(blocks)
        self.chosen = chosen

    def __call__(self, inputs: Tensors) -> dict[str, Array]:
        """Return the outputs of the network in its own dtypes."""
        tensors = inputs
        for block in self.blocks:
            tensors = block(tensors)
        return dict(tensors)

    def features(self, tensors: Tensors) -> Iterator[dict[str, Array]]:
        """Yield the output tensors of each block; the last ones are the network's outputs."""
        for block in self.blocks:
            tensors = outputs = block(tensors)
            yield outputs
