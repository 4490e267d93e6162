"""Engines of LiteRT for one network: memory of three apps, time to start, and latency.

`python -m benchmarks.device.engines [--quick] [--json FILE]`

A package with a network of 8.4 MB of weights is opened in new processes, with the package's own engine
(`Interpreter`, one thread) and with `CompiledModel` and mapped weights, as `mistify engines` offers it.

- `memory_of_three`: memory of three processes that have run an inference and are all alive, relative to that
  of three with the own engine; each process's proportional set size, less that before it opened the network;
- `start`: time from opening the network to the end of the first inference, relative to the own engine, if the
  file of the weights exists; each is the median of three processes;
- `latency`: latency at batch 1 relative to the own engine, in turns.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.device.engines_side import current_bytes, run_network
from benchmarks.device.loaded_memory import dense_package
from benchmarks.harness.run import Figures, MissingDataError, Target, run
from mistify.isolation.process import DisposableProcess
from mistify.package.opened import Package
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.engine_table import MeasuredEngine
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.paged_engines import EngineFiles
from mistify_client.engines.measuring import measured_engines, proportional_bytes

TARGETS: Final[dict[str, Target]] = {
    "memory_of_three": {
        "what": "memory of three apps with mapped weights, relative to own ones",
        "max": 0.4,
    },
    "start": {"what": "time to start with mapped weights, relative to own ones", "max": 0.5},
}

_OWN: Final = Engine()
_MAPPED: Final = Engine(execution=Execution.COMPILED, mapped_weights=True)

_APPS: Final = 3


def measure(options: Namespace) -> Figures:
    """Return all figures, and print a table."""
    if proportional_bytes() is None:
        raise MissingDataError("this system does not report the memory of processes; run it on Linux")
    with TemporaryDirectory() as temporary:
        package, weights = dense_package(Path(temporary) / "package"), Path(temporary) / "weights"
        files = EngineFiles.of(Package.open(package), weights)
        measured = measured_engines(files, [_OWN, _MAPPED], 0.1 if options.quick else 2.0)
        memory = [_memory_of_apps(package, weights, one.engine) for one in measured]
    Console().print(_table(measured, memory))
    own, mapped = measured
    return {
        "memory_of_three": memory[1] / memory[0],
        "start": mapped.start_ms / own.start_ms,
        "latency": mapped.latency_ms / own.latency_ms,
    }


def _memory_of_apps(package: Path, weights: Path, engine: Engine) -> float:
    """Return the bytes that several processes need together for the network."""
    with ExitStack() as stack:
        apps = [stack.enter_context(closing(DisposableProcess())) for _ in range(_APPS)]
        before = [app.call(run_network, package, weights, engine) for app in apps]
        return sum(app.call(current_bytes) for app in apps) - sum(before)


def _table(measured: Sequence[MeasuredEngine], memory: Sequence[float]) -> Table:
    table = Table(title="engines for a network with 8.4 MB of weights", title_justify="left")
    for column in ("engine", f"MB of {_APPS} apps", "ms to start", "us of an inference"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for one, size in zip(measured, memory, strict=True):
        table.add_row(
            str(one.engine), f"{size / 1e6:.1f}", f"{one.start_ms:.0f}", f"{1e3 * one.latency_ms:.0f}"
        )
    return table


if __name__ == "__main__":
    sys.exit(run("device.engines", TARGETS, measure, sys.argv[1:]))
