import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from mistify.config.data.dataset import DatasetConfig
from mistify.errors import MistifyError
from mistify.jobs.job import Job, JobEvent
from mistify.jobs.plan import Plan
from mistify.v1 import porting_pb2 as pb
from mistify.v1.porting_pb2_grpc import PortingStub
from mistify.wire import porting
from mistify.wire.limits import ERROR_METADATA
from mistify_server.server import ServerSettings, running_server
from mistify_server.store.directory import Store, open_store
from mistify_server.store.plans import BatchPlan, NodePlan
from mistify_server.tasks.recipe import Recipe
from mistify_server.tasks.sources import DataSource, ModelSource
from tests.support.buckets import BucketServer, running_bucket_server
from tests.support.postgresql import Cluster, running_cluster

HERE = Path(__file__).parent
DEADLINE = 180.0


@dataclass(frozen=True)
class Site:
    """Directories of a server with scripted workers, and configs for it."""

    base: Path
    store: Path = field(init=False)
    root: Path = field(init=False)
    control: Path = field(init=False)

    def __post_init__(self) -> None:
        for name in ("store", "root", "control"):
            object.__setattr__(self, name, self.base / name)
            (self.base / name).mkdir()
        self.write("model.json", {"costs": COSTS, "floor": {"flops": 100.0, "params": 10.0}})
        self.write("train.json", {"x": [], "y": []})
        self.write("test.json", {"x": [], "y": []})

    def write(self, name: str, content: object) -> None:
        (self.root / name).write_text(json.dumps(content))

    @property
    def worker(self) -> list[str]:
        script = str(HERE / "worker_on_demand.py")
        return [sys.executable, script, "--store", str(self.store), "--control", str(self.control)]

    def settings(self, **changes: Any) -> ServerSettings:
        value = {"listen": "127.0.0.1:0", "data_roots": [self.root], "worker": self.worker, "slots": 1}
        return ServerSettings(store=self.store, **{**value, **changes})

    def tasks(self, kind: str) -> list[dict[str, Any]]:
        """Return the tasks that workers have received, in order, without an incomplete last line."""
        log = self.control / "tasks"
        lines = log.read_text().split("\n")[:-1] if log.exists() else []
        return [task for task in map(json.loads, lines) if task["kind"] == kind]


COSTS = {"flops": 10_000.0, "params": 1_000.0, "memory_bytes": 8_000.0, "size_bytes": 6_000.0}


def config(
    goal_id: str, model: str = "model.json", algorithm: object = None, **goal: object
) -> dict[str, object]:
    return {
        "id": goal_id,
        "model": model,
        "dataset": {"train": "train.json", "test": "test.json"},
        "algorithm": algorithm or {"name": "Morphnet"},
        "adaptation_goal": goal,
    }


