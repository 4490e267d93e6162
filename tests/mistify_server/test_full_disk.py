"""A store on a disk that is really full: calls are refused and steps wait, until there is space."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState, ProgressUpdate
from mistify.uploads import FileDigest
from mistify_client.rpc.files import FilesClient
from mistify_client.rpc.retry import Backoff
from mistify_server.server import running_server
from tests.support.disks import full, small_disk

Config = Callable[..., dict[str, object]]

#: Size of the disk in bytes: enough for a few jobs.
SIZE = 48_000_000


@dataclass(frozen=True)
class Callers:
    grpc: Any
    web: httpx.AsyncClient
    log: pytest.LogCaptureFixture


@pytest.fixture
def disk(site: Any) -> Iterator[Path]:
    """Return the directory of the store, which is on a small disk of its own."""
    with small_disk(site.store, SIZE):
        yield site.store


@pytest.fixture
async def callers(
    site: Any, disk: Path, call_at: Any, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Callers]:
    async with (
        running_server(site.settings(http="127.0.0.1:0")) as (address, url),
        httpx.AsyncClient(base_url=str(url), timeout=60) as web,
    ):
        caller = call_at(address)
        yield Callers(caller, web, caplog)
        await caller.channel.close()
    assert not [record for record in caplog.records if record.exc_info]


async def test_submissions_are_refused_until_there_is_space(
    disk: Path, callers: Callers, make_config: Config
) -> None:
    before = await callers.grpc.finished((await callers.grpc.submit([make_config("a", FLOP="0.5x")])).id)
    configs = [make_config("b", FLOP="0.4x")]
    await callers.grpc.plan(configs)
    with full(disk):
        for _ in range(2):
            with pytest.raises(MistifyError, match="is on a full disk; free space") as raised:
                await callers.grpc.submit(configs, key="k")
            assert raised.value.code is ErrorCode.UNAVAILABLE
        answer = await callers.web.post("/v1/jobs", json=configs)
        assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
        assert (await callers.web.get("/healthz")).status_code == 200
        assert await callers.grpc.job(before.id) == before
        assert [each["job"]["id"] for each in (await callers.web.get("/v1/jobs")).json()["jobs"]] == [
            before.id
        ]
    job = await callers.grpc.submit(configs, key="k")
    assert (await callers.grpc.finished(job.id)).state is JobState.DONE


async def test_an_upload_is_refused_and_resumed_once_there_is_space(disk: Path, callers: Callers) -> None:
    content = os.urandom(3_000_000)
    (disk.parent / "model").write_bytes(content)
    file = FileDigest(hashlib.sha256(content).hexdigest(), len(content))
    with FilesClient(callers.grpc.address, backoff=Backoff(attempts=0)) as impatient:
        with full(disk), pytest.raises(MistifyError, match="cannot be written") as raised:
            await asyncio.to_thread(impatient.send, {file: disk.parent / "model"})
        assert raised.value.code is ErrorCode.UNAVAILABLE
        await asyncio.to_thread(impatient.send, {file: disk.parent / "model"})
        assert not await asyncio.to_thread(lambda: list(impatient.missing([file])))
    (kept,) = (disk / "uploads" / "files").glob("??/*")
    assert kept.read_bytes() == content


@pytest.mark.parametrize("kind", ["package", "adapt"])
async def test_a_step_whose_result_does_not_fit_waits_until_there_is_space(
    site: Any, disk: Path, callers: Callers, make_config: Config, wait_until: Any, *, kind: str
) -> None:
    (site.control / f"hold-{kind}").touch()
    job = await callers.grpc.submit([make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.4x")])
    await wait_until(lambda: bool(site.tasks(kind)))
    watching = asyncio.create_task(callers.grpc.events(job.id))
    with full(disk):
        (site.control / f"hold-{kind}").unlink()
        await wait_until(lambda: "is on a full disk; free space" in callers.log.text)
        assert (await callers.grpc.job(job.id)).state is JobState.RUNNING
        assert (await callers.web.get("/healthz")).status_code == 200
    events = await watching
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    stages = [event.event.stage for event in events if isinstance(event.event, ProgressUpdate)]
    assert any(stage.startswith("waiting: ") and "No space left on device" in stage for stage in stages)
    job = await callers.grpc.job(job.id)
    assert (job.state, [goal.state for goal in job.goals]) == (JobState.DONE, [GoalState.MET] * 2)
    for goal in job.goals:
        for packaged in goal.files:
            answer = await callers.web.get(f"/v1/jobs/{job.id}/goals/{goal.id}/files/{packaged.name}")
            assert hashlib.sha256(answer.content).hexdigest() == packaged.sha256
