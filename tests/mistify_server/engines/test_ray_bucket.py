"""A machine of a Ray cluster that shares no disk with the server: only the bucket with the artifacts."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mistify.jobs.job import GoalState
from mistify_server.store.objects.binding import Binding, binding_of
from mistify_server.tasks.messages import Order
from tests.support.buckets import LARGE, BucketServer, with_bucket

pytest.importorskip("ray", reason="Ray is not installed")

from mistify_server.engines.ray import _Host

SCRIPT = Path(__file__).parents[1] / "scripted_worker.py"


def host_at(store: Path, site: Any, binding: Binding | None) -> _Host:
    """Return the actor on a machine whose store has this path."""
    command = [sys.executable, str(SCRIPT), "--store", str(store), "--control", str(site.control)]
    return _Host(store, command, "0", {}, binding)


async def answer(host: _Host) -> Any:
    """Return the result of the only order."""
    while True:
        line, reason, _ = await host.receive()
        assert not reason
        message = json.loads(line)
        if message["kind"] == "answer":
            return message["result"]


async def test_a_worker_without_the_store_uses_its_bucket(
    site: Any, adapt_task: Any, bucket_server: BucketServer, tmp_path: Path
) -> None:
    artifacts = with_bucket(bucket_server.new_bucket(), site.store)
    task = adapt_task(site)
    artifacts.upload(task.parent)
    store = tmp_path / "machine" / "store"
    host = host_at(store, site, binding_of(site.store))
    try:
        assert await host.start() == ""
        await host.send(Order(ticket=1, task=task).model_dump_json().encode() + b"\n")
        result = await answer(host)
    finally:
        await host.kill()
    assert result["costs"] == {"flops": 50.0, "params": 100.0}
    assert json.loads(artifacts.intact(result["checkpoint"]).read_bytes()) == result["costs"]
    assert (store / "logs" / "0.log").exists()


async def test_a_job_on_a_cluster_uses_the_bucket(
    site: Any, bucket_server: BucketServer, make_config: Callable[..., object], serving_at: Any
) -> None:
    address = bucket_server.new_bucket()
    async with serving_at(site.settings(engine="ray", artifacts=address)) as caller:
        job = await caller.finished((await caller.submit([make_config("a", FLOP="0.5x")])).id)
        assert [goal.state for goal in job.goals] == [GoalState.MET]
        shutil.rmtree(site.store / "artifacts")
        network = await caller.fetch(job.id, "a", "serve.tflite")
    assert network in bucket_server.objects(address).values()


async def test_a_machine_that_lacks_a_shared_store_is_reported(site: Any, tmp_path: Path) -> None:
    store = tmp_path / "not-mounted"
    assert "could not be started" in await host_at(store, site, None).start()
    assert not store.exists()


async def test_a_machine_whose_disk_cannot_be_written_is_reported(site: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    binding = Binding(address="s3://models/mistify", owner="x", copies_bytes=LARGE)
    assert "cannot be used" in await host_at(tmp_path / "file" / "store", site, binding).start()
