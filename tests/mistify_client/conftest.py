"""An in-memory porting service over real gRPC that injects faults, and tiny packages."""

# ruff: noqa: N802 (gRPC names the methods of a servicer)

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from ai_edge_litert.interpreter import Interpreter

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import Goal, GoalState, Job, JobEvent, JobState, PackageFile, ProgressUpdate, Source
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.part import JobPart
from mistify.jobs.plan import Plan
from mistify.package.manifest import Branch
from mistify.package.signature import KeyChain
from mistify.quotas import CallerStatus, Quota, Usage
from mistify.v1 import porting_pb2 as pb
from mistify.v1.porting_pb2_grpc import PortingServicer, add_PortingServicer_to_server
from mistify.wire import porting
from mistify.wire.limits import ERROR_METADATA
from mistify.wire.porting import plan_to_proto
from mistify_client.rpc.retry import Backoff
from tests.support.paths import DATA
from tests.support.ports import reserved_address
from tests.support.targets import overall
from tests.support.tiny_packages import COMPARISON, COSTS, IMAGE, LATENCY, PAIR, SCORES, make_package

REPORT_PAGE = "<!doctype html>\n<title>\N{GREATER-THAN OR EQUAL TO} report</title>\n".encode()
FILES = {"manifest.json": b"{}" * 40, "serve.tflite": bytes(range(256)) * 40}


def package_files(files: dict[str, bytes]) -> tuple[PackageFile, ...]:
    return tuple(
        PackageFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()
    )


def ended_job(files: dict[str, bytes]) -> Job:
    """Return a job with two goals: `half` is met, and `tenth`, adapted from it, failed."""
    half = Goal(
        id="half",
        batch=0,
        spec=PackageSpec({"flops": 500.0}, targets=overall(0.7)),
        algorithm="morphnet",
        choice="as good as chamnet, and faster",
        warning="accuracy 70.0% is likely to be missed",
        state=GoalState.MET,
        achieved={**COSTS, "flops": 480.0},
        accuracy=0.75,
        seconds=3.0,
        steps=150,
        files=package_files(files),
    )
    tenth = Goal(
        "tenth", 0, PackageSpec({"flops": 100.0}), parent="half", state=GoalState.FAILED, reason="no room"
    )
    spent = {"tracing": 0.5, "training": 7.25, "saving": 0.01, "waiting": 0.0, "other": 0.25}
    return Job("job-1", JobState.DONE, (half, tenth), 1_700_000_000_000, (Source(COSTS, 0.8),), 4.5, spent)


def events() -> list[JobEvent]:
    happened: list[tuple[str | None, JobState | GoalState | ProgressUpdate]] = [
        (None, JobState.RUNNING),
        (None, ProgressUpdate("tuning source", 10, 20)),
        ("half", GoalState.RUNNING),
        ("half", ProgressUpdate("adapting", 75, 150, {"flops": 700.0}, 0.78)),
        ("half", GoalState.MET),
        ("tenth", GoalState.FAILED),
        (None, JobState.DONE),
    ]
    return [JobEvent(n, 1000 * n, goal, event) for n, (goal, event) in enumerate(happened, start=1)]


