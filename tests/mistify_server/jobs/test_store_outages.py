"""Stores that are temporarily not writable: jobs and watchers wait, and continue automatically."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mistify.jobs.job import GoalState, JobState
from tests.support.disks import files_limited_to

Config = Callable[..., dict[str, object]]


@contextmanager
def locked_by_another(store: Path) -> Iterator[None]:
    """Hold the write lock, like another process would."""
    connection = sqlite3.connect(store / "mistify.db", isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


@contextmanager
def full_disk(store: Path) -> Iterator[None]:
    """Prevent files of this process from growing beyond the current size of the database."""
    with files_limited_to((store / "mistify.db-wal").stat().st_size):
        yield


@pytest.mark.parametrize("outage", [locked_by_another, full_disk])
async def test_jobs_and_watchers_wait_for_the_store_and_continue(
    site: Any,
    caller: Any,
    make_config: Config,
    wait_until: Any,
    *,
    caplog: pytest.LogCaptureFixture,
    outage: Any,
) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.4x")])
    await wait_until(lambda: bool(site.tasks("adapt")))
    watching = [asyncio.create_task(caller.events(job.id)) for _ in range(3)]
    with outage(site.store):
        (site.control / "hold-adapt").unlink()
        await wait_until(lambda: "jobs are waiting for the store: " in caplog.text)
        assert (await caller.job(job.id)).state is JobState.RUNNING
        assert not any(watcher.done() for watcher in watching)
    for events in await asyncio.gather(*watching):
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert events[-1].event is JobState.DONE
    job = await caller.job(job.id)
    assert [goal.state for goal in job.goals] == [GoalState.MET, GoalState.MET]
    assert len(site.tasks("adapt")) == 2
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_job_that_waited_for_a_lock_can_be_cancelled_afterwards(
    site: Any, caller: Any, make_config: Config, wait_until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await wait_until(lambda: bool(site.tasks("adapt")))
    with locked_by_another(site.store):
        cancelling = asyncio.create_task(caller.cancel(job.id))
        await wait_until(lambda: "jobs are waiting for the store: " in caplog.text)
        assert not cancelling.done()
    assert (await cancelling).state is JobState.CANCELLED
    assert (await caller.events(job.id))[-1].event is JobState.CANCELLED
