"""Packages of subjects, and devices that see streams of images."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.adaptation.subjects import Images, Subject
from executors.outputs.objectives import objectives_of
from mistify.adaptation.adapter import BATCH
from mistify.adaptation.observing import observed_networks
from mistify.package.adaptation import AdaptationStore
from mistify.package.manifest import NETWORK, Manifest, MeasuredLatency, Versions
from mistify.package.opened import Package
from mistify.package.records import PackagedFile
from mistify.tflite.memory import memory_bytes
from mistify.tflite.resizable import resizable
from mistify.tflite.session import Session
from mistify_client.adapting.loop import AdaptationLoop
from mistify_client.adapting.storage import AdaptationStorage
from mistify_client.runtime.samples import InputSamples
from mistify_client.runtime.versions import current, state_directory
from mistify_server.worker.packaging.adaptation.files import adaptation_files
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import Runner

#: Images a second, and those between two looks of the loop.
RATE: Final = 16
_LOOK: Final = 32

_UNMEASURED: Final = MeasuredLatency(
    median_ms=1.0, p95_ms=1.0, runs=1, threads=1, machine="unmeasured", runtime="unmeasured"
)


def write_package(subject: Subject, directory: Path) -> Path:
    """Write a float32 package that can be adapted, whose latency is not measured."""
    model = subject.model
    network = convert(model)
    adaptation = adaptation_files(
        [model], network, objectives_of(model, subject.validation), [subject.validation]
    )
    if adaptation.note:
        raise ValueError(f"{subject.name} {adaptation.note}")
    runner, files = Runner(network), {NETWORK: network, **adaptation.files}
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    Manifest(
        job="benchmark",
        goal=subject.name,
        budget={},
        achieved={},
        accuracy=0.0,
        validation_accuracy=0.0,
        latency=_UNMEASURED,
        inputs=tuple(runner.inputs.values()),
        outputs=tuple(runner.outputs.values()),
        versions=Versions(mistify="", tensorflow="", keras=""),
        files={name: PackagedFile.of(content) for name, content in files.items()},
        created=datetime.now(UTC),
    ).save(directory)
    return directory


def memory_ratio(package: Path) -> float:
    """Return the memory of the observed network over that of the network."""
    opened = Package.open(package)
    network, store = opened.read(NETWORK), AdaptationStore.of(opened)
    ((_, observed),) = observed_networks(network, store.norms, 0)
    return memory_bytes(observed) / memory_bytes(network)


class Device:
    """A device that shows a package images at `RATE`, while the loop adapts it; time passes with the images.

    Attributes:
        events: The events of the loop.
        seconds: The time so far.
    """

    def __init__(self, package: Path) -> None:
        self.package, self.seconds = package, 0.0
        self.events: list[str] = []
        self._loop = AdaptationLoop(
            package, lambda event, reason, figures: self.events.append(event), lambda: self.seconds
        )
        self._loop.step()
        self._info = Manifest.load(package).inputs[0]
        self._samples = InputSamples(state_directory(package), [self._info], lambda: self.seconds)
        self._running, self._session = package, _session(package)

    @property
    def adapted(self) -> bool:
        """True if the current version is adapted."""
        return current(self.package) != self.package

    @property
    def inferences(self) -> float:
        """Inferences for each example that the loop has seen, without those of the app."""
        state = AdaptationStorage(self.package).state()
        if state is None or not state.examples:
            return 0.0
        return 1 + BATCH * state.updates / state.examples

    def answers(self, images: Images) -> npt.NDArray[np.intp]:
        """Return the predicted classes [n] by the current version, which learns nothing from them."""
        if current(self.package) != self._running:
            self._running = current(self.package)
            self._session = _session(self._running)
        (outputs,) = self._session({self._info.name: images}).values()
        classes: npt.NDArray[np.intp] = np.argmax(outputs, axis=1)
        return classes

    def stream(self, images: Images) -> npt.NDArray[np.intp]:
        """Return the predicted classes of a stream [n], each by the version of its time."""
        parts: list[npt.NDArray[np.intp]] = []
        for at in range(0, len(images), _LOOK):
            parts.append(self.answers(images[at : at + _LOOK]))
            for image in images[at : at + _LOOK]:
                self._samples.offer({self._info.name: image[None]})
                self.seconds += 1 / RATE
            self._loop.step()
        return np.concatenate(parts)

    def close(self) -> None:
        """Stop the loop."""
        self._loop.close()


def _session(package: Path) -> Session:
    return Session(resizable((package / NETWORK).read_bytes()), 1)


def accuracy(answers: npt.NDArray[np.integer], labels: Sequence[int] | npt.NDArray[np.int64]) -> float:
    """Return the accuracy in per cent."""
    return 100 * float(np.mean(answers == np.asarray(labels)))
