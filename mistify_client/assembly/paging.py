"""Paging: only the blocks of the network that runs are in memory; others are loaded while it runs."""

import ctypes
import json
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files import write_json
from mistify.package.blocks import BlockStore, BlockVariant
from mistify_client.assembly.chaining import Chain, LoadedBlock
from mistify_client.assembly.executions import Array, Execution, Tensors

#: In the state directory: the files of the blocks that run.
CHOSEN: Final = "blocks-chosen.json"


class PagedNetwork:
    """A network of blocks of a store, which can go over to other blocks while it runs.

    Several threads may call it; one at a time runs. The choice survives the process, however that ends.
    """

    def __init__(
        self,
        directory: Path,
        state: Path,
        default: Sequence[str],
        threads: int,
        execution: Execution = Execution.INTERPRETER,
    ) -> None:
        """Load the blocks that were chosen last, those of `default` at first.

        Args:
            directory: Of the store.
            state: A directory for the choice, made where there is none.
            default: The files of the blocks, from the inputs of the network to its outputs.
            threads: The number of threads of LiteRT.
            execution: By which they run.

        Raises:
            MistifyError: As `BlockStore.load`, `BlockStore.network_of` and `LoadedBlock`; CORRUPT_PACKAGE,
                the choice cannot be read, or is of another store.
        """
        self._directory = directory
        self._state = state
        self._threads = threads
        self._execution = execution
        self._store = BlockStore.load(directory)
        self._running = threading.Lock()
        self._loader = ThreadPoolExecutor(1, "blocks")
        state.mkdir(parents=True, exist_ok=True)
        self._chain = self._loaded(_chosen(state, self._store) or self._store.network_of(default), {})

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the blocks that run, in order."""
        return tuple(block.variant.file for block in self._chain.blocks)

    def __call__(self, inputs: Tensors) -> dict[str, Array]:
        """Return the outputs of the network, as it writes them, from its inputs [batch, ...] by name."""
        with self._running:
            return self._chain(inputs)

    def switch(self, files: Sequence[str]) -> Future[None]:
        """Go over to other blocks: those that are missing are loaded in the background, others leave memory.

        Until they are loaded, and if one cannot be, the blocks of before run. Of several calls, the last one
        holds.

        Args:
            files: Of the blocks, from the inputs of the network to its outputs.

        Returns:
            A future that is done once they run; it raises what `LoadedBlock` does, and OSError if the choice
            cannot be written.

        Raises:
            MistifyError: As `BlockStore.network_of`.
            RuntimeError: It is closed.
        """
        return self._loader.submit(self._switch, self._store.network_of(files))

    def close(self) -> None:
        """Wait for what is being loaded, and stop the background thread."""
        self._loader.shutdown()

    def _switch(self, chosen: Sequence[BlockVariant]) -> None:
        try:
            self._replace(chosen)
        finally:
            _return_memory()

    def _replace(self, chosen: Sequence[BlockVariant]) -> None:
        there = {block.variant.file: block for block in self._chain.blocks}
        chain = self._loaded(chosen, there)
        write_json(self._state / CHOSEN, [variant.file for variant in chosen], durable=True)
        self._chain = chain  # for the next call; threads that call all the time would not let go of the lock
        with self._running:
            pass  # until the last call of the blocks of before has ended

    def _loaded(self, chosen: Sequence[BlockVariant], there: dict[str, LoadedBlock]) -> Chain:
        """Return a chain of blocks, those that are there already among them."""
        return Chain(
            [
                there.get(variant.file)
                or LoadedBlock(self._directory, variant, self._threads, self._execution)
                for variant in chosen
            ]
        )


def _return_memory() -> None:
    """Give the system the memory of blocks that are gone, which glibc would keep for what comes next."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other libraries have none, and keep less
    if trim is not None:
        trim(0)


def _chosen(state: Path, store: BlockStore) -> tuple[BlockVariant, ...] | None:
    """Return the blocks that ran last; None where none did."""
    path = state / CHOSEN
    try:
        files = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _unreadable(path, f"no JSON ({error})") from error
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise _unreadable(path, json.dumps(files))
    try:
        return store.network_of(files)
    except MistifyError as error:
        raise _unreadable(path, f"{json.dumps(files)} ({error})") from error


def _unreadable(path: Path, value: str) -> MistifyError:
    expected = "a list of the store's files that make a network"
    problem = Problem(str(path), value, expected, "delete it, so that the default runs")
    return MistifyError(ErrorCode.CORRUPT_PACKAGE, "the choice of blocks cannot be read", [problem])
