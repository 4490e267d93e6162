"""Paging: only the blocks of the network that runs are in memory; others are loaded while it runs."""

import ctypes
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockStore
from mistify_client.assembly.chaining import Chain, ChosenBlocks, LoadedBlock
from mistify_client.assembly.executions import Array, Tensors

#: Of glibc; other libraries have none, and keep less.
_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)


class PagedNetwork:
    """A network of blocks of a store, which can go over to other blocks while it runs.

    Several threads may call it; one at a time runs.
    """

    def __init__(self, directory: Path, store: BlockStore, first: ChosenBlocks, threads: int) -> None:
        """Load the first blocks.

        Args:
            directory: The block store.
            store: Its manifest.

        Raises:
            MistifyError: As for `BlockStore.network_of` and `LoadedBlock`.
        """
        self._directory = directory
        self._threads = threads
        self._store = store
        self._running = threading.Lock()
        self._loader = ThreadPoolExecutor(1, "blocks")
        self._chain = self._loaded(first, {})

    @property
    def running(self) -> ChosenBlocks:
        """The blocks that run, and how."""
        return self._chain.chosen

    def __call__(self, inputs: Tensors) -> tuple[dict[str, Array], ChosenBlocks]:
        """Run the network.

        Args:
            inputs: Input name -> [batch, ...].

        Returns:
            The outputs by name, as the network writes them, and the blocks and execution that computed them.
        """
        with self._running:
            chain = self._chain
            return chain(inputs), chain.chosen

    def switch(self, chosen: ChosenBlocks) -> Future[None]:
        """Go over to other blocks: those that are missing are loaded in the background, others leave memory.

        Until they are loaded, and if one cannot be, the old blocks run. If there are several calls, the last
        one holds.

        Returns:
            A future that is done once they run; it raises the errors of `LoadedBlock`.

        Raises:
            MistifyError: As for `BlockStore.network_of`.
            RuntimeError: The network is closed.
        """
        self._store.network_of(chosen.files)
        return self._loader.submit(self._switch, chosen)

    def close(self) -> None:
        """Wait for what is being loaded, and stop the background thread."""
        self._loader.shutdown()

    def _switch(self, chosen: ChosenBlocks) -> None:
        try:
            self._replace(chosen)
        finally:
            return_memory()

    def _replace(self, chosen: ChosenBlocks) -> None:
        there = {
            block.variant.file: block for block in self._chain.blocks if block.execution is chosen.execution
        }
        chain = self._loaded(chosen, there)
        self._chain = chain  # for the next call; threads that call all the time would not let go of the lock
        with self._running:
            pass  # until the last call of the blocks of before has ended

    def _loaded(self, chosen: ChosenBlocks, there: dict[str, LoadedBlock]) -> Chain:
        """Return a chain of blocks, which reuses those that are in memory already."""
        with BlockFiles(self._directory) as files:
            return Chain(
                [
                    there.get(variant.file) or LoadedBlock(files, variant, self._threads, chosen.execution)
                    for variant in self._store.network_of(chosen.files)
                ]
            )


def return_memory() -> None:
    """Give the system the memory of networks that are gone, which glibc would keep for what comes next."""
    if _TRIM is not None:
        _TRIM(0)