@dataclass
class PortingFake(PortingServicer):
    """A service with one job. Each fault is the number of messages after which the next stream breaks."""

    files: dict[str, bytes]
    events: list[JobEvent]
    job: Job
    plan: Plan = field(default_factory=lambda: Plan(()))
    details: GoalDetails = field(default_factory=lambda: GoalDetails(None, (), 0))
    config: str = "[]"
    watch_faults: list[int] = field(default_factory=list)
    fetch_faults: list[int] = field(default_factory=list)
    report_faults: list[int] = field(default_factory=list)
    corrupt_downloads: int = 0
    unanswered: int = 0
    page: int = 1_000
    unreadable: list[pb.UnreadableJob] = field(default_factory=list)
    error: MistifyError | None = None
    status: CallerStatus = field(default_factory=lambda: CallerStatus("local", ("admin",), Quota(), Usage()))
    requests: list[object] = field(default_factory=list)
    metadata: list[dict[str, object]] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    keys_chain: KeyChain | None = None
    on_fault: Callable[[grpc.ServicerContext], None] = lambda context: context.abort(
        grpc.StatusCode.UNAVAILABLE, "connection reset"
    )

    def SubmitBatch(self, request, context):
        self._note(request, context)
        if request.idempotency_key not in self.keys:
            self.keys[request.idempotency_key] = f"job-{len(self.keys) + 1}"
        self.job = replace(self.job, id=self.keys[request.idempotency_key])
        return self._part(request)

    def Plan(self, request, context):
        self._note(request, context)
        return plan_to_proto(self.plan)

    def AddGoals(self, request, context):
        self._note(request, context)
        return self._part(request)

    def GetJob(self, request, context):
        self._note(request, context)
        if request.job_id != self.job.id:
            self._abort(context, MistifyError(ErrorCode.NOT_FOUND, f"there is no job {request.job_id!r}"))
        return self._part(request)

    def ListJobs(self, request, context):
        self._note(request, context)
        names = ["job-1", "job-2", "job-3"]
        first = names.index(request.page_token) + 1 if request.page_token else 0
        parts = [JobPart(replace(self.job, id=name, goals=()), 2, 1) for name in names[first : first + 2]]
        jobs = map(porting.part_to_proto, parts)
        unreadable = [] if first else self.unreadable
        return pb.ListJobsResponse(jobs=jobs, next_page_token="" if first else "job-2", unreadable=unreadable)

    def CancelJob(self, request, context):
        self._note(request, context)
        self.job = replace(self.job, state=JobState.CANCELLED)
        if self.unanswered:
            self.unanswered -= 1
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "too late")
        return self._part(request)

    def PauseJob(self, request, context):
        self._note(request, context)
        if not self.job.state.ended:
            self.job = replace(self.job, state=JobState.PAUSED)
        return self._part(request)

    def ResumeJob(self, request, context):
        self._note(request, context)
        if not self.job.state.ended:
            self.job = replace(self.job, state=JobState.RUNNING)
        return self._part(request)

    def GetCaller(self, request, context):
        self._note(request, context)
        return porting.status_to_proto(self.status)

    def RemoveJob(self, request, context):
        self._note(request, context)
        if request.now:
            return pb.RemoveJobResponse(freed_bytes=2_000_000)
        return pb.RemoveJobResponse(undo_until_unix_ms=86_400_000)

    def RestoreJob(self, request, context):
        self._note(request, context)
        return pb.RestoreJobResponse()

    def ChangeJob(self, request, context):
        self._note(request, context)
        return pb.ChangeJobResponse()

    def _part(self, request):
        """Return the job with the goals that a request selects, at most `page` of them."""
        first = int(request.goals.page_token or 0)
        end = first + min(request.goals.page_size, self.page)
        goals = self.job.goals[first:end]
        if request.goals.goal_id:
            goals = tuple(goal for goal in self.job.goals if goal.id == request.goals.goal_id)
        more = str(end) if request.goals.page_size and end < len(self.job.goals) else ""
        met = sum(goal.state is GoalState.MET for goal in self.job.goals)
        part = JobPart(replace(self.job, goals=goals), len(self.job.goals), met, more)
        return porting.part_to_proto(part)

    def WatchJob(self, request, context):
        self._note(request, context)
        left = self.watch_faults.pop(0) if self.watch_faults else len(self.events)
        for event in self.events[request.after_sequence :]:
            if not left:
                self.on_fault(context)
            left -= 1
            yield porting.event_to_proto(event)

    def GetGoalDetails(self, request, context):
        self._note(request, context)
        return porting.details_to_proto(self.details)

    def FetchPackage(self, request, context):
        self._note(request, context)
        left = self.fetch_faults.pop(0) if self.fetch_faults else 10**9
        data = self.files[request.file]
        if self.corrupt_downloads and request.file == "serve.tflite":
            self.corrupt_downloads -= 1
            data = b"\xff" + data[1:]
        for offset in range(request.offset, len(data), 1024):
            if not left:
                self.on_fault(context)
            left -= 1
            yield pb.PackageChunk(data=data[offset : offset + 1024])

    def GetConfig(self, request, context):
        self._note(request, context)
        return pb.JobConfig(config_json=self.config)

    def GetSigningKeys(self, request, context):
        self._note(request, context)
        return porting.keys_to_proto(self.keys_chain)

    def FetchReport(self, request, context):
        self._note(request, context)
        if request.job_id != self.job.id:
            self._abort(context, MistifyError(ErrorCode.NOT_FOUND, f"there is no job {request.job_id!r}"))
        left = self.report_faults.pop(0) if self.report_faults else 10**9
        for offset in range(0, len(REPORT_PAGE), 8):
            if not left:
                self.on_fault(context)
            left -= 1
            yield pb.ReportChunk(data=REPORT_PAGE[offset : offset + 8])

    def requests_of(self, kind: type) -> list:
        return [request for request in self.requests if isinstance(request, kind)]

    def _note(self, request, context) -> None:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if self.error is not None:
            self._abort(context, self.error)

    @staticmethod
    def _abort(context: grpc.ServicerContext, error: MistifyError) -> None:
        info = porting.error_to_proto(error).SerializeToString()
        context.set_trailing_metadata(((ERROR_METADATA, info),))
        context.abort(grpc.StatusCode[error.code.grpc_status], error.message)


