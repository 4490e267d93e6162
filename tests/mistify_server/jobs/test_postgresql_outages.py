"""A PostgreSQL that is away or hangs in mid-job: jobs and watchers wait, and continue automatically."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.retry import Backoff, retried
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.server import running_server
from mistify_server.store.directory import open_store
from mistify_server.store.sql.postgresql.backend import PostgresBackend
from tests.support.gates import kept_off_event_loops
from tests.support.postgresql import Cluster, bound_to

Config = Callable[..., dict[str, object]]

TOKEN = "0123456789abcdef" * 4


async def numbers_of(web: httpx.AsyncClient, job_id: str, begun: asyncio.Event) -> list[int]:
    """Return the sequence numbers of a job's events over HTTP, until it ends; note the first one."""
    numbers = []
    async with web.stream("GET", f"/v1/jobs/{job_id}/events", timeout=None) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                numbers.append(int(line.removeprefix("id: ")))
                begun.set()
    return numbers


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
        begun = [asyncio.Event() for _ in range(3)]
        reading = [asyncio.create_task(numbers_of(web, job.id, each)) for each in begun]
        await asyncio.gather(*(each.wait() for each in begun))
        await asyncio.to_thread(cluster.stop, mode)
        try:
            (site.control / "hold-adapt").unlink()
            await wait_until(lambda: "jobs are waiting for the store: " in caplog.text)
            with pytest.raises(MistifyError, match="the server's database is not available") as raised:
                await caller.job(job.id)
            assert raised.value.code is ErrorCode.UNAVAILABLE
            assert (await web.get("/healthz")).status_code == 200
            assert (await web.get("/v1/jobs")).status_code == 503
            assert not any(watcher.done() for watcher in (*watching, *reading))
        finally:
            await asyncio.to_thread(cluster.start)
        for events in await asyncio.gather(*watching):
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert events[-1].event is JobState.DONE
        for numbers in await asyncio.gather(*reading):
            assert numbers == [event.sequence for event in events]
        job = await caller.job(job.id)
        assert [goal.state for goal in job.goals] == [GoalState.MET, GoalState.MET]
        assert len(site.tasks("adapt")) == 2
        await caller.channel.close()
    assert not [record for record in caplog.records if record.exc_info]
    assert 1 <= caplog.text.count("cannot be used: ") <= len(watching) + len(reading)
    assert "can be used again" in caplog.text


async def test_jobs_and_clients_survive_connections_that_are_ended_again_and_again(
    site: Any,
    cluster: Cluster,
    call_at: Any,
    make_config: Config,
    *,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each event that a watcher sees ends all connections, also those of the next submission."""
    configs = [[make_config(f"{name}-{share}", FLOP=f"{share}x") for share in (0.9, 0.8)] for name in "abc"]
    async with running_server(site.settings(database=cluster.new_database())) as (address, _):
        caller = call_at(address)
        with PortingClient(address) as client:

            def submitted(number: int) -> str:
                text = json.dumps(configs[number])
                return retried(lambda: client.submit(text, f"key-{number}"), Backoff(longest=0.5)).id

            for number in range(len(configs)):
                job_id, seen = await asyncio.to_thread(submitted, number), []
                submitting = asyncio.create_task(asyncio.to_thread(submitted, (number + 1) % len(configs)))
                async for event in caller.watch(job_id):
                    await asyncio.to_thread(cluster.end_connections)
                    seen.append(event)
                await submitting
                assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
                assert seen[-1].event is JobState.DONE
                met = [event.goal_id for event in seen if event.event is GoalState.MET]
                assert sorted(met) == sorted(str(config["id"]) for config in configs[number])
            assert len(await asyncio.to_thread(lambda: list(client.jobs()))) == len(configs)
        await caller.channel.close()
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_database_that_hangs_is_noticed_and_used_again(
    site: Any,
    cluster: Cluster,
    call_at: Any,
    make_config: Config,
    wait_until: Any,
    *,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("INFO")
    lock = "mistify_server.store.sql.postgresql.server_lock"
    monkeypatch.setattr(f"{lock}._CHECK_SECONDS", 0.1)
    (site.control / "hold-adapt").touch()
    database = cluster.new_database()
    bound_to(database, site.store)
    with open_store(site.store) as store:
        _, secret = create_token(store.tokens, "ci", [Scope.READ, Scope.SUBMIT, Scope.REPORT])
    sent = {"authorization": f"Bearer {secret}"}
    settings = site.settings(database=database, http="127.0.0.1:0", token=TOKEN)
    async with (
        running_server(settings) as (address, url),
        httpx.AsyncClient(base_url=url, timeout=60, headers=sent) as web,
    ):
        caller = call_at(address, secret)
        with kept_off_event_loops(PostgresBackend, "translated"):
            job = await caller.submit([make_config("a", FLOP="0.5x")])
            await wait_until(lambda: bool(site.tasks("adapt")))
            stream = caller.watch(job.id)
            events = [await anext(stream)]

            async def watch() -> None:
                events.extend([event async for event in stream])

            watching = asyncio.create_task(watch())
            assert (await web.get("/healthz")).json() == {"status": "ok"}
            # Short only for a database that cannot answer: one on a busy machine may take seconds.
            with cluster.frozen(), monkeypatch.context() as impatient:
                impatient.setattr(f"{lock}._ANSWER_SECONDS", 0.5)
                (site.control / "hold-adapt").unlink()
                calls = [asyncio.create_task(caller.job(job.id)) for _ in range(20)]
                assert (await web.get("/v1/jobs")).status_code == 503
                for failed in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(failed, MistifyError)
                    assert failed.code is ErrorCode.UNAVAILABLE
                health = await web.get("/healthz")
                assert (health.status_code, health.json()) == (200, {"status": "unhealthy"})
                assert (await web.get("/readyz")).status_code == 503
                assert not watching.done()
            await watching
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert events[-1].event is JobState.DONE
            assert (await caller.job(job.id)).goals[0].state is GoalState.MET
            assert (await web.get("/healthz")).json() == {"status": "ok"}
        await caller.channel.close()
    assert not [record for record in caplog.records if record.exc_info]
    assert "cannot be used: it has not answered for 0.5 seconds" in caplog.text
    assert "can be used again" in caplog.text
