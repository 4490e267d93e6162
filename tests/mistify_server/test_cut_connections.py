"""Connections that are cut at random bytes, and a server that is killed and restarted under watchers."""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mistify.jobs.job import GoalState, Job, JobEvent, JobState
from mistify.uploads import FileDigest
from mistify_client.rpc.files import FilesClient
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.retry import Backoff, retried
from tests.support.relay import Relay, relay
from tests.support.servers import killed_at_the_end

Config = Callable[..., dict[str, object]]
HERE = Path(__file__).parent
SHARES = (0.9, 0.8, 0.7)
WATCHERS = 5

#: Waits for minutes, as servers may take long to start.
BACKOFF = Backoff(longest=2.0, attempts=200)


@asynccontextmanager
async def server(site: Any) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    command = [sys.executable, str(HERE / "scripted_server.py"), "--store", str(site.store)]
    process = await asyncio.create_subprocess_exec(
        *(*command, "--root", str(site.root), "--", *site.worker), stdout=asyncio.subprocess.PIPE
    )
    with killed_at_the_end(process):
        assert process.stdout is not None
        yield (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip(), process
    await process.wait()


@pytest.fixture
def configs(make_config: Config) -> str:
    return json.dumps([make_config(f"at-{share}", FLOP=f"{share}x") for share in SHARES])


def submitted(address: str, configs: str) -> Job:
    with PortingClient(address, backoff=BACKOFF) as client:
        return retried(lambda: client.submit(configs, "key"), BACKOFF)


def watched(address: str, job_id: str) -> list[JobEvent]:
    with PortingClient(address, backoff=BACKOFF) as client:
        return list(client.watch(job_id))


def check_complete(events: list[JobEvent], job: Job) -> None:
    """Check that a job has ended with every result once, and its events without gaps."""
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert (job.state, events[-1].event) == (JobState.DONE, JobState.DONE)
    met = [event.goal_id for event in events if event.event is GoalState.MET]
    assert sorted(met) == sorted(goal.id for goal in job.goals)


def sizes(rng: np.random.Generator, most: int) -> Iterator[int]:
    """Yield numbers of bytes, small ones as often as large ones."""
    while True:
        yield int(most ** rng.uniform(0.4, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_transfers_and_events_are_complete_although_connections_are_cut_at_random_bytes(
    site: Any, configs: str, tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    content = os.urandom(2_000_000)
    (tmp_path / "data.npz").write_bytes(content)
    file = FileDigest(hashlib.sha256(content).hexdigest(), len(content))

    def call_through(between: Relay, most: int, call: Callable[[], Any]) -> Any:
        """Return the result of a call whose connections are cut several times."""
        before, counts = between.cuts, [size for _, size in zip(range(4), sizes(rng, most), strict=False)]
        between.cut_after(*counts, both_ways=True)
        result = call()
        assert between.cuts > before
        between.cut_after()
        return result

    def port(between: Relay) -> tuple[Job, list[JobEvent]]:
        place = between.address
        with FilesClient(place, backoff=BACKOFF) as files, PortingClient(place, backoff=BACKOFF) as client:
            call_through(between, len(content) // 4, lambda: files.send({file: tmp_path / "data.npz"}))
            job = call_through(between, 1_000, lambda: submitted(place, configs))
            events = call_through(between, 1_000, lambda: list(client.watch(job.id)))
            for goal in job.goals:
                fetch = lambda goal=goal: client.fetch(job.id, goal.id, tmp_path / goal.id)  # noqa: E731
                call_through(between, 200_000, fetch)
            return client.job(job.id), events

    async with server(site) as (address, _):
        with relay(address) as between:
            job, events = await asyncio.to_thread(port, between)
        check_complete(events, job)
        assert await asyncio.to_thread(watched, address, job.id) == events
        with PortingClient(address) as client:
            assert [part.job.id for part in await asyncio.to_thread(lambda: list(client.jobs()))] == [job.id]
    (kept,) = (site.store / "uploads" / "files").glob("??/*")
    assert kept.read_bytes() == content
    for goal in job.goals:
        fetched = {path.name: path.read_bytes() for path in (tmp_path / goal.id).iterdir()}
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in fetched.items()}
        assert digests == {packaged.name: packaged.sha256 for packaged in goal.files}


async def test_watchers_see_every_event_once_although_the_server_is_killed(
    site: Any, configs: str, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    with relay("127.0.0.1:1") as between:
        async with server(site) as (address, process):
            between.lead_to(address)
            job = await asyncio.to_thread(submitted, between.address, configs)
            watching = [
                asyncio.create_task(asyncio.to_thread(watched, between.address, job.id))
                for _ in range(WATCHERS)
            ]
            await wait_until(lambda: bool(site.tasks("adapt")))
            process.kill()
            await process.wait()
        (site.control / "hold-adapt").unlink()
        async with server(site) as (address, _):
            between.lead_to(address)
            for events in await asyncio.gather(*watching):
                check_complete(events, await asyncio.to_thread(lambda: PortingClient(address).job(job.id)))
            assert (await asyncio.to_thread(submitted, between.address, configs)).id == job.id
