"""Leases of jobs: the last server that has taken a job records its results, and no earlier one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify_server.store.changes import Addition, GoalsFailed, JobChanged, Submission
from mistify_server.store.directory import Store, open_store
from mistify_server.store.leases import FIRST_FENCE, JobLease, LeaseLostError, UnknownGoalsError
from mistify_server.store.plans import BatchPlan
from mistify_server.store.sql.reading import job_of
from mistify_server.store.sql.schema import JobRow

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
        store.jobs.end("j", JobChanged(JobState.FAILED, "late"), first)
    job = store.jobs.job("j")
    assert (job.state, job.seconds, job.spent) == (JobState.RUNNING, 1.0, {"training": 1.0})
    assert [event.event for event in store.jobs.events("j", 0, 9)] == [JobState.QUEUED, JobState.RUNNING]
    other.jobs.record("j", [GoalsFailed(["a"], "in time"), JobChanged(JobState.DONE)], 2.0, {}, second)
    assert store.jobs.job("j").seconds == 2.0


def test_a_job_that_was_ended_has_no_leases(store: Store, other: Store, plan: BatchPlan) -> None:
    store.jobs.create(Submission(JOB, [plan], "[]", None))
    lease = store.leases.take("j")
    assert other.jobs.end("j", JobChanged(JobState.CANCELLED))
    with pytest.raises(LeaseLostError):
        store.jobs.record("j", [JobChanged(JobState.RUNNING)], 1.0, {}, lease)
    assert (store.leases.take("j"), other.leases.take("j")) == (None, None)
    with pytest.raises(MistifyError) as raised:
        store.leases.take("unknown")
    assert raised.value.code is ErrorCode.NOT_FOUND


def test_a_job_stays_with_a_server_until_its_lease_expires(
    store: Store, other: Store, plan: BatchPlan
) -> None:
    assert not store.leases.renew(600)
    assert other.leases.renew(0.2)
    store.jobs.create(Submission(JOB, [plan], "[]", None), owner=store.leases.server)
    assert [now.free for now in other.leases.situations([])] == [False]
    assert other.leases.take("j") is None
    store.leases.renew(0.0)
    assert [now.free for now in other.leases.situations([])] == [True]

    def taken() -> bool:  # by a server that has been in time for the length of a lease
        other.leases.renew(0.2)
        return other.leases.take("j") is not None

    while not taken():
        assert store.jobs.job("j").state is JobState.QUEUED


def test_the_jobs_of_a_server_that_leaves_are_free(store: Store, other: Store, plan: BatchPlan) -> None:
    store.leases.renew(600)
    other.leases.renew(600)
    store.jobs.create(Submission(JOB, [plan], "[]", None), owner=store.leases.server)
    assert other.leases.take("j") is None
    store.leases.leave()
    assert other.leases.take("j") is not None


def test_a_job_that_another_server_has_paused_is_not_begun(
    store: Store, other: Store, plan: BatchPlan
) -> None:
    """Its runner learns of the pause later."""
    store.jobs.create(Submission(JOB, [plan], "[]", None), owner=store.leases.server)
    assert other.jobs.set_paused("j", paused=True)
    store.jobs.record("j", [JobChanged(JobState.RUNNING)], 1.0, {}, JobLease("j", FIRST_FENCE))
    assert store.jobs.job("j").state is JobState.PAUSED
    assert [event.event for event in store.jobs.events("j", 0, 9)] == [JobState.QUEUED, JobState.PAUSED]


def test_a_job_with_goals_that_its_runner_does_not_know_cannot_end(store: Store, plan: BatchPlan) -> None:
    store.jobs.create(Submission(JOB, [plan], "[]", None))
    lease = store.leases.take("j")
    with pytest.raises(UnknownGoalsError):
        store.jobs.record("j", [JobChanged(JobState.DONE)], 1.0, {}, lease)
    assert store.jobs.job("j").state is JobState.QUEUED


def test_goals_are_not_added_to_a_job_that_others_have_extended(store: Store, plan: BatchPlan) -> None:
    store.jobs.create(Submission(JOB, [plan], "[]", None))
    added = replace(JOB.goals[0], id="b")
    assert not store.jobs.add_goals("j", Addition([added], [plan], "[]", None), planned_for=(2, 0))
    assert store.jobs.add_goals("j", Addition([added], [plan], "[]", None), planned_for=(1, 0))
    assert [goal.id for goal in store.jobs.job("j").goals] == ["a", "b"]


def test_a_job_and_its_plans_are_read_at_one_point_in_time(
    store: Store, other: Store, plan: BatchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server adds goals in the middle; a runner would not know the goals of its plans."""
    store.jobs.create(Submission(JOB, [plan], "[]", None))
    added = Addition(
        [replace(JOB.goals[0], id="b")], [plan.model_copy(update={"source_seconds": 9.0})], "[]", None
    )

    def then_added(session: Session, row: JobRow) -> Job:
        job = job_of(session, row)
        monkeypatch.undo()
        assert other.jobs.add_goals("j", added)
        return job

    monkeypatch.setattr("mistify_server.store.sql.jobs.job_of", then_added)
    before, after = store.jobs.with_batches("j"), store.jobs.with_batches("j")
    assert [[goal.id for goal in job.goals] for job, _ in (before, after)] == [["a"], ["a", "b"]]
    assert [[state.plan for state in states] for _, states in (before, after)] == [[plan], added.plans]


def test_the_situations_of_any_number_of_jobs_are_read_at_once(store: Store, plan: BatchPlan) -> None:
    """PostgreSQL takes 65,535 parameters."""
    store.jobs.create(Submission(JOB, [plan], "[]", None), owner=store.leases.server)
    (own,) = store.leases.situations(["j", *map(str, range(70_000))], unfinished=False)
    assert (own.job_id, own.goals, own.free) == ("j", 1, True)


def test_a_job_that_no_step_has_begun_may_be_taken_from_a_server_that_is_there(
    store: Store, other: Store, plan: BatchPlan
) -> None:
    assert not store.leases.renew(600)
    store.jobs.create(Submission(JOB, [plan], "[]", None), owner=store.leases.server)
    assert [(now.free, now.begun) for now in other.leases.situations([])] == [(False, False)]
    assert other.leases.take_unbegun("j")
    with pytest.raises(LeaseLostError):
        store.jobs.record("j", [JobChanged(JobState.RUNNING)], 1.0, {}, JobLease("j", FIRST_FENCE))
    lease = other.leases.take("j")
    other.leases.renew(600)
    other.jobs.record("j", [JobChanged(JobState.RUNNING)], 1.0, {}, lease)
    assert [(now.free, now.begun) for now in store.leases.situations([])] == [(False, True)]
    assert not store.leases.take_unbegun("j")
    other.jobs.end("j", JobChanged(JobState.CANCELLED), lease)
    assert not store.leases.take_unbegun("j")
