"""Paging of subnets: only the blocks of the current one are in memory.

A subnet first runs as a chain of blocks, until they have been stitched in the background into one network,
which is faster, and whose weights can be mapped. If memory is short, the blocks keep running as a chain.
A network whose weights are to be mapped is stitched soon, because its chain takes more memory than it.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from mistify.errors import MistifyError
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockStore
from mistify.package.opened import Package
from mistify_client.assembly.chaining import Chain, ChosenBlocks, LoadedBlock
from mistify_client.assembly.engine_table import WEIGHTS
from mistify_client.assembly.executions import Tensors
from mistify_client.assembly.made_networks import MadeNetworks
from mistify_client.assembly.memory import available_bytes, return_memory
from mistify_client.assembly.pager import Pager
from mistify_client.assembly.shipped import blocks_of, with_shipped
from mistify_client.assembly.stitched_networks import STITCHED, STITCHER, stitched_key

#: Memory needed for stitching: that of an idle process, and multiples of the size of the blocks' files.
_PROCESS_BYTES: Final = 120_000_000
_STITCHING: Final = 6

#: Memory needed to load a network next to the current one, in multiples of its file: the file, and the
#: weights packed by LiteRT.
_LOADING: Final = 2.5

#: Seconds that blocks run before they are stitched so that their weights can be mapped.
_MAPPING_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class Blocks(NamedTuple):
    """The blocks of a package.

    Attributes:
        directory: The directory of the package.
        store: The block store, including the shipped network if it is one of the variants.
        stitched: The directory of stitched networks; None to run all subnets as chains of blocks.
        weights: The directory for `mapped_weights`; None to have all weights in memory.
    """

    directory: Path
    store: BlockStore
    stitched: Path | None = None
    weights: Path | None = None

    @classmethod
    def of(cls, package: Package, state: Path) -> "Blocks":
        """Return the blocks of a package; its stitched networks are in the state directory.

        Raises:
            MistifyError: NOT_FOUND, the package has no blocks, or no `blocks.json`; STORE_VERSION, a newer
                version of Mistify wrote that; CORRUPT_PACKAGE, with every problem in it.
        """
        return cls(
            package.directory, with_shipped(blocks_of(package), package), state / STITCHED, state / WEIGHTS
        )


class PagedNetwork(Pager[ChosenBlocks]):
    """A network of blocks from a store that can switch to other blocks while it runs."""

    def __init__(
        self,
        blocks: Blocks,
        first: ChosenBlocks,
        threads: int,
        available: Callable[[], int] = available_bytes,
    ) -> None:
        """Load the first blocks, or their stitched network if it exists.

        Args:
            available: Returns the bytes of available memory.

        Raises:
            MistifyError: NOT_FOUND, there is no such block; INVALID_CONFIG, the blocks do not form a chain;
                CORRUPT_PACKAGE, naming the file of a block that is missing or damaged, or that LiteRT cannot
                run.
        """
        self._directory = blocks.directory
        self._store = blocks.store
        self._stitched = None if blocks.stitched is None else MadeNetworks(blocks.stitched)
        self._weights = blocks.weights
        self._threads = threads
        self._available = available
        self._stitching: threading.Thread | None = None
        super().__init__(self._chain_of(first, {}))

    def switch(self, chosen: ChosenBlocks) -> Future[None]:
        """Switch to other blocks; see `Pager.switch`. Blocks of both networks are kept in memory.

        Raises:
            MistifyError: NOT_FOUND, there is no such block; INVALID_CONFIG, the blocks do not form a chain.
            RuntimeError: The network is closed, or no thread can be started.
        """
        self._store.network_of(chosen.files)
        return super().switch(chosen)

    def settling_seconds(self, chosen: ChosenBlocks) -> float:
        """Return fewer seconds for weights to be mapped; see `Pager.settling_seconds`."""
        return _MAPPING_SECONDS if self._weights_of(chosen, 1) else super().settling_seconds(chosen)

    def improve(self, example: Tensors) -> bool:
        """Stitch the current blocks; see `Pager.improve`."""
        return self.stitch(example)

    def stitch(self, example: Tensors) -> bool:
        """Stitch the current blocks in the background, and switch to the resulting network.

        If that fails, or memory is short, the blocks keep running as a chain.

        Args:
            example: Inputs for a warm-up run, so that the first real inference is not slower.

        Returns:
            False if another network is being stitched: try again later.

        Raises:
            RuntimeError: No thread can be started.
        """
        if self._stitched is None or self.is_whole:
            return True
        if self._stitching is not None and self._stitching.is_alive():
            return False
        arguments = (self._stitched, self._current.chosen, example)
        self._stitching = threading.Thread(target=self._stitch, args=arguments, name="stitching", daemon=True)
        self._stitching.start()
        return True

    def close(self) -> None:
        """Wait for pending loads, stop pending stitching, and stop the background threads."""
        self._process.stop()
        if self._stitching is not None:
            self._stitching.join()
        super().close()

    def _load(self, chosen: ChosenBlocks) -> Chain[ChosenBlocks]:
        return self._chain_of(chosen, self._in_memory(chosen))

    def _in_memory(self, chosen: ChosenBlocks) -> dict[str, LoadedBlock]:
        """Return the blocks in memory with the same execution as the chosen ones, by file."""
        blocks = self._current.blocks
        same = chosen.execution, self._weights_of(chosen, len(chosen.files))
        return {block.variant.file: block for block in blocks if (block.execution, block.weights) == same}

    def _weights_of(self, chosen: ChosenBlocks, blocks: int) -> Path | None:
        """Return the directory for `mapped_weights`; there is room in it for whole networks only."""
        return self._weights if chosen.mapped_weights and blocks == 1 else None

    def _chain_of(self, chosen: ChosenBlocks, there: dict[str, LoadedBlock]) -> Chain[ChosenBlocks]:
        """Return the stitched network of the blocks, or a chain of them, reusing blocks in memory."""
        whole = self._stitched_chain(chosen)
        if whole is not None:
            return whole
        weights = self._weights_of(chosen, len(chosen.files))
        with BlockFiles(self._directory) as files:
            blocks = [
                there.get(variant.file)
                or LoadedBlock(files, variant, self._threads, chosen.execution, weights)
                for variant in self._store.network_of(chosen.files)
            ]
        return Chain(blocks, chosen)

    def _stitched_chain(self, chosen: ChosenBlocks) -> Chain[ChosenBlocks] | None:
        """Return the stitched network of the blocks; None if there is none, or not enough memory."""
        blocks = self._store.network_of(chosen.files)
        if self._stitched is None or len(blocks) == 1:
            return None
        network = self._stitched.find(stitched_key(blocks))
        if network is None or not self._has_room(_LOADING * network.content.size):
            return None
        try:
            with BlockFiles(self._stitched.directory) as files:
                weights = self._weights_of(chosen, 1)
                loaded = LoadedBlock(files, network, self._threads, chosen.execution, weights)
        except MistifyError as error:
            logger.warning("blocks run one after the other until they have been stitched again: %s", error)
            self._stitched.remove(network)
            return None
        self._stitched.note_use(network)
        return Chain([loaded], chosen)

    def _stitch(self, stitched: MadeNetworks, chosen: ChosenBlocks, example: Tensors) -> None:
        size = sum(variant.content.size for variant in self._store.network_of(chosen.files))
        if not self._has_room(_PROCESS_BYTES + _STITCHING * size):
            return
        weights = self._weights_of(chosen, 1)
        packed = () if weights is None else ("--weights", str(weights))
        arguments = (str(self._directory), str(stitched.directory), *packed, *chosen.files)
        problem = self._process.run(STITCHER, *arguments)
        if problem is not None:
            logger.warning(
                "blocks keep running one after the other, because they cannot be stitched: %s", problem
            )
            return
        with suppress(RuntimeError):  # it has been closed in the meantime
            self._loader.submit(self._switch_to_stitched, chosen, example)

    def _switch_to_stitched(self, chosen: ChosenBlocks, example: Tensors) -> None:
        """Switch to the stitched network of the blocks if these still run."""
        if self._current.chosen != chosen:
            return
        try:
            whole = self._stitched_chain(chosen)
            if whole is not None:
                whole(example)
                self._replace(whole)
        finally:
            return_memory()

    def _has_room(self, needed: float) -> bool:
        return self._available() >= needed
