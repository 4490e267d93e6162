"""The ladder of slices that a monitor may switch to, for the task of a package (NN-Factory 3.5)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.machine import machine, runtime
from mistify.package.adaptation import ADAPTATION, AdaptationStore
from mistify.package.factory import SUPERNET
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify.tflite.memory import memory_bytes
from mistify.tflite.resizable import resizable
from mistify_client.assembly.ladder import Rung, SliceLadder
from mistify_client.files import damage_reported
from mistify_client.runtime.version_options import install_options
from mistify_client.runtime.versions import open_current, state_directory
from mistify_client.slicing.candidates import SliceCandidate, candidates
from mistify_client.slicing.customizing import factory_of, slices_held, unusable_reported
from mistify_client.slicing.cutting import checked_slice, served_task, slice_key
from mistify_client.slicing.latencies import SECONDS, relative_latency, slice_latencies
from mistify_client.slicing.packages import tensors_of

#: A slice that is not faster by this share than one as good is left out: predictions are not more precise.
_FASTER: Final = 0.05

#: A slice counts as no better than the package's own network up to this difference of their scores.
_AS_GOOD: Final = 0.005


def offer_slices(package: Path, seconds: float = SECONDS) -> SliceLadder:
    """Make slices for the task of a package its options, beside its own network, which runs first.

    Whenever the process ends, the package has either these options or those before.

    Args:
        package: The directory of the shipped package.
        seconds: Time of measuring each slice; their latencies are kept, as by `customize`.

    Raises:
        MistifyError: NOT_FOUND, the package serves no single task, has no factory, or has branches or an
            adapted network; INVALID_CONFIG, its factory has no such task; INVALID_MODEL, slices cannot take
            the place of its network; CONFLICT, it is being customized, or another version has become current;
            CORRUPT_PACKAGE, a file is damaged.
        OSError: A file cannot be written.
    """
    version, state = open_current(package), state_directory(package)
    with damage_reported(state), slices_held(state) as directory:
        ladder = _Ladder(package, version, directory, seconds).made()
        return install_options(package, ladder, expected=version.directory)


class _Ladder:
    """Makes the ladder of a package's version."""

    def __init__(self, package: Path, version: Package, directory: Path, seconds: float) -> None:
        _check_options(version)
        self._source, self._store = factory_of(package)
        self._task = served_task(version, self._store)
        self._supernet = self._store.map_supernet(self._source.directory)
        self._assembler = self._store.read_assembler(self._source.directory)
        version.verify(with_blocks=False)
        self._version, self._manifest = version, version.manifest
        self._directory, self._seconds = directory, seconds
        self._threads = version.manifest.latency.threads

    def made(self) -> SliceLadder:
        """Measure what has not been measured, and return the ladder."""
        with unusable_reported(self._source):
            return self._made()

    def _made(self) -> SliceLadder:
        limits = self._store.quality.listed_limits()
        slices = candidates(self._store, self._assembler, self._task, limits)
        table = slice_latencies(
            self._store,
            self._supernet,
            self._directory,
            self._threads,
            seconds=self._seconds,
            on_progress=lambda line: None,
        )
        own, whole = self._version.directory / NETWORK, self._source.directory / SUPERNET
        own_ms = table.whole_ms * relative_latency(own, whole, self._threads, self._seconds)
        predicted_ms = table.predicted_ms([candidate.widths for candidate in slices]).tolist()
        rungs = [self._rung(candidate, ms) for candidate, ms in zip(slices, predicted_ms, strict=True)]
        score, own_bytes = self._manifest.validation_accuracy, memory_bytes(own.read_bytes())
        if self._manifest.accuracy_examples:
            rungs = compared(rungs, own_bytes, score)
        return SliceLadder(
            package=self._version.digest,
            task=str(self._task),
            machine=machine(),
            runtime=runtime(),
            threads=self._threads,
            own_ms=own_ms,
            own_bytes=own_bytes,
            rungs=tuple(front(rungs, own_ms, score)),
        )

    def _rung(self, candidate: SliceCandidate, latency_ms: float) -> Rung:
        network = checked_slice(self._supernet, self._store, candidate, self._manifest)
        if tensors_of(resizable(network), self._manifest) != (self._manifest.inputs, self._manifest.outputs):
            message = "slices have other inputs or outputs than the package's network, such as other scales"
            raise MistifyError(ErrorCode.INVALID_MODEL, message)
        return Rung(
            limit=candidate.limit,
            key=slice_key(self._store, self._task, candidate.limit),
            latency_ms=latency_ms,
            memory_bytes=memory_bytes(network),
            size_bytes=len(network),
            quality=candidate.quality,
        )


def _check_options(version: Package) -> None:
    """Check that slices can be options beside those in the manifest of a version.

    Raises:
        MistifyError: NOT_FOUND, they cannot.
    """
    manifest = version.manifest
    if manifest.branches:
        reason = "has branches, which are its options"
    elif not manifest.metric.is_share:
        reason = f"is scored by {manifest.metric}, which does not compare with the scores of slices"
    elif ADAPTATION in manifest.files and AdaptationStore.of(version).adapted_from is not None:
        reason = "is adapted to the data of its place, and slices would not be"
    else:
        return
    raise MistifyError(ErrorCode.NOT_FOUND, f"{version.directory} {reason}: it has no slices as options")


def compared(rungs: Sequence[Rung], own_bytes: float, own_score: float) -> list[Rung]:
    """Return slices with scores that can be compared with the measured score of a package's own network.

    The expected scores are means over trained tasks. All of them are moved by the difference between the
    measured score and the one expected of a slice with as much memory.

    Args:
        own_bytes: Memory of the package's own network.
    """
    ascending = sorted(rungs, key=lambda rung: rung.memory_bytes)
    memory, qualities = ([getattr(rung, name) for rung in ascending] for name in ("memory_bytes", "quality"))
    moved = own_score - float(np.interp(own_bytes, memory, qualities))
    return [rung.model_copy(update={"quality": min(max(rung.quality + moved, 0.0), 1.0)}) for rung in rungs]


def front(rungs: Iterable[Rung], own_ms: float, own_score: float) -> list[Rung]:
    """Return the slices that are better than every network as fast, by ascending limits.

    Args:
        own_ms: Milliseconds of the package's own network, which is always an option.
        own_score: Its score, comparable with the quality of slices.
    """
    kept: list[Rung] = []
    for rung in sorted(rungs, key=lambda rung: (-rung.quality, rung.latency_ms)):
        as_good = [one.latency_ms for one in kept] + [own_ms] * (own_score + _AS_GOOD >= rung.quality)
        if rung.latency_ms < (1 - _FASTER) * min(as_good, default=float("inf")):
            kept.append(rung)
    return sorted(kept, key=lambda rung: rung.limit)
