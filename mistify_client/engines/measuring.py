"""Measurement of a network with several engines."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from mistify.errors import ErrorCode, MistifyError
from mistify.isolation.process import DisposableProcess, ProcessEndedError
from mistify.package.manifest import TensorInfo
from mistify.profiling.measuring import best_of_parts_ms, random_input
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.engine_table import MeasuredEngine
from mistify_client.assembly.executions import Tensors
from mistify_client.assembly.paged_engines import EngineFiles

#: Measuring time per engine.
SECONDS: Final = 1.0

#: Number of processes that open the network with each engine, and are measured.
_STARTS: Final = 3


class _Start(NamedTuple):
    """The costs of an engine in a new process: see `MeasuredEngine`."""

    start_ms: float
    memory_bytes: float | None


def measured_engines(
    files: EngineFiles, engines: Sequence[Engine], seconds: float = SECONDS
) -> list[MeasuredEngine]:
    """Measure a network with engines, which take turns.

    Engines that cannot run it are left out. Each one runs in other processes first, because LiteRT crashes on
    some networks.

    Args:
        engines: The first one has to run it.
        seconds: Measuring time per engine, unless a single inference takes longer.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the network is missing or damaged, or the first engine cannot run it.
    """
    starts = {engines[0]: _started(files, engines[0])}
    for engine in engines[1:]:
        with suppress(MistifyError):
            starts[engine] = _started(files, engine)
    inputs = random_inputs(files.inputs)
    loads = [partial(_loaded, files, engine, inputs) for engine in starts]
    latencies = best_of_parts_ms(loads, seconds * len(loads))
    return [
        MeasuredEngine(engine=engine, latency_ms=float(ms.sum()), **start._asdict())
        for (engine, start), ms in zip(starts.items(), latencies, strict=True)
    ]


def _started(files: EngineFiles, engine: Engine) -> _Start:
    """Return the medians over several processes, after one that makes the files of mapped weights.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the engine cannot run the network.
    """
    starts = []
    try:
        for _ in range(1 + _STARTS):
            with closing(DisposableProcess()) as process:
                starts.append(process.call(_start, files, engine))
    except (ProcessEndedError, MemoryError) as error:
        message = f"LiteRT cannot run {files.directory / files.network.file} ({engine}): {error}"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message) from error
    memory = [start.memory_bytes for start in starts[1:] if start.memory_bytes is not None]
    return _Start(median(start.start_ms for start in starts[1:]), median(memory) if memory else None)


def _start(files: EngineFiles, engine: Engine) -> _Start:
    """Open the network in this process, and run it once."""
    inputs, before = random_inputs(files.inputs), proportional_bytes()
    start = time.perf_counter()
    network = files.opened(engine)
    network(inputs)
    start_ms = 1e3 * (time.perf_counter() - start)
    after = proportional_bytes()
    memory = None if before is None or after is None else max(1.0, after - before)
    return _Start(start_ms, memory)


def proportional_bytes(process: int | str = "self") -> float | None:
    """Return the memory of a process with its part of shared memory; None if it is not reported.

    Programs and libraries do not count: what they take depends on the other processes that use them, which
    start and end.

    Args:
        process: Its id; this process by default.
    """
    try:
        lines = Path(f"/proc/{process}/smaps").read_text().splitlines()
    except OSError:
        return None
    programs, kilobytes, file = set[str](), dict[str, float](), ""
    for line in lines:
        name, *values = line.split(maxsplit=5)
        if not name.endswith(":"):  # a mapping: its addresses, permissions, offset, device, inode and file
            file = values[4] if len(values) > 4 else ""
            if "x" in values[0] and file.startswith("/"):
                programs.add(file)
        elif name == "Pss:":
            kilobytes[file] = kilobytes.get(file, 0.0) + float(values[0])
    return 1024 * sum(own for file, own in kilobytes.items() if file not in programs)


def _loaded(files: EngineFiles, engine: Engine, inputs: Tensors) -> Callable[[], Sequence[float]]:
    network = files.opened(engine)

    def seconds() -> Sequence[float]:
        start = time.perf_counter()
        network(inputs)
        return (time.perf_counter() - start,)

    return seconds


def random_inputs(inputs: Sequence[TensorInfo]) -> Tensors:
    """Return an example for the inputs of a network."""
    return {info.name: random_input(info.example_shape, info.dtype) for info in inputs}
