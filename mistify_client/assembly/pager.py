"""Paging: only the current network is in memory; another one is loaded while it runs."""

import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Generic

from mistify_client.assembly.background_process import BackgroundProcess
from mistify_client.assembly.chaining import Chain, Choice
from mistify_client.assembly.executions import Array, Tensors
from mistify_client.assembly.memory import return_memory
from mistify_client.finalizing import close_with

_SETTLING_SECONDS: Final = 5.0


class Pager(ABC, Generic[Choice]):
    """A network that can be replaced by another one while it runs.

    Several threads may call it; calls run one at a time.
    """

    def __init__(self, first: Chain[Choice]) -> None:
        """Run a network until another one is chosen."""
        self._current = first
        self._running = threading.Lock()
        self._loader = ThreadPoolExecutor(1, "networks")
        self._process = BackgroundProcess()
        close_with(self, self._process.stop)

    @property
    def running(self) -> Choice:
        """The current network."""
        return self._current.chosen

    @property
    def is_whole(self) -> bool:
        """True if a single network runs rather than a chain of blocks."""
        return len(self._current.blocks) == 1

    def __call__(self, inputs: Tensors) -> tuple[dict[str, Array], Choice]:
        """Run the network.

        Args:
            inputs: Input name -> [batch, ...].

        Returns:
            Its outputs by name, in its own dtypes, and the network that computed them.
        """
        with self._running:
            current = self._current
            return current(inputs), current.chosen

    def switch(self, chosen: Choice) -> Future[None]:
        """Load another network in the background, run it, and unload the previous one.

        Until it is loaded, and if it cannot be loaded, the previous one runs. The most recent call wins.

        Returns:
            A future that completes when it runs; it raises a `MistifyError` if it cannot be loaded.

        Raises:
            RuntimeError: The pager is closed, or no thread can be started.
        """
        return self._loader.submit(self._switch, chosen)

    def settling_seconds(self, chosen: Choice) -> float:
        """Return the seconds that a network runs before it is improved: another switch may follow soon."""
        return _SETTLING_SECONDS

    def improve(self, example: Tensors) -> bool:
        """Make the current network faster in the background, after it has run for a while.

        Args:
            example: Inputs for a warm-up run, so that the first real inference is not slower.

        Returns:
            False if other work in the background has to end first: try again later.

        Raises:
            RuntimeError: No thread can be started.
        """
        return True

    def close(self) -> None:
        """Wait for pending loads, stop pending work in other processes, and stop the background threads."""
        self._process.stop()
        self._loader.shutdown()

    @abstractmethod
    def _load(self, chosen: Choice) -> Chain[Choice]:
        """Return a network in memory.

        Raises:
            MistifyError: It cannot be loaded.
        """

    def _switch(self, chosen: Choice) -> None:
        try:
            self._replace(self._load(chosen))
        finally:
            return_memory()

    def _replace(self, network: Chain[Choice]) -> None:
        self._current = network  # for the next call; threads that call all the time would never release it
        with self._running:
            pass  # until the last call of the previous network has ended
