"""A server on a Ray cluster of two machines, one of which is lost."""

import asyncio
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState

pytest.importorskip("ray", reason="Ray is not installed")

from ray.cluster_utils import Cluster
from ray.exceptions import RaySystemError

from mistify_server.engines.ray import RayEngine, connected
from tests.mistify_server.engines.starting import patiently
from tests.support.servers import killed_at_the_end


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def on(raylet: int, worker: int) -> bool:
    """Return whether a worker runs on the machine of a raylet: its actor is a child of the raylet."""
    return Path(f"/proc/{worker}").exists() and parent(parent(worker)) == raylet


def two_machines() -> tuple[Any, Any, str]:
    """Start a cluster; return it with its second machine and the address for clients."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=1, include_dashboard=False, ray_client_server_port=port)
        second = cluster.add_node(num_cpus=1)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
    except Exception:
        cluster.shutdown()
        raise
    return cluster, second, f"ray://127.0.0.1:{port}"


@pytest.fixture
def machines() -> Iterator[tuple[Any, Any, str]]:
    cluster, second, address = patiently(two_machines)
    yield cluster, second, address
    cluster.shutdown()


@pytest.mark.slow
async def test_a_job_survives_the_loss_of_a_machine(
    machines: tuple[Any, Any, str],
    site: Any,
    serving_at: Any,
    make_config: Callable[..., dict[str, object]],
    wait_until: Callable[[Callable[[], bool]], Any],
) -> None:
    cluster, lost, address = machines
    raylet = lost.all_processes["raylet"][0].process.pid
    for budget in (2_500, 250):
        (site.control / f"hold-adapt-{budget}").touch()
    configs = [
        make_config("half", FLOP="0.5x"),
        make_config("quarter", FLOP="0.25x"),
        make_config("small", num_of_params="0.5x"),
        make_config("tiny", num_of_params="0.25x"),
    ]

    def workers() -> dict[float, int]:
        return {min(task["budget"].values()): task["pid"] for task in site.tasks("adapt")}

    async with serving_at(site.settings(engine=address, slots=None)) as caller:
        job = await caller.submit(configs)
        await wait_until(lambda: {2_500, 250} <= workers().keys())
        (hit,) = (budget for budget, pid in workers().items() if budget in (2_500, 250) and on(raylet, pid))
        pid = workers()[hit]
        cluster.remove_node(lost, allow_graceful=False)
        await wait_until(lambda: not Path(f"/proc/{pid}").exists())
        for budget in (2_500, 250):
            (site.control / f"hold-adapt-{budget}").unlink()
        job = await caller.finished(job.id)
    assert job.state is JobState.DONE
    assert {goal.state for goal in job.goals} == {GoalState.MET}
    attempts = Counter(min(task["budget"].values()) for task in site.tasks("adapt"))
    assert attempts == {budget: 1 + (budget == hit) for budget in (5_000, 2_500, 500, 250)}
    assert len(site.tasks("source")) == 1


@pytest.mark.slow
async def test_the_command_ends_the_cluster_that_it_started(
    site: Any, call_at: Any, wait_until: Callable[[Callable[[], bool]], Any]
) -> None:
    ready = site.base / "ready"
    command = [
        "serve",
        "--store",
        site.store,
        "--listen",
        "127.0.0.1:0",
        "--ready-file",
        ready,
        "--engine",
        "ray",
    ]
    errors = site.base / "errors"
    with errors.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "mistify_server.cli", *map(str, command), stderr=file
        )
    with killed_at_the_end(process):
        await wait_until(ready.exists)
        caller = call_at(ready.read_text())
        assert (await caller.page(1)).jobs == []
        await caller.channel.close()
        children = [child.pid for child in psutil.Process(process.pid).children()]
        assert children
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    # Ray's own handler would print a stack trace, and abort if this takes long.
    assert "SIGTERM received" not in errors.read_text()
    await wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


@pytest.mark.parametrize(("failures", "joined"), [(2, True), (3, False)])
async def test_a_dropped_connection_to_the_cluster_is_retried(
    monkeypatch: pytest.MonkeyPatch, failures: int, joined: bool
) -> None:
    dropped: list[str] = []

    def init(**options: str) -> None:
        if len(dropped) < failures:
            dropped.append(options["address"])
            raise ConnectionAbortedError("Starting Ray client server failed.")

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 7.0})
    monkeypatch.setattr("ray.shutdown", lambda: None)
    if joined:
        async with connected("ray://head:10001") as cpus:
            assert cpus == 7
    else:
        with pytest.raises(MistifyError, match="Starting Ray client server failed"):
            async with connected("ray://head:10001"):
                pass
    assert dropped == ["ray://head:10001"] * failures


async def test_a_missing_cluster_is_reported(
    site: Any, serving_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_options: object) -> None:
        raise ConnectionError("ray client connection timeout")

    monkeypatch.setattr("ray.init", refuse)
    with pytest.raises(MistifyError, match="Ray at ray://nowhere:1 cannot be used: ray client") as raised:
        async with serving_at(site.settings(engine="ray://nowhere:1")):
            pass
    assert raised.value.code is ErrorCode.UNAVAILABLE


@pytest.mark.parametrize(
    "error",
    [
        grpc.RpcError("StatusCode.UNAVAILABLE"),
        ConnectionError("Client is not connected"),
        RuntimeError("Ray has not been started yet"),
        ValueError("Cannot invoke RPC on closed channel!"),
        RaySystemError("the GCS is gone"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_waiting_inspection_reports_a_lost_cluster(
    site: Any, inspect_task: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def lost() -> None:
        raise error

    monkeypatch.setattr("ray.available_resources", lost)
    engine = RayEngine(site.store, site.worker)
    with pytest.raises(MistifyError, match="the connection to the Ray cluster was lost") as raised:
        await engine.run(inspect_task(site), lambda progress: None)
    assert raised.value.code is ErrorCode.UNAVAILABLE
    await engine.close()
