"""A store with a ported package that can be tuned, and devices that tune it."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mistify.config.data.dataset import DatasetConfig
from mistify.jobs.job import Goal, GoalState, Job, JobState, PackageFile
from mistify.jobs.package_spec import PackageSpec
from mistify.package.manifest import MANIFEST, Manifest, MeasuredLatency, TunableTensor, Versions
from mistify.package.records import PackagedFile
from mistify.package.weights import write_weights
from mistify.peers.hints import Hints, Location
from mistify.peers.membership import SECRET_BYTES, MemberKey, PackageReference
from mistify_server.store.changes import GoalChanged, Submission
from mistify_server.store.directory import Store, open_store
from mistify_server.store.plans import BatchPlan
from mistify_server.store.tuning import Group
from mistify_server.tasks.recipe import Recipe
from mistify_server.tasks.sources import DataSource, ModelSource

GROUP: Final = "cameras"
JOB: Final = "job-1"
GOAL: Final = "phone"
SETTINGS: Final[dict[str, object]] = {"location_km": 1.0, "view_degrees": 30.0}

#: A placeholder for a network, which the coordinator never reads.
_NETWORK: Final = b"a network"


@dataclass(frozen=True)
class Device:
    """A tuning device: its key, its hints, and its weights."""

    key: MemberKey
    hints: Hints
    weights: bytes


def shapes(width: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a dense layer, by name."""
    return {"dense/kernel": (width, 3), "dense/bias": (3,)}


def prepare(directory: Path, width: int = 4) -> PackageReference:
    """Make a store with a group whose job has a package, and return a reference to that package."""
    serve = PackagedFile.of(_NETWORK)
    manifest = _manifest(serve, width).model_dump_json().encode()
    prepare_packages(directory, {GOAL: {"serve.tflite": _NETWORK, MANIFEST: manifest}}, SETTINGS)
    return PackageReference(JOB, GOAL, serve.sha256)


def prepare_packages(
    directory: Path, packages: Mapping[str, Mapping[str, bytes]], settings: Mapping[str, object]
) -> None:
    """Make a store with a group whose job has these packages (goal -> file -> content).

    Args:
        directory: The store's directory.
        packages: The packages made by porting.
        settings: Settings of the group's correlation measure.
    """
    goals = [Goal(id=name, batch=0, spec=PackageSpec({"flops": 10.0})) for name in packages]
    with open_store(directory) as store:
        job = Job(JOB, JobState.RUNNING, tuple(goals), created_unix_ms=1)
        store.jobs.create(Submission(job, [_plan()], "[]", None))
        for goal in goals:
            files = tuple(_file(store, name, content) for name, content in packages[goal.id].items())
            met = replace(goal, state=GoalState.MET, accuracy=0.8, files=files)
            store.jobs.record(JOB, [GoalChanged(met)], 1.0, {})
        store.tuning.add_group(Group(GROUP, JOB, 0, "spatiotemporal", dict(settings)))


@contextmanager
def served(store: Path) -> Iterator[str]:
    """Run a server over a store in a separate process, and yield its address."""
    command = [sys.executable, "-m", "mistify_server.cli", "serve", "--store", str(store)]
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().split()[-1] if server.stdout else ""
        finally:
            server.terminate()


def device(number: int, width: int = 4) -> Device:
    """Return a device of a fleet with about fifty devices in each place."""
    rng = np.random.default_rng([7, number])
    place = np.random.default_rng([8, number // 50]).uniform((-60, -180), (60, 180))
    latitude, longitude = place + rng.normal(scale=0.005, size=2)
    location = Location(latitude=float(latitude), longitude=float(longitude) % 360 - 180)
    hints = Hints(location=location, view_degrees=float(rng.uniform(0, 360)))
    key = MemberKey(GROUP, rng.bytes(SECRET_BYTES))
    return Device(key, hints, write_weights(tuned(number, width)))


def tuned(seed: int, width: int = 4) -> dict[str, NDArray[np.float32]]:
    """Return weights of the package as if tuned by a device."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(1, 0.1, shape).astype(np.float32) for name, shape in shapes(width).items()}


def _file(store: Store, name: str, content: bytes) -> PackageFile:
    store.artifacts.put(content, Path(name).suffix)
    return PackageFile(name, len(content), sha256(content).hexdigest())


def _manifest(serve: PackagedFile, width: int) -> Manifest:
    return Manifest(
        job=JOB,
        goal=GOAL,
        budget={"flops": 10.0},
        achieved={"flops": 9.0},
        accuracy=0.8,
        validation_accuracy=0.8,
        latency=MeasuredLatency(median_ms=1, p95_ms=1, runs=1, threads=1, machine="x", runtime="x"),
        inputs=(),
        outputs=(),
        tunable={
            name: TunableTensor(shape=shape, norm=float(np.sqrt(np.prod(shape))))
            for name, shape in shapes(width).items()
        },
        versions=Versions(mistify="0.1.0", tensorflow="2.21.0", keras="3.15.1"),
        files={"serve.tflite": serve},
        created=datetime(2026, 1, 1, tzinfo=UTC),
    )


def _plan() -> BatchPlan:
    return BatchPlan(
        number=0,
        model_name="digits-resnet",
        dataset=DatasetConfig(train="builtin:digits-train", test="builtin:digits-test"),
        recipe=Recipe(
            model=ModelSource(builtin="digits-resnet"),
            data=DataSource(train="builtin:digits-train", test="builtin:digits-test"),
            algorithm="morphnet",
            settings={},
            hardware={},
            seed=0,
        ),
        source_costs={"flops": 20.0},
        floor={},
        exceed={},
        nodes=(),
    )
