import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tuning import fleet
from benchmarks.tuning.fleet import Device
from mistify.peers.membership import PackageReference, Peer, Publication
from mistify_client.rpc.tuning import describe
from mistify_server.identity.callers import LOCAL
from mistify_server.store.directory import Store, open_store
from mistify_server.tuning.service import TuningService
from mistify_server.tuning.storage import IndexStorage
from tests.support.callers import called_by


@pytest.fixture(autouse=True)
def _caller() -> Iterator[None]:
    with called_by(LOCAL):
        yield


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def redis_server(port: int, directory: Path) -> Iterator[str]:
    """Start a Redis server without persistence, and yield its address."""
    pytest.importorskip("redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    command = [program, "--port", str(port), "--save", "", "--dir", str(directory)]
    with started(command) as server:
        try:
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.terminate()


def started(command: Sequence[str]) -> subprocess.Popen[str]:
    """Return a ready Redis server; another program may occupy its port for some seconds."""
    until = time.monotonic() + 10
    while True:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        if any("Ready to accept connections" in line for line in server.stdout):
            return server
        server.wait()
        server.stdout.close()
        assert time.monotonic() < until, "redis-server has ended"


@pytest.fixture(scope="session")
def redis_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(free_port(), tmp_path_factory.mktemp("redis")) as address:
        yield address


@pytest.fixture
def redis_at(tmp_path: Path) -> Callable[[int], AbstractContextManager[str]]:
    return lambda port: redis_server(port, tmp_path)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture(params=["memory", "redis"])
def index_address(request: pytest.FixtureRequest) -> str:
    return "memory" if request.param == "memory" else request.getfixturevalue("redis_address")


@pytest.fixture
def storage(index_address: str) -> IndexStorage:
    return IndexStorage.of(index_address)


@pytest.fixture
def index_name(tmp_path: Path) -> str:
    """Return a unique name for each test, because the tests share the Redis server."""
    return tmp_path.name


@dataclass
class Clock:
    """A manually set clock, in seconds since 1970."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@dataclass(frozen=True)
class Coordinator:
    """A service with a store prepared for tuning, and the calls of devices."""

    store: Store
    service: TuningService
    package: PackageReference

    def publication(self, device: Device, **changes: Any) -> Publication:
        value = {"version": 1, "loss": 0.5, "accuracy": 0.75, "hints": device.hints}
        return replace(describe(self.package, device.weights, **value), **changes)

    async def publish(self, device: Device, *, chunk: int = 50, **changes: Any) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(device.weights), chunk):
                yield device.weights[start : start + chunk]

        await self.service.publish(device.key, self.publication(device, **changes), chunks())

    async def enter(self, *numbers: int) -> list[Device]:
        """Let devices join the group and publish their weights."""
        devices = [fleet.device(number) for number in numbers]
        for device in devices:
            await self.service.join(device.key)
            await self.publish(device)
        return devices

    async def peers(self, device: Device, count: int, held: Mapping[str, int] = {}) -> dict[Peer, bytes]:
        actual: dict[Peer, bytes] = {}
        async for part in self.service.peers(device.key, count, held):
            if isinstance(part, Peer):
                actual[part] = b""
            else:
                actual[next(reversed(actual))] += part
        return actual

    @property
    def files(self) -> set[str]:
        """Return the digests of the weights on the disk."""
        return {name.partition(".")[0] for name in self.store.weights.names()}


@pytest.fixture
def coordinator(tmp_path: Path, storage: IndexStorage, clock: Clock) -> Iterator[Coordinator]:
    package = fleet.prepare(tmp_path / "store")
    with open_store(tmp_path / "store") as store:
        yield Coordinator(store, TuningService(store, storage, clock), package)


@pytest.fixture
def coordinator_over() -> type[Coordinator]:
    return Coordinator


@pytest.fixture
async def device(coordinator: Coordinator) -> Device:
    """Return a member that has published nothing."""
    device = fleet.device(0)
    await coordinator.service.join(device.key)
    return device
