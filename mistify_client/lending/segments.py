"""The segments of a network in memory: the blocks between two cuts, as one network."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mistify.errors import ErrorCode, MistifyError
from mistify.package.block_files import BlockFiles
from mistify_client.assembly.executions import Array, Execution, Run, Tensors, open_network, part_that_runs
from mistify_client.assembly.stitching import stitch
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.tensors import zeros_of

#: Runs that are timed, after a first one.
_TIMED_RUNS: Final = 5

#: Seconds until segments that could not be loaded are loaded again: the cause may have gone.
_RETRY_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class LoadedSegments(NamedTuple):
    """Segments in memory.

    Attributes:
        runs: Run the segments, from the inputs of the network to its outputs; for one thread at a time.
        idle_ms: Milliseconds of each segment when they were loaded.
    """

    runs: Sequence[Run]
    idle_ms: Sequence[float]


class Segments:
    """The segments of a network, which are in memory only while helpers may help with it.

    One thread uses them; another one loads them.

    Args:
        load: Loads them.
        loaded: The segments if they are in memory already.
        clock: Returns seconds.
    """

    def __init__(
        self,
        load: Callable[[], LoadedSegments],
        loaded: LoadedSegments | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._loaded = loaded
        self._clock = clock
        self._is_wanted = loaded is not None
        self._is_loading = False
        self._retry_at = -math.inf

    @property
    def loaded(self) -> LoadedSegments | None:
        """The segments; None unless they are in memory."""
        return self._loaded

    def want(self) -> None:
        """Load them in the background, unless they are in memory or could not be loaded a while ago."""
        self._is_wanted = True
        if self._loaded is None and not self._is_loading and self._clock() >= self._retry_at:
            self._is_loading = True
            try:
                threading.Thread(target=self._loads, name="mistify-segments", daemon=True).start()
            except RuntimeError as error:  # too many threads
                self._note_failure(error)

    def drop(self) -> None:
        """Do not keep them in memory."""
        if self._is_wanted:
            self._is_wanted = False
            self._loaded = None

    def _loads(self) -> None:
        try:
            loaded = self._load()
        except Exception as error:  # no failure of a package or of LiteRT may end the help for good
            self._note_failure(error)
            return
        if self._is_wanted:
            self._loaded = loaded
        self._is_loading = False

    def _note_failure(self, error: Exception) -> None:
        logger.warning("no helper is asked for %.0f s: %s", _RETRY_SECONDS, error)
        self._retry_at = self._clock() + _RETRY_SECONDS
        self._is_loading = False


def load_segments(network: BlockNetwork, threads: int) -> list[Run]:
    """Return functions that run the segments of a network, for one thread at a time.

    Args:
        threads: Number of threads of LiteRT.

    Raises:
        MistifyError: CORRUPT_PACKAGE, a block is missing or damaged, or LiteRT cannot run it.
    """
    try:
        with BlockFiles(network.directory) as files:
            contents = [
                stitch(files, blocks) if len(blocks) > 1 else files.read(blocks[0])
                for blocks in network.segments
            ]
        return [
            open_network(part_that_runs(content, Execution.INTERPRETER), Execution.INTERPRETER, threads)
            for content in contents
        ]
    except (ValueError, RuntimeError) as error:
        message = f"the blocks of {network.directory} cannot be used: {error}"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message) from error


def timed_segments(network: BlockNetwork, threads: int) -> LoadedSegments:
    """Load the segments of a network, and measure them.

    Args:
        threads: Number of threads of LiteRT.

    Raises:
        MistifyError: CORRUPT_PACKAGE, a block is missing or damaged, or LiteRT cannot run it.
    """
    runs = load_segments(network, threads)
    return LoadedSegments(runs, segment_times(runs, zeros_of(network.inputs_of(0)), threads))


def segment_times(segments: Sequence[Run], inputs: Tensors, threads: int) -> list[float]:
    """Return the milliseconds of each segment, which get the outputs of the previous one.

    Args:
        inputs: The inputs of the first segment.
        threads: Number of threads of LiteRT.
    """
    times = []
    tensors = inputs
    for segment in segments:
        tensors, milliseconds = fastest_run(segment, tensors, threads)
        times.append(milliseconds)
    return times


def fastest_run(run: Run, inputs: Tensors, threads: int) -> tuple[dict[str, Array], float]:
    """Return the outputs of a network, and the milliseconds of its fastest run.

    Args:
        threads: Number of threads of LiteRT.
    """
    # Other programs on this device do not slow down a thread's own clock.
    clock = time.thread_time if threads == 1 else time.perf_counter
    outputs = run(inputs)
    times = []
    for _ in range(_TIMED_RUNS):
        started = clock()
        run(inputs)
        times.append(1e3 * (clock() - started))
    return outputs, min(times)
