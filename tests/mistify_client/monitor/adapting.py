"""A porting service over real gRPC that meets every goal immediately, and can block calls."""

# ruff: noqa: N802 (gRPC names the methods of a servicer)

import io
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mistify.config.reading import parse_batch
from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobEvent, ProgressUpdate
from mistify.package.manifest import Manifest
from mistify.v1 import porting_pb2 as pb
from mistify.wire import porting
from tests.mistify_client.conftest import PortingFake, ended_job, package_files
from tests.support.signed_packages import sign_package
from tests.support.tiny_packages import IMAGE, SCORES, make_package

PATIENCE = 180.0


@dataclass
class Gate:
    """A point where calls block: `reached` is set when a call arrives, and `opened` lets calls continue."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)


@dataclass
class AdaptingFake(PortingFake):
    """A service that makes a package from a network file for every goal, or fails every goal.

    Calls wait at `gates` until these are opened. With `forgotten`, the service has lost its jobs and adds no
    goals. Packages are signed if there is a `key`.
    """

    network: Path = Path()
    fails: bool = False
    forgotten: bool = False
    key: PrivateKey | None = None
    gates: dict[str, Gate] = field(default_factory=dict)

    def SubmitBatch(self, request, context):
        self._pass("SubmitBatch")
        super().SubmitBatch(request, context)
        return self._adapted(request)

    def AddGoals(self, request, context):
        self._pass("AddGoals")
        super().AddGoals(request, context)
        if self.forgotten:
            self._abort(context, MistifyError(ErrorCode.NOT_FOUND, f"there is no job {request.job_id!r}"))
        return self._adapted(request)

    def WatchJob(self, request, context) -> Iterator[pb.JobEvent]:
        self._pass("WatchJob")
        yield from super().WatchJob(request, context)

    def FetchPackage(self, request, context) -> Iterator[pb.PackageChunk]:
        for number, chunk in enumerate(super().FetchPackage(request, context)):
            yield chunk
            if number == 0:
                self._pass("FetchPackage")

    def _pass(self, name: str) -> None:
        if name in self.gates:
            gate = self.gates[name]
            gate.reached.set()
            assert gate.opened.wait(PATIENCE)

    def _adapted(self, request) -> pb.Job:
        (config,) = parse_batch(request.config_json)
        if config.id not in {goal.id for goal in self.job.goals}:
            self._adapt(config.id)
        return porting.job_to_proto(self.job)

    def _adapt(self, goal_id: str) -> None:
        outcome = GoalState.FAILED if self.fails else GoalState.MET
        goal = replace(self.job.goals[0], id=goal_id, state=outcome, files=(), reason="no room" * self.fails)
        if not self.fails:
            self.files = package_of(self.network, goal_id, self.job.id, self.key)
            goal = replace(goal, files=package_files(self.files))
        self.job = replace(self.job, goals=(*self.job.goals, goal))
        for event in (GoalState.RUNNING, ProgressUpdate("adapt", 1, 2, {"flops": 1e6}), outcome):
            self.events.append(JobEvent(len(self.events) + 1, 0, goal_id, event))


def package_of(network: Path, goal_id: str, job_id: str, key: PrivateKey | None = None) -> dict[str, bytes]:
    """Return the files of a package with the given network, by name."""
    with TemporaryDirectory() as scratch:
        directory = make_package(Path(scratch) / "package", network, (IMAGE,), (SCORES,))
        manifest = Manifest.load(directory).model_copy(update={"goal": goal_id, "job": job_id})
        manifest.save(directory)
        if key is not None:
            sign_package(directory, key)
        return {path.name: path.read_bytes() for path in directory.iterdir()}


def adapting_fake(network: Path) -> AdaptingFake:
    return AdaptingFake({}, [], ended_job({}), network=network)


class Entries(io.TextIOBase):
    """A log whose entries a test can wait for."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        self.read: list[dict[str, Any]] = []

    def write(self, line: str) -> int:
        self._lines.put(line)
        return len(line)

    def until(self, **wanted: object) -> dict[str, Any]:
        """Wait for the next entry with these fields, and return it."""
        while True:
            entry = json.loads(self._lines.get(timeout=PATIENCE))
            self.read.append(entry)
            if all(entry.get(key) == value for key, value in wanted.items()):
                return entry

    @property
    def phases(self) -> list[str]:
        """Return the phases of all entries read so far."""
        return [entry["phase"] for entry in self.read if entry["event"] == "replacement"]


@contextmanager
def held(fake: AdaptingFake, name: str) -> Iterator[Gate]:
    """Block every call of one kind."""
    gate = fake.gates[name] = Gate()
    try:
        yield gate
    finally:
        del fake.gates[name]
        gate.opened.set()
