"""Jobs that a server takes, also while it still waits for the store."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mistify.jobs.job import Goal, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify_server.engines.local import LocalEngine
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.store.changes import Submission
from mistify_server.store.directory import Store
from mistify_server.store.plans import BatchPlan
from tests.support.gates import held

GOALS = tuple(Goal(id=name, batch=0, spec=PackageSpec({"flops": 1.0})) for name in "ab")


@pytest.fixture
async def jobs(site: Any, store: Store, plan: BatchPlan) -> AsyncIterator[RunningJobs]:
    """Return the jobs of a server whose store has the job "j", which no server runs."""
    store.jobs.create(Submission(Job("j", JobState.QUEUED, GOALS, created_unix_ms=5), [plan], "[]", None))
    engine = LocalEngine(site.worker, store.logs)
    running = RunningJobs(store, engine)
    yield running
    await running.stop()
    await engine.close()


async def test_a_job_that_is_being_taken_is_not_started_again(store: Store, jobs: RunningJobs) -> None:
    with held(store.leases, "take") as gate:
        jobs.start("j")
        await asyncio.to_thread(gate.reached.wait)
        jobs.start("j")
        assert [task.get_name() for task in asyncio.all_tasks()].count("j") == 1
        gate.opened.set()
