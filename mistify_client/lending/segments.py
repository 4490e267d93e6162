"""The segments of a network in memory: the blocks between two cuts, as one network."""

import time
from collections.abc import Sequence
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.package.block_files import BlockFiles
from mistify_client.assembly.executions import Array, Execution, Run, Tensors, open_network, part_that_runs
from mistify_client.assembly.stitching import stitch
from mistify_client.lending.packages import BlockNetwork

#: Runs that are timed, after a first one.
_TIMED_RUNS: Final = 5


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
