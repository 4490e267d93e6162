"""A bucket that is away for some time in mid-job: jobs wait, and continue automatically."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState
from mistify_server.server import running_server
from tests.support.buckets import BucketServer

Config = Callable[..., dict[str, object]]


@pytest.mark.parametrize("outage", [BucketServer.away, BucketServer.refusing])
async def test_jobs_wait_for_the_bucket_and_continue(
    outage: Callable[[BucketServer], AbstractContextManager[None]],
    site: Any,
    bucket_server: BucketServer,
    make_config: Config,
    serving_at: Any,
    *,
    wait_until: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (site.control / "hold-adapt").touch()
    settings = site.settings(artifacts=bucket_server.new_bucket())
    async with serving_at(settings) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.4x")])
        await wait_until(lambda: bool(site.tasks("adapt")))
        with outage(bucket_server):
            (site.control / "hold-adapt").unlink()
            await wait_until(lambda: "a step is waiting and will be retried: " in caplog.text)
            assert (await caller.job(job.id)).state is JobState.RUNNING
        job = await caller.finished(job.id)
        assert [goal.state for goal in job.goals] == [GoalState.MET, GoalState.MET]
        network = await caller.fetch(job.id, "a", "serve.tflite")
        assert len(network) in {file.size for file in job.goals[0].files if file.name == "serve.tflite"}
    assert "the bucket with the server's artifacts " in caplog.text


async def test_only_what_needs_the_bucket_waits_for_one_that_is_slow(
    site: Any,
    bucket_server: BucketServer,
    make_config: Config,
    call_at: Any,
    wait_until: Any,
    *,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (site.control / "hold-adapt").touch()
    settings = site.settings(artifacts=bucket_server.new_bucket(), http="127.0.0.1:0")
    async with running_server(settings) as (address, url), httpx.AsyncClient(base_url=url, timeout=60) as web:
        caller = call_at(address)
        job = await caller.submit([make_config("a", FLOP="0.5x")])
        await wait_until(lambda: bool(site.tasks("adapt")))
        watching = asyncio.create_task(caller.events(job.id))
        with bucket_server.relay.held():
            (site.control / "hold-adapt").unlink()
            assert await asyncio.to_thread(bucket_server.relay.holds.wait, 60)  # the result of the step
            assert (await web.get("/healthz")).status_code == 200
            assert (await caller.job(job.id)).state is JobState.RUNNING
            other = await caller.submit([make_config("b", FLOP="0.4x")])
            assert not watching.done()
        events = await watching
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert events[-1].event is JobState.DONE
        assert (await caller.finished(other.id)).state is JobState.DONE
        assert len(site.tasks("adapt")) == 2
        for copy in site.store.glob("artifacts/??/*.tflite"):
            copy.unlink()
        bucket_server.relay.holds.clear()
        with bucket_server.relay.held():
            fetching = asyncio.create_task(caller.fetch(job.id, "a", "serve.tflite"))
            assert await asyncio.to_thread(bucket_server.relay.holds.wait, 60)
            assert (await web.get("/healthz")).status_code == 200
            assert (await caller.job(job.id)).state is JobState.DONE
            assert not fetching.done()
        assert await fetching
        await caller.channel.close()
    assert not [record for record in caplog.records if record.exc_info]


async def test_packages_that_cannot_be_fetched_are_reported_as_unavailable(
    site: Any, bucket_server: BucketServer, make_config: Config, serving_at: Any
) -> None:
    async with serving_at(site.settings(artifacts=bucket_server.new_bucket())) as caller:
        job = await caller.finished((await caller.submit([make_config("a", FLOP="0.5x")])).id)
        for copy in site.store.glob("artifacts/??/*.tflite"):
            copy.unlink()
        with bucket_server.away(), pytest.raises(MistifyError, match="check the network") as raised:
            await caller.fetch(job.id, "a", "serve.tflite")
        assert raised.value.code is ErrorCode.UNAVAILABLE
        assert await caller.fetch(job.id, "a", "serve.tflite")


async def test_a_server_does_not_start_without_its_bucket(
    site: Any, bucket_server: BucketServer, serving_at: Any
) -> None:
    address = bucket_server.new_bucket()
    with bucket_server.away(), pytest.raises(MistifyError, match=f"the bucket of {address}") as raised:
        async with asyncio.timeout(60), serving_at(site.settings(artifacts=address)):
            pass
    assert raised.value.code is ErrorCode.UNAVAILABLE
    async with serving_at(site.settings(artifacts=address)):
        pass
