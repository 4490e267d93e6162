"""The device side of `factory.speed`: a process without TensorFlow that performs a task and prints a figure.

python -m benchmarks.factory.speed_side nothing|load|customize PACKAGE [TASK LIMIT [LATENCY]]
python -m benchmarks.factory.speed_side slices PACKAGE

The first prints its peak memory in bytes, the second the processor time of a slice in seconds.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final

from benchmarks.elastic.update_side import peak_bytes
from benchmarks.factory.requests import Requests
from benchmarks.harness.run import median_seconds
from mistify.package.manifest import NETWORK, MeasuredLatency
from mistify.parsing.quantities import parse_time
from mistify_client.runtime.interpreter import zeros
from mistify_client.runtime.model import load
from mistify_client.slicing.candidates import SliceCandidate, candidates
from mistify_client.slicing.customizing import SliceRequest, customize, factory_of
from mistify_client.slicing.latencies import slice_latencies
from mistify_client.slicing.search import CutSlice, MadeSlice, SliceLimits, best_slice

#: Slices that are timed, and their latency as a share of the whole network's.
_SLICES: Final = 30
_SHARE: Final = 0.5

#: Keeps every limit.
_UNMEASURED: Final = MeasuredLatency(
    median_ms=1e-9, p95_ms=1e-9, runs=1, threads=1, machine="not measured", runtime="not measured"
)


def slice_seconds(package: Path) -> float:
    """Return the median processor time of slices for random tasks: assembler, choice, cut and file."""
    version, store = factory_of(package)
    supernet, assembler = store.map_supernet(version.directory), store.read_assembler(version.directory)
    requests = Requests(package)
    with TemporaryDirectory() as name:
        network = Path(name) / NETWORK
        table = slice_latencies(store, supernet, Path(name), 1, on_progress=lambda line: None)

        def cut(candidate: SliceCandidate) -> CutSlice:
            network.write_bytes(candidate.cut(supernet, store.places))
            return CutSlice(candidate, network, 0.0)

        def make() -> None:
            found = candidates(store, assembler, store.asked(requests.task()), store.quality.tried_limits())
            predicted_ms = table.predicted_ms([one.widths for one in found]).tolist()
            limits = SliceLimits(_SHARE * table.whole_ms)
            best_slice(limits, dict(zip(found, predicted_ms, strict=True)), cut, _unmeasured)

        return median_seconds(make, _SLICES, process_time)


def _unmeasured(one: CutSlice) -> MadeSlice:
    return MadeSlice(one.candidate, one.network, one.memory_bytes, _UNMEASURED)


def main(what: str, package: str, task: str = "", limit: str = "1", latency: str = "") -> None:
    """Perform the task, and print its figure."""
    if what == "slices":
        print(slice_seconds(Path(package)))
        return
    if what == "load":
        model = load(package, threads=1)
        model(zeros(model.manifest.inputs))
    if what == "customize":
        request = SliceRequest(task, parse_time(latency) if latency else None, limit=float(limit))
        customize(Path(package), request, threads=1)
    print(peak_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
