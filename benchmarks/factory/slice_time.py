"""The processor time of a slice on a device, for `factory.speed` and `factory.classes`."""

from collections.abc import Callable, Sequence
from mmap import mmap
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final

from benchmarks.harness.run import median_seconds
from mistify.package.factory import FactoryStore
from mistify.package.manifest import NETWORK, MeasuredLatency
from mistify_client.slicing.candidates import SliceCandidate, candidates
from mistify_client.slicing.latencies import slice_latencies
from mistify_client.slicing.search import CutSlice, MadeSlice, SliceLimits, best_slice

#: Slices that are timed, and their latency as a share of the whole network's.
_SLICES: Final = 30
_SHARE: Final = 0.5

#: Keeps every limit.
_UNMEASURED: Final = MeasuredLatency(
    median_ms=1e-9, p95_ms=1e-9, runs=1, threads=1, machine="not measured", runtime="not measured"
)


def slice_seconds(
    store: FactoryStore, supernet: bytes | mmap, assembler: bytes, task: Callable[[], Sequence[str]]
) -> float:
    """Return the median processor time of slices: assembler, choice, cut and file.

    Args:
        store: The description of the network and its tasks.
        supernet: Content of the network's `.tflite`.
        assembler: Content of the assembler's `.tflite`.
        task: Returns the properties or classes of the next slice.
    """
    with TemporaryDirectory() as name:
        network = Path(name) / NETWORK
        table = slice_latencies(store, supernet, Path(name), 1, on_progress=lambda line: None)

        def cut(candidate: SliceCandidate) -> CutSlice:
            network.write_bytes(candidate.cut(supernet, store.places))
            return CutSlice(candidate, network, 0.0)

        def make() -> None:
            slices = candidates(store, assembler, store.asked(task()), store.quality.tried_limits())
            predicted_ms = table.predicted_ms([one.widths for one in slices]).tolist()
            limits = SliceLimits(_SHARE * table.whole_ms)
            best_slice(limits, dict(zip(slices, predicted_ms, strict=True)), cut, _unmeasured)

        return median_seconds(make, _SLICES, process_time)


def _unmeasured(one: CutSlice) -> MadeSlice:
    return MadeSlice(one.candidate, one.network, one.memory_bytes, _UNMEASURED)
