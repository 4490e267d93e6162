import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mistify_server.coordinator.storage import IndexStorage


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="session")
def redis_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis server of its own, which keeps nothing."""
    pytest.importorskip("redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    port = free_port()
    command = [program, "--port", str(port), "--save", "", "--dir", str(tmp_path_factory.mktemp("redis"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert any("Ready to accept connections" in line for line in server.stdout), "redis-server has ended"
        yield f"redis://127.0.0.1:{port}"
        server.terminate()


@pytest.fixture(params=["memory", "redis"])
def index_address(request: pytest.FixtureRequest) -> str:
    return "memory" if request.param == "memory" else request.getfixturevalue("redis_address")


@pytest.fixture
def storage(index_address: str) -> IndexStorage:
    return IndexStorage.of(index_address)


@pytest.fixture
def index_name(tmp_path: Path) -> str:
    """Another one for each test, as the tests share the Redis server."""
    return tmp_path.name
