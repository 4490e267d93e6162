import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState, ProgressUpdate
from mistify.v1 import porting_pb2 as pb
from mistify_server.engines.pooled_engine import PooledEngine
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.store.artifacts import artifacts_of
from mistify_server.store.changes import CheckpointSaved, GoalChanged, JobChanged
from mistify_server.store.sql.jobs import SqlJobStore

Config = Callable[..., dict[str, object]]


def break_store(monkeypatch: pytest.MonkeyPatch, error: Exception) -> threading.Event:
    """Make the store fail to save checkpoints until the returned event is set."""
    record, fixed = SqlJobStore.record, threading.Event()

    def broken(self: SqlJobStore, job_id: str, changes: Any, *time: Any) -> None:
        changes = list(changes)
        if not fixed.is_set() and any(isinstance(change, CheckpointSaved) for change in changes):
            raise error
        record(self, job_id, changes, *time)

    monkeypatch.setattr(SqlJobStore, "record", broken)
    return fixed


async def test_a_job_continues_when_the_store_can_be_written_again(
    site: Any,
    caller: Any,
    make_config: Config,
    wait_until: Any,
    *,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixed = break_store(monkeypatch, MistifyError(ErrorCode.UNAVAILABLE, "the disk is full"))
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    watching = asyncio.create_task(caller.events(job.id))
    await wait_until(lambda: "jobs are waiting for the store: the disk is full" in caplog.text)
    assert (await caller.job(job.id)).state is JobState.RUNNING
    fixed.set()
    assert (await watching)[-1].event is JobState.DONE
    assert len(site.tasks("adapt")) == 1


async def test_a_full_disk_at_a_worker_fails_no_goal(site: Any, make_config: Config, serving_at: Any) -> None:
    (site.control / "fill-adapt").write_text("1")
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.2x")])
        events = await caller.events(job.id)
        job = await caller.job(job.id)
    stages = [event.event.stage for event in events if isinstance(event.event, ProgressUpdate)]
    assert any("waiting: " in stage and "No space left" in stage for stage in stages)
    assert [goal.state for goal in job.goals] == [GoalState.MET, GoalState.MET]


async def test_a_job_that_waits_for_the_store_is_stopped_with_the_server(
    site: Any,
    make_config: Config,
    serving_at: Any,
    wait_until: Any,
    *,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixed = break_store(monkeypatch, MistifyError(ErrorCode.UNAVAILABLE, "the disk is full"))
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x")])
        await wait_until(lambda: "jobs are waiting for the store: " in caplog.text)
    fixed.set()
    async with serving_at(site.settings()) as caller:
        assert (await caller.finished(job.id)).state is JobState.DONE


async def test_a_job_that_waits_for_the_store_can_be_cancelled(
    caller: Any,
    make_config: Config,
    wait_until: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    break_store(monkeypatch, MistifyError(ErrorCode.UNAVAILABLE, "the disk is full"))
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await wait_until(lambda: "jobs are waiting for the store: " in caplog.text)
    assert (await caller.cancel(job.id)).state is JobState.CANCELLED


async def test_a_damaged_store_stops_a_job(
    site: Any, make_config: Config, serving_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_store(monkeypatch, MistifyError(ErrorCode.STORE_VERSION, "the store is damaged"))
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x")])
        with pytest.raises(MistifyError, match="the store is damaged"):
            await caller.events(job.id)
        assert (await caller.cancel(job.id)).state is JobState.CANCELLED


async def test_an_internal_error_fails_the_job(
    caller: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_store(monkeypatch, ZeroDivisionError("secret"))
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    job = await caller.finished(job.id)
    assert job.state is JobState.FAILED
    assert [goal.state for goal in job.goals] == [GoalState.FAILED]
    assert job.reason == "an internal error; see the server's log for details"


async def test_watchers_learn_that_a_job_cannot_even_be_ended(
    caller: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_store: SqlJobStore, *_: Any) -> Any:
        raise ZeroDivisionError("secret")

    break_store(monkeypatch, ZeroDivisionError("secret"))
    monkeypatch.setattr(SqlJobStore, "end", broken)
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    with pytest.raises(MistifyError, match="an internal error; see the server's log") as raised:
        await caller.events(job.id)
    assert raised.value.code is ErrorCode.INTERNAL


async def test_a_new_job_runs_from_its_plan_without_reading_the_store(
    caller: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_store: SqlJobStore, job_id: str) -> Any:
        raise MistifyError(ErrorCode.UNAVAILABLE, f"the plan of the job {job_id} was read")

    monkeypatch.setattr(SqlJobStore, "with_batches", broken)
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    assert (await caller.finished(job.id)).state is JobState.DONE


async def test_a_job_runs_even_if_its_caller_disconnects_during_submission(
    caller: Any, make_config: Config, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, begun, hung_up = SqlJobStore.create_all, threading.Event(), threading.Event()

    def slowly(store: SqlJobStore, *submission: Any) -> Any:
        begun.set()
        assert hung_up.wait(30)
        return create(store, *submission)

    monkeypatch.setattr(SqlJobStore, "create_all", slowly)
    call = asyncio.create_task(caller.submit([make_config("a", FLOP="0.5x")], key="again"))
    await wait_until(begun.is_set)
    call.cancel()
    await asyncio.wait([call])
    # Another call is answered after the first caller has given up.
    await caller.page(1)
    hung_up.set()
    job = await caller.submit([make_config("a", FLOP="0.5x")], key="again")
    assert (await caller.finished(job.id)).state is JobState.DONE


async def test_files_of_a_step_are_kept_for_its_later_tasks(
    caller: Any, site: Any, make_config: Config, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = await caller.submit([make_config("a", FLOP="0.8x")])
    await caller.finished(ended.id)
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("b", FLOP="0.5x")])
    await wait_until(lambda: len(site.tasks("adapt")) == 2)
    made = artifacts_of(site.store).put(b"by a task of the step that has ended", ".keras")
    monkeypatch.setattr(PooledEngine, "busy_since", inf)
    await caller.call(caller.stub.RemoveJob, pb.RemoveJobRequest(job_id=ended.id, now=True))
    assert artifacts_of(site.store).path(made).exists()
    (site.control / "hold-adapt").unlink()
    assert (await caller.finished(job.id)).state is JobState.DONE


async def test_adding_goals_reads_the_job_only_once(
    caller: Any, site: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    with_batches, read = SqlJobStore.with_batches, []

    def counted(store: SqlJobStore, job_id: str) -> Any:
        read.append(job_id)
        return with_batches(store, job_id)

    monkeypatch.setattr(SqlJobStore, "with_batches", counted)
    await caller.add(job.id, [make_config("b", FLOP="0.4x")])
    assert read == [job.id]


async def test_many_watchers_of_a_job_share_the_reads_of_its_events(
    caller: Any, site: Any, make_config: Config, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await wait_until(lambda: bool(site.tasks("adapt")))
    events, read = SqlJobStore.events, []

    def counted(store: SqlJobStore, job_id: str, after: int, most: int) -> Any:
        read.append(after)
        return events(store, job_id, after, most)

    monkeypatch.setattr(SqlJobStore, "events", counted)
    watching = [asyncio.create_task(caller.events(job.id)) for _ in range(100)]
    await wait_until(lambda: bool(read))
    (site.control / "hold-adapt").unlink()
    first, *others = await asyncio.gather(*watching)
    assert first[-1].event is JobState.DONE
    assert all(seen == first for seen in others)
    assert len(read) < len(watching)


async def test_a_job_restarted_as_it_ends_can_be_cancelled(
    caller: Any, site: Any, make_config: Config, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is restarted between the end of its task and the removal of the task's record."""
    wake_watchers = RunningJobs.wake_watchers

    def again(jobs: RunningJobs, job_id: str) -> None:
        (site.control / "hold-package").touch()
        store = jobs._store.jobs
        goal = replace(store.job(job_id).goals[0], state=GoalState.WAITING)
        store.record(job_id, [GoalChanged(goal), JobChanged(JobState.QUEUED)], 0.0, {})
        jobs.start(job_id)

    def wake_and_start(jobs: RunningJobs, job_id: str) -> None:
        wake_watchers(jobs, job_id)
        if jobs._store.jobs.job(job_id).state is JobState.DONE:
            asyncio.get_running_loop().call_soon(again, jobs, job_id)

    monkeypatch.setattr(RunningJobs, "wake_watchers", wake_and_start)
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await wait_until(lambda: len(site.tasks("package")) == 2)
    assert (await caller.cancel(job.id)).state is JobState.CANCELLED
    assert job.id not in {task.get_name() for task in asyncio.all_tasks()}
