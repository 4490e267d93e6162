"""The memory used by a loaded package.

`python -m benchmarks.device.loaded_memory [--quick] [--json FILE] [--against DIR]`

A package with a network of 8.4 MB of weights, with graphs for any batch size and for batch size 1, runs
batches of 1, 4, 8 and 2 examples in fresh processes. One side uses this code's `load()`. The other side uses
another checkout's `load()` with `--against DIR`, or otherwise one LiteRT interpreter per batch size. Memory
is the process's private memory (`Private_Dirty` and `Private_Clean`), less that of the same process before it
opened the package.

- `memory_share`: memory after all four batch sizes, relative to the other side;
- `growth`: memory after all four batch sizes, relative to that after batch size 1;
- `over_weights`: memory after all four batch sizes, relative to the size of the file; the memory includes the
  file's content and the packed weights;
- `latency_ratio`: latency at batch size 1 relative to the other side, from the median CPU time of each side's
  best burst, with alternating bursts;
- `alternating_ratio`: the same for alternating batches of 1 and 2 examples.
"""

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from os import environ
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.device import loaded_memory_side
from benchmarks.device.loaded_memory_side import FEATURES
from benchmarks.harness.run import Figures, MissingDataError, Target, run
from mistify.costs.operators import Operation, OperatorKind
from mistify.package.manifest import (
    NETWORK,
    SIGNATURE,
    Manifest,
    MeasuredLatency,
    TensorInfo,
    Versions,
    fixed_batch_signature,
)
from mistify.package.records import describe_file
from mistify.profiling.networks import network_of
from mistify.tflite.combining import CombinedNetwork, read_network

TARGETS: Final[dict[str, Target]] = {
    "memory_share": {
        "what": "memory of a package after batches of four sizes relative to f738c65",
        "max": 0.45,
    },
    "growth": {"what": "memory after batches of four sizes relative to batch 1 alone", "max": 1.1},
    "latency_ratio": {"what": "latency at batch 1 relative to f738c65", "max": 1.05},
}

SIZES: Final = (1, 4, 8, 2)

#: Number of the network's layers, with FEATURES x FEATURES weights each.
_LAYERS: Final = 2

_BURSTS: Final = 60
_CALLS: Final = 100

_MEGABYTE: Final = 1e6


class _Side:
    """A process with the package open."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, sizes: Sequence[int], calls: int = 1) -> dict[str, float]:
        """Return the median microseconds for alternating batches of these sizes, and the private bytes."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a side without pipes")
        print(json.dumps([sizes, calls]), file=self._process.stdin, flush=True)
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer


def measure(options: Namespace) -> Figures:
    """Return all figures, and print a table."""
    bursts = _BURSTS // 6 if options.quick else _BURSTS
    with TemporaryDirectory() as directory:
        package = dense_package(Path(directory) / "package")
        other_way = "interpreters" if options.against is None else "load"
        with _opened(package, None) as ours, _opened(package, options.against, other_way) as other:
            memory = {side: [side.ask([size])["bytes"] for size in SIZES] for side in (ours, other)}
            single = _best_us(ours, other, [1], bursts)
            alternating = _best_us(ours, other, [1, 2], bursts)
        weights = (package / NETWORK).stat().st_size
    names = {ours: "load()", other: _name(options.against)}
    Console().print(_table([(names[side], memory[side], single[side], alternating[side]) for side in memory]))
    return {
        "memory_share": memory[ours][-1] / memory[other][-1],
        "growth": memory[ours][-1] / memory[ours][0],
        "over_weights": memory[ours][-1] / weights,
        "other_over_weights": memory[other][-1] / weights,
        "latency_us": single[ours],
        "latency_ratio": single[ours] / single[other],
        "alternating_ratio": alternating[ours] / alternating[other],
    }


def add_options(parser: ArgumentParser) -> None:
    """Add the option for the other side."""
    message = "another checkout of Mistify to compare with"
    parser.add_argument("--against", type=Path, metavar="DIR", help=message)


def _name(against: Path | None) -> str:
    return "an interpreter for each size" if against is None else f"load() of {against}"


@contextmanager
def _opened(package: Path, checkout: Path | None, way: str = "load") -> Iterator[_Side]:
    """Start a process that opens a package."""
    if checkout is not None and not (checkout / "mistify_client").is_dir():
        raise MissingDataError(f"{checkout} is not a checkout of Mistify")
    root = checkout or Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, loaded_memory_side.__file__, way, str(package)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**environ, "PYTHONPATH": str(root.resolve())},
    )
    try:
        yield _Side(process)
    finally:
        process.communicate()


def _best_us(ours: _Side, other: _Side, sizes: Sequence[int], bursts: int) -> dict[_Side, float]:
    turns = [[side.ask(sizes, _CALLS)["us"] for side in (ours, other)] for _ in range(bursts)]
    return dict(zip((ours, other), map(min, *turns), strict=True))


def dense_package(directory: Path) -> Path:
    """Write a package with a network of two dense layers with random weights, and return its directory."""
    directory.mkdir()
    (directory / NETWORK).write_bytes(_network())
    features, scores = (
        TensorInfo(name=name, dtype="float32", shape=(-1, FEATURES)) for name in ("features", "scores")
    )
    latency = MeasuredLatency(median_ms=0.4, p95_ms=0.5, runs=1, threads=1, machine="", runtime="")
    Manifest(
        job="benchmark",
        goal="loaded-memory",
        budget={},
        achieved={},
        accuracy=0,
        validation_accuracy=0,
        latency=latency,
        inputs=(features,),
        outputs=(scores,),
        versions=Versions(mistify="", tensorflow="", keras=""),
        files={NETWORK: describe_file(directory / NETWORK)},
        created=datetime.now(UTC),
    ).save(directory)
    return directory


def _network() -> bytes:
    layers = [Operation(OperatorKind.DENSE, 1, FEATURES, FEATURES) for _ in range(_LAYERS)]
    network, named = read_network(network_of(layers, integer=False)), CombinedNetwork()
    (graph,) = network.subgraphs
    for signature in (SIGNATURE, fixed_batch_signature(SIGNATURE)):
        tensors, operators = named.parts_of(network, graph)
        ends = {"features": int(graph.inputs[0])}, {"scores": int(graph.outputs[0])}
        named.add(signature, tensors, operators, *ends)
    return named.packed()


def _table(rows: Sequence[tuple[str, Sequence[float], float, float]]) -> Table:
    table = Table(title="private memory and latency of a loaded package", title_justify="left")
    memory = [f"MB after batch {size}" for size in SIZES]
    for column in ("side", *memory, "us, batch 1", "us, batches 1 and 2"):
        table.add_column(column, justify="left" if column == "side" else "right")
    for name, taken, *latencies in rows:
        megabytes = (f"{each / _MEGABYTE:.1f}" for each in taken)
        table.add_row(name, *megabytes, *(f"{latency:.0f}" for latency in latencies))
    return table


if __name__ == "__main__":
    sys.exit(run("device.loaded_memory", TARGETS, measure, sys.argv[1:], add_options))