def serve(fake: PortingFake, address: str) -> grpc.Server:
    """Start a server for a service at a `reserved_address`."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 1)])
    add_PortingServicer_to_server(fake, server)
    server.add_insecure_port(address)
    server.start()
    return server


class Service:
    """An in-memory service whose server can be stopped and restarted at the same address.

    Args:
        address: A `reserved_address`.
    """

    def __init__(self, fake: PortingFake, address: str) -> None:
        self.fake = fake
        self.address = address
        self.start()

    def stop(self) -> None:
        self.server.stop(None).wait()

    def serve_package(self, directory: Path) -> None:
        """Serve the files of a directory as the package of the goal `half`."""
        self.fake.files = {path.name: path.read_bytes() for path in directory.iterdir()}
        self.fake.job = ended_job(self.fake.files)

    def start(self) -> None:
        self.server = serve(self.fake, self.address)


@contextmanager
def running(fake: PortingFake) -> Iterator[Service]:
    """Run a service within the block."""
    with reserved_address() as address:
        service = Service(fake, address)
        yield service
        service.stop()


@pytest.fixture
def service() -> Iterator[Service]:
    with running(PortingFake(dict(FILES), events(), ended_job(FILES))) as service:
        yield service


@dataclass
class Waits:
    """A replacement for `sleep` that records the delay, calls `then`, and only sleeps if `real`."""

    then: Callable[[], None] = lambda: None
    real: bool = False
    delays: list[float] = field(default_factory=list)

    def __call__(self, seconds: float) -> None:
        self.delays.append(seconds)
        self.then()
        if self.real:
            time.sleep(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def backoff(waits: Waits) -> Backoff:
    return Backoff(wait=waits, rng=lambda: 1.0, attempts=6)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the inodes of the files that were synced, in order."""
    inodes, sync = [], os.fsync

    def note(file: int) -> None:
        sync(file)
        inodes.append(os.fstat(file).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    return inodes


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture
def package(tmp_path: Path, data: Path) -> Path:
    """`image` -> `scores`."""
    return make_package(tmp_path / "package", data / "tiny.tflite", (IMAGE,), (SCORES,))


@pytest.fixture
def branch_package(tmp_path: Path, data: Path) -> Path:
    """`image` -> `scores` by three branches, of which the second is the default."""
    branches = tuple(
        Branch(
            share=share,
            achieved={"flops": 500 * share},
            accuracy=accuracy,
            validation_accuracy=accuracy,
            latency=LATENCY,
        )
        for share, accuracy in ((1 / 3, 0.6), (1.0, 0.75), (3.0, 0.8))
    )
    return make_package(tmp_path / "branches", data / "tiny_branches.tflite", (IMAGE,), (SCORES,), branches)


@pytest.fixture
def int8_package(tmp_path: Path, data: Path) -> Path:
    """`image` -> `scores`, both int8."""
    details = Interpreter(model_path=str(data / "tiny_int8.tflite")).get_signature_runner()
    (model_input,), (model_output,) = (
        details.get_input_details().values(),
        details.get_output_details().values(),
    )
    image, scores = (
        info.model_copy(update={"dtype": "int8", "scale": float(scale), "zero_point": zero_point})
        for info, (scale, zero_point) in (
            (IMAGE, model_input["quantization"]),
            (SCORES, model_output["quantization"]),
        )
    )
    return make_package(tmp_path / "int8", data / "tiny_int8.tflite", (image,), (scores,))


@pytest.fixture
def pair_package(tmp_path: Path, data: Path) -> Path:
    """`left`, `right` -> `mix`, `difference`."""
    return make_package(tmp_path / "pair", data / "tiny_two.tflite", PAIR, COMPARISON)


@pytest.fixture
def expected(data: Path) -> Mapping[str, npt.NDArray[np.float32]]:
    """Return inputs of three examples and TensorFlow's outputs; `branches` has those of each branch."""
    return dict(np.load(data / "tiny_expected.npz"))
