"""Slices of a package's network, cut into files and measured on this device."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mistify.package.factory import AskedTask, FactoryStore
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify.tflite.memory import memory_bytes
from mistify.tflite.resizable import read_resizable
from mistify_client.assembly.memory import return_memory
from mistify_client.examples import Examples
from mistify_client.slicing.candidates import SliceCandidate, candidates
from mistify_client.slicing.latencies import SliceLatencies, measured_latency, slice_latencies
from mistify_client.slicing.packages import tensors_of
from mistify_client.slicing.scoring import SliceScorer
from mistify_client.slicing.search import CutSlice, MadeSlice, SliceLimits, best_slice


@dataclass(frozen=True)
class Measurement:
    """The settings for measuring slices.

    Attributes:
        directory: The directory with earlier measurements, to which new ones are added.
        threads: Number of threads of LiteRT.
        seconds: Time of measuring each slice.
        on_progress: Called with a line before several are measured.
    """

    directory: Path
    threads: int
    seconds: float
    on_progress: Callable[[str], None]


class SliceMaker:
    """Makes slices of a package's network, one at a time, so that no more than one is in memory.

    Args:
        version: The version of the package that has a factory.
        store: The description of its factory.
        measurement: The settings for measuring slices.
        directory: The directory for the slice, named as in packages.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the network is damaged.
    """

    def __init__(
        self, version: Package, store: FactoryStore, measurement: Measurement, directory: Path
    ) -> None:
        self._version, self._store, self._measurement = version, store, measurement
        self._whole = store.map_supernet(version.directory)
        self._network = directory / NETWORK

    @property
    def whole_memory_bytes(self) -> float:
        """The memory of the whole network."""
        return memory_bytes(self._whole)

    def latencies(self) -> SliceLatencies:
        """Return the latencies of a few slices, measured at the first call on a device."""
        measurement = self._measurement
        return slice_latencies(
            self._store,
            self._whole,
            measurement.directory,
            measurement.threads,
            seconds=measurement.seconds,
            on_progress=measurement.on_progress,
        )

    def candidates(self, task: AskedTask, limit: float, examples: Examples | None) -> list[SliceCandidate]:
        """Return the slices for a task, with their scores on examples if there are any.

        Args:
            limit: The largest share of open units.
            examples: Examples of the device; None to use the expected scores.
        """
        tried = [tried for tried in self._store.quality.tried_limits() if tried <= limit]
        slices = candidates(self._store, self._store.read_assembler(self._version.directory), task, tried)
        return_memory()  # of the assembler
        return slices if examples is None else self._scored(slices, examples)

    def best(self, limits: SliceLimits, predicted_ms: Mapping[SliceCandidate, float]) -> MadeSlice:
        """Return the best slice within limits, which is left in its file.

        Args:
            predicted_ms: The slices to choose from, each with its predicted milliseconds.
        """
        return best_slice(limits, predicted_ms, self._cut, lambda one: self._measured(one, limits.latency_ms))

    def _cut(self, candidate: SliceCandidate) -> CutSlice:
        content = candidate.cut(self._whole, self._store.places)
        self._network.write_bytes(content)
        one = CutSlice(candidate, self._network, memory_bytes(content))
        del content
        return_memory()  # of cutting: a large network is measured next
        return one

    def _measured(self, one: CutSlice, most_ms: float | None) -> MadeSlice:
        measurement = self._measurement
        latency = measured_latency(one.network, measurement.threads, measurement.seconds, most_ms)
        return_memory()
        return MadeSlice(one.candidate, one.network, one.memory_bytes, latency)

    def _scored(self, slices: Sequence[SliceCandidate], examples: Examples) -> list[SliceCandidate]:
        """Return candidates with their scores on the device's examples."""
        manifest = self._version.manifest
        scorer, scored = SliceScorer(self._store, manifest.outputs[0], examples), []
        for candidate in slices:
            network = read_resizable(self._cut(candidate).network)
            scored.append(replace(candidate, quality=scorer(network, *tensors_of(network, manifest))))
        return scored