class Caller:
    """A client of the service over real gRPC."""

    def __init__(self, address: str, token: str | None = None) -> None:
        options = [("grpc.max_metadata_size", 2**20), ("grpc.absolute_max_metadata_size", 2**20)]
        self.address = address
        self.channel = grpc.aio.insecure_channel(address, options=options)
        self.stub = PortingStub(self.channel)
        self.metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    async def submit(self, configs: object, key: str = "", name: str = "") -> Job:
        text = configs if isinstance(configs, str) else json.dumps(configs)
        request = pb.SubmitBatchRequest(config_json=text, idempotency_key=key, name=name)
        return porting.job_from_proto(await self.call(self.stub.SubmitBatch, request))

    async def plan(self, configs: object) -> Plan:
        request = pb.PlanRequest(config_json=json.dumps(configs))
        return porting.plan_from_proto(await self.call(self.stub.Plan, request))

    async def add(self, job_id: str, configs: object, key: str = "") -> Job:
        text = configs if isinstance(configs, str) else json.dumps(configs)
        request = pb.AddGoalsRequest(job_id=job_id, config_json=text, idempotency_key=key)
        return porting.job_from_proto(await self.call(self.stub.AddGoals, request))

    async def job(self, job_id: str) -> Job:
        return porting.job_from_proto(await self.call(self.stub.GetJob, pb.GetJobRequest(job_id=job_id)))

    async def cancel(self, job_id: str) -> Job:
        return porting.job_from_proto(
            await self.call(self.stub.CancelJob, pb.CancelJobRequest(job_id=job_id))
        )

    async def page(self, size: int, token: str = "") -> pb.ListJobsResponse:
        return await self.call(self.stub.ListJobs, pb.ListJobsRequest(page_size=size, page_token=token))

    async def watch(self, job_id: str, after: int = 0, *, so_far: bool = False) -> AsyncIterator[JobEvent]:
        request = pb.WatchJobRequest(job_id=job_id, after_sequence=after, so_far=so_far)
        async for message in self.stream(self.stub.WatchJob, request):
            yield porting.event_from_proto(message)

    async def events(self, job_id: str, after: int = 0) -> list[JobEvent]:
        return [event async for event in self.watch(job_id, after)]

    async def finished(self, job_id: str) -> Job:
        await self.events(job_id)
        return await self.job(job_id)

    async def fetch(self, job_id: str, goal_id: str, file: str, offset: int = 0) -> bytes:
        request = pb.FetchPackageRequest(job_id=job_id, goal_id=goal_id, file=file, offset=offset)
        return b"".join([chunk.data async for chunk in self.stream(self.stub.FetchPackage, request)])

    async def call(self, method: Any, request: object) -> Any:
        try:
            return await method(request, timeout=DEADLINE, metadata=self.metadata, wait_for_ready=True)
        except grpc.RpcError as error:
            raise error_of(error) from error

    async def stream(self, method: Any, request: object) -> AsyncIterator[Any]:
        try:
            async for message in method(request, timeout=DEADLINE, metadata=self.metadata):
                yield message
        except grpc.RpcError as error:
            raise error_of(error) from error


def error_of(error: Any) -> MistifyError:
    attached = dict(error.trailing_metadata()).get(ERROR_METADATA)
    assert attached is not None, error
    translated = porting.error_from_proto(pb.ErrorInfo.FromString(attached))
    assert translated.code.grpc_status == error.code().name
    return translated


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "own-store") as opened:
        yield opened


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Run a PostgreSQL for all tests of a process."""
    with running_cluster() as running:
        yield running


@pytest.fixture(scope="session")
def _bucket_server() -> Iterator[BucketServer]:
    """Run an S3 server for all tests of a process."""
    with running_bucket_server() as running:
        yield running


@pytest.fixture
def bucket_server(_bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> BucketServer:
    """Return an S3 server that clients of this process and of its children find by their variables."""
    for name, value in _bucket_server.variables.items():
        monkeypatch.setenv(name, value)
    return _bucket_server


@pytest.fixture
def plan() -> BatchPlan:
    """Return a batch with the goals "a" and "b", which share a budget."""
    node = NodePlan(index=0, parent=None, budget={"flops": 1.0}, targets=(), seed=1, goals=("a", "b"))
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
        source_costs={"flops": 2.0},
        floor={},
        exceed={},
        nodes=(node,),
    )


@pytest.fixture
def make_config() -> Callable[..., dict[str, object]]:
    return config


@asynccontextmanager
async def calling(settings: ServerSettings, token: str | None = None) -> AsyncIterator[Caller]:
    async with running_server(settings) as (address, _):
        caller = Caller(address, token)
        try:
            yield caller
        finally:
            await caller.channel.close()


@pytest.fixture
def serving_at() -> Callable[..., Any]:
    return calling


@pytest.fixture
def call_at() -> type[Caller]:
    return Caller


@pytest.fixture
async def caller(site: Site) -> AsyncIterator[Caller]:
    async with calling(site.settings()) as opened:
        yield opened


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], Any]:
    return until
