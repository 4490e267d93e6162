"""Leases of jobs: the last server that has taken a job records its results, and no earlier one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, GoalState, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify_server.store.changes import GoalsFailed, JobChanged, Submission
from mistify_server.store.directory import Store, open_store
from mistify_server.store.leases import FIRST_FENCE, JobLease, LeaseLostError
from mistify_server.store.plans import BatchPlan

JOB = Job("j", JobState.QUEUED, (Goal(id="a", batch=0, spec=PackageSpec({"flops": 1.0})),), created_unix_ms=5)


@pytest.fixture
def other(directory: Path, store: Store) -> Iterator[Store]:
    """Return the same store, opened by another server."""
    with open_store(directory) as opened:
        yield opened


def test_results_of_a_server_are_refused_once_another_one_has_the_job(
    store: Store, other: Store, plan: BatchPlan
) -> None:
    store.jobs.create(Submission(JOB, [plan], "[]", None), owner=store.leases.server)
    first = JobLease("j", FIRST_FENCE)
    store.jobs.record("j", [JobChanged(JobState.RUNNING)], 1.0, {"training": 1.0}, first)
    second = other.leases.take("j")
    assert second is not None
    with pytest.raises(LeaseLostError) as raised:
        store.jobs.record("j", [GoalsFailed(["a"], "late")], 9.0, {"training": 9.0}, first)
    assert raised.value.code is ErrorCode.CONFLICT
    with pytest.raises(LeaseLostError):
        store.jobs.end("j", GoalState.FAILED, JobState.FAILED, "late", first)
    job = store.jobs.job("j")
    assert (job.state, job.seconds, job.spent) == (JobState.RUNNING, 1.0, {"training": 1.0})
    assert [event.event for event in store.jobs.events("j", 0, 9)] == [JobState.QUEUED, JobState.RUNNING]
    other.jobs.record("j", [JobChanged(JobState.DONE)], 2.0, {}, second)
    assert store.jobs.job("j").seconds == 2.0


def test_a_job_that_was_ended_has_no_leases(store: Store, other: Store, plan: BatchPlan) -> None:
    store.jobs.create(Submission(JOB, [plan], "[]", None))
    lease = store.leases.take("j")
    assert other.jobs.end("j", GoalState.CANCELLED, JobState.CANCELLED)
    with pytest.raises(LeaseLostError):
        store.jobs.record("j", [JobChanged(JobState.RUNNING)], 1.0, {}, lease)
    assert (store.leases.take("j"), other.leases.take("j")) == (None, None)
    with pytest.raises(MistifyError) as raised:
        store.leases.take("unknown")
    assert raised.value.code is ErrorCode.NOT_FOUND
