"""Packages that serve a task and have a factory, and the ladders of slices that a device keeps for them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mistify.config.data.metric import Metric
from mistify.config.task import TaskConfig
from mistify.machine import machine, runtime
from mistify.package.factory import FactoryStore
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify.tflite.session import Session
from mistify_client.assembly.ladder import SLICES, Rung, SliceLadder
from mistify_client.runtime.versions import open_current, state_directory
from mistify_client.slicing.customizing import factory_of
from mistify_client.slicing.cutting import cut_slice, slice_key
from tests.support.factories import QUALITY, make_package

TASK = "exactly:2, odd"
PROPERTIES = ("exactly:2", "odd")

#: Milliseconds of the package's own network, and of the slices within some limits.
OWN_MS = 10.0
LATENCIES: Mapping[float, float] = {0.1: 2.0, 0.25: 4.0, 0.5: 20.0}

#: Bytes of the own network; slices have their share.
OWN_BYTES = 1e5

#: Accuracy of the own network: that of the slices is below, below and above it.
OWN_ACCURACY = 0.85


def make_serving_package(directory: Path, name: str = "factory") -> Path:
    """Copy a package with a factory that serves a task; its network is no slice."""
    package = make_package(directory, name)
    task = TaskConfig(properties=PROPERTIES)
    update = {"task": task, "validation_accuracy": OWN_ACCURACY, "metric": Metric.BALANCED_ACCURACY}
    Manifest.load(package).model_copy(update=update).save(package)
    return package


def rung(package: Path, limit: float, latency_ms: float = 1.0) -> Rung:
    """Return a slice for the task that a package serves, with a latency that counts as measured."""
    version, (_, store) = open_current(package), factory_of(package)
    task = store.asked(version.manifest.task.properties)
    return Rung(
        limit=limit,
        key=slice_key(store, task, limit),
        latency_ms=latency_ms,
        measured=True,
        memory_bytes=OWN_BYTES * limit,
        size_bytes=8e4 * limit,
        quality=QUALITY.expected(limit),
    )


def write_ladder(
    directory: Path, latencies: Mapping[float, float] = LATENCIES, **changes: object
) -> SliceLadder:
    """Write the ladder of a package's current version."""
    version, state = open_current(directory), state_directory(directory)
    values = {
        "package": version.digest,
        "task": TASK,
        "machine": machine(),
        "runtime": runtime(),
        "threads": 1,
        "own_ms": OWN_MS,
        "own_bytes": OWN_BYTES,
        "rungs": tuple(rung(directory, limit, latency_ms) for limit, latency_ms in latencies.items()),
    }
    ladder = SliceLadder.model_validate(values | changes)
    (state / SLICES).mkdir(parents=True, exist_ok=True)
    ladder.save(state)
    return ladder


def answers(package: Path, limit: float, images: np.ndarray) -> np.ndarray:
    """Return what a slice answers."""
    output = FactoryStore.of(Package.open(package)).kinds
    (name,) = output
    return Session(cut_slice(package, rung(package, limit)), threads=1)({"image": images})[name]
