"""Paging: only the blocks of the network that runs are in memory; others are loaded while it runs."""

import ctypes
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files import locked, write_json
from mistify.package.blocks import BlockStore
from mistify_client.assembly.chaining import Chain, ChosenBlocks, LoadedBlock
from mistify_client.assembly.executions import Array, Tensors

#: In the state directory: the `ChosenBlocks` that runs.
CHOSEN: Final = "blocks-chosen.json"

logger = logging.getLogger(__name__)


class PagedNetwork:
    """A network of blocks of a store, which can go over to other blocks while it runs.

    Several threads may call it; one at a time runs. The choice survives the process, however that ends.
    """

    def __init__(
        self,
        directory: Path,
        state: Path,
        choices: Sequence[ChosenBlocks],
        default: ChosenBlocks,
        threads: int,
    ) -> None:
        """Load the blocks that were chosen last, those of `default` at first.

        Args:
            directory: Of the store.
            state: A directory for the choice, made where there is none. A choice that cannot be written ends
                with the process.
            choices: Between which it goes.
            default: The one that runs until there is a choice, or where that is none of them any more.
            threads: The number of threads of LiteRT.

        Raises:
            MistifyError: As `BlockStore.load`, `BlockStore.network_of` and `LoadedBlock`; CORRUPT_PACKAGE,
                the choice cannot be read.
        """
        self._directory = directory
        self._state = state
        self._threads = threads
        self._store = BlockStore.load(directory)
        self._running = threading.Lock()
        self._loader = ThreadPoolExecutor(1, "blocks")
        last = self._last()
        self._chain = self._loaded(last if last is not None and last in choices else default, {})

    @property
    def running(self) -> ChosenBlocks:
        """What runs."""
        return self._chain.chosen

    def __call__(self, inputs: Tensors) -> tuple[dict[str, Array], ChosenBlocks]:
        """Run the network.

        Args:
            inputs: Of the network [batch, ...] by name.

        Returns:
            Its outputs by name, as it writes them, and what they were computed by.
        """
        with self._running:
            chain = self._chain
            return chain(inputs), chain.chosen

    def switch(self, chosen: ChosenBlocks) -> Future[None]:
        """Go over to other blocks: those that are missing are loaded in the background, others leave memory.

        Until they are loaded, and if one cannot be, the blocks of before run. Of several calls, the last one
        holds.

        Args:
            chosen: The blocks, and how they run.

        Returns:
            A future that is done once they run; it raises what `LoadedBlock` does.

        Raises:
            MistifyError: As `BlockStore.network_of`.
            RuntimeError: It is closed.
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
        self._keep(chosen)
        self._chain = chain  # for the next call; threads that call all the time would not let go of the lock
        with self._running:
            pass  # until the last call of the blocks of before has ended

    def _loaded(self, chosen: ChosenBlocks, there: dict[str, LoadedBlock]) -> Chain:
        """Return a chain of blocks, those that are there already among them."""
        return Chain(
            [
                there.get(variant.file)
                or LoadedBlock(self._directory, variant, self._threads, chosen.execution)
                for variant in self._store.network_of(chosen.files)
            ]
        )

    def _keep(self, chosen: ChosenBlocks) -> None:
        try:
            self._state.mkdir(parents=True, exist_ok=True)
            write_choice(self._state, chosen)
        except OSError as error:  # as on a full disk, where a device has to become faster all the same
            logger.warning("which blocks run is not remembered, %s has no place: %s", self._state, error)

    def _last(self) -> ChosenBlocks | None:
        """Return what ran last; None where nothing did, or that was not written."""
        path = self._state / CHOSEN
        try:
            content = path.read_bytes()
        except OSError:
            return None
        try:
            return ChosenBlocks.model_validate_json(content)
        except ValidationError as error:
            value = content.decode(errors="replace")
            expected = "the files of blocks, and their execution"
            problem = Problem(str(path), value, expected, f"delete it, so that the default runs: {error}")
            message = "the choice of blocks cannot be read"
            raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message, [problem]) from error


def write_choice(state: Path, chosen: ChosenBlocks) -> None:
    """Write what a paged network runs when it is loaded next.

    Args:
        state: The directory for the choice.
        chosen: The blocks, and how they run.

    Raises:
        OSError: It cannot be written.
    """
    with locked(state):  # all apps of a package write when the monitor decides
        write_json(state / CHOSEN, chosen.model_dump(mode="json"), durable=True)


def return_memory() -> None:
    """Give the system the memory of blocks that are gone, which glibc would keep for what comes next."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other libraries have none, and keep less
    if trim is not None:
        trim(0)
