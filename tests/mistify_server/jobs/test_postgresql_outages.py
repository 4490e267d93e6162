"""A PostgreSQL that is away for some time in mid-job: jobs and watchers wait, and continue automatically."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState
from mistify_server.server import running_server
from tests.support.postgresql import Cluster

Config = Callable[..., dict[str, object]]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_jobs_and_watchers_wait_for_the_database_and_continue(
    site: Any,
    cluster: Cluster,
    call_at: Any,
    make_config: Config,
    wait_until: Any,
    *,
    caplog: pytest.LogCaptureFixture,
    mode: str,
) -> None:
    caplog.set_level("INFO")
    (site.control / "hold-adapt").touch()
    settings = site.settings(database=cluster.new_database(), http="127.0.0.1:0")
    async with running_server(settings) as (address, url), httpx.AsyncClient(base_url=url, timeout=60) as web:
        caller = call_at(address)
        job = await caller.submit([make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.4x")])
        await wait_until(lambda: bool(site.tasks("adapt")))
        watching = [asyncio.create_task(caller.events(job.id)) for _ in range(3)]
        await asyncio.to_thread(cluster.stop, mode)
        try:
            (site.control / "hold-adapt").unlink()
            await wait_until(lambda: "jobs are waiting for the store: " in caplog.text)
            with pytest.raises(MistifyError, match="the server's database is not available") as raised:
                await caller.job(job.id)
            assert raised.value.code is ErrorCode.UNAVAILABLE
            assert (await web.get("/healthz")).status_code == 200
            assert (await web.get("/v1/jobs")).status_code == 503
            assert not any(watcher.done() for watcher in watching)
        finally:
            await asyncio.to_thread(cluster.start)
        for events in await asyncio.gather(*watching):
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert events[-1].event is JobState.DONE
        job = await caller.job(job.id)
        assert [goal.state for goal in job.goals] == [GoalState.MET, GoalState.MET]
        assert len(site.tasks("adapt")) == 2
        await caller.channel.close()
    assert not [record for record in caplog.records if record.exc_info]
    assert 1 <= caplog.text.count("cannot be used: ") <= len(watching)
    assert "can be used again" in caplog.text
