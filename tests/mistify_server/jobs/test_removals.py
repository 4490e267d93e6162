"""Jobs are removed from the lists at once, and with their files a day later."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, GoalState, Job, JobState, PackageFile
from mistify.jobs.package_spec import PackageSpec
from mistify.v1 import porting_pb2 as pb
from mistify_server.identity.callers import LOCAL
from mistify_server.jobs.removals import JobRemovals
from mistify_server.store.artifacts import digest_of
from mistify_server.store.changes import GoalChanged, JobChanged, Submission
from mistify_server.store.directory import Store, open_store
from mistify_server.store.objects.bucket import Bucket
from mistify_server.store.plans import BatchPlan
from mistify_server.store.removal import remove_ended
from tests.support.buckets import BucketServer, with_bucket
from tests.support.callers import called_by
from tests.support.stored import unfinished

Config = Callable[..., dict[str, object]]

START = datetime(2026, 11, 29, 12, tzinfo=UTC)


async def listed(caller: Any, *, removed: bool = False) -> list[str]:
    request = pb.ListJobsRequest(goals=pb.GoalSelection(), removed=removed)
    return [job.id for job in (await caller.call(caller.stub.ListJobs, request)).jobs]


async def remove(caller: Any, job: str) -> int:
    answer = await caller.call(caller.stub.RemoveJob, pb.RemoveJobRequest(job_id=job))
    assert answer.freed_bytes == 0
    return int(answer.undo_until_unix_ms)


async def restore(caller: Any, job: str) -> None:
    await caller.call(caller.stub.RestoreJob, pb.RestoreJobRequest(job_id=job))


async def test_a_removed_job_is_hidden_and_can_be_restored(caller: Any, make_config: Config) -> None:
    kept = await caller.submit([make_config("a", FLOP="0.5x")])
    gone = await caller.submit([make_config("a", FLOP="0.4x")])
    for job in (kept, gone):
        await caller.finished(job.id)
    until = await remove(caller, gone.id)
    assert (await listed(caller), await listed(caller, removed=True)) == ([kept.id], [gone.id])
    job = await caller.job(gone.id)
    assert job.removed_unix_ms + 86_400_000 == until
    assert await remove(caller, gone.id) >= until
    assert (await caller.job(gone.id)).removed_unix_ms == job.removed_unix_ms
    await restore(caller, gone.id)
    assert (await listed(caller), await listed(caller, removed=True)) == ([gone.id, kept.id], [])
    assert (await caller.job(gone.id)).removed_unix_ms is None
    assert len(await caller.fetch(gone.id, "a", "serve.tflite")) > 0


async def test_a_restart_changes_nothing(site: Any, make_config: Config, serving_at: Any) -> None:
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x")])
        await caller.finished(job.id)
        await remove(caller, job.id)
        before = await caller.job(job.id)
    async with serving_at(site.settings()) as caller:
        assert await listed(caller) == []
        assert await caller.job(job.id) == before
        await restore(caller, job.id)
        assert await listed(caller) == [job.id]


async def test_goals_are_not_added_to_a_removed_job(caller: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await caller.finished(job.id)
    await remove(caller, job.id)
    with pytest.raises(MistifyError, match="restore it before you add goals") as caught:
        await caller.add(job.id, [make_config("b", FLOP="0.4x")])
    assert caught.value.code is ErrorCode.CONFLICT
    await restore(caller, job.id)
    assert len((await caller.add(job.id, [make_config("b", FLOP="0.4x")])).goals) == 2


async def test_a_repeated_submission_restores_its_job(caller: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x")], key="k")
    await caller.finished(job.id)
    await remove(caller, job.id)
    again = await caller.submit([make_config("a", FLOP="0.5x")], key="k")
    assert (again.id, again.removed_unix_ms) == (job.id, None)


async def test_an_unfinished_or_unknown_job_is_not_hidden(
    caller: Any, site: Any, make_config: Config
) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    for job_id, code in ((job.id, ErrorCode.CONFLICT), ("none", ErrorCode.NOT_FOUND)):
        with pytest.raises(MistifyError) as caught:
            await remove(caller, job_id)
        assert caught.value.code is code
    assert await listed(caller) == [job.id]
    with pytest.raises(MistifyError) as caught:
        await restore(caller, "none")
    assert caught.value.code is ErrorCode.NOT_FOUND


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def finished(store: Store, job_id: str, plan: BatchPlan) -> str:
    """Store a finished job with a package, and return the artifact of its file."""
    artifact = store.artifacts.put(job_id.encode(), ".tflite")
    goal = Goal("a", 0, PackageSpec({"flops": 1.0}), state=GoalState.MET)
    job = Job(job_id, JobState.QUEUED, (goal,), created_unix_ms=0)
    store.jobs.create(Submission(job, [plan], "[]", None))
    file = PackageFile("serve.tflite", 1, digest_of(artifact))
    changed = Goal("a", 0, goal.spec, state=GoalState.MET, files=(file,))
    store.jobs.record(job_id, [GoalChanged(changed), JobChanged(JobState.DONE)], 1.0, {})
    return artifact


async def test_files_are_removed_after_a_day(store: Store, plan: BatchPlan) -> None:
    clock, idle = Clock(), SimpleNamespace(busy_since=inf)
    removals = JobRemovals(store, idle, idle, clock)  # type: ignore[arg-type]
    artifacts = {name: finished(store, name, plan) for name in ("first", "second", "restored", "kept")}
    with called_by(LOCAL):
        for name in ("first", "restored"):
            until = await removals.hide(name)
        clock.now += timedelta(hours=1)
        assert await removals.hide("first") == until, "another request does not postpone it"
        await removals.hide("second")
        await removals.restore("restored")
    clock.now = START + timedelta(days=1)
    await removals.remove_due()
    assert set(store.artifacts.names()) == set(artifacts.values())
    clock.now += timedelta(seconds=1)
    await removals.remove_due()
    assert set(store.artifacts.names()) == {artifacts[name] for name in ("second", "restored", "kept")}
    with pytest.raises(MistifyError) as caught:
        store.jobs.job("first")
    assert caught.value.code is ErrorCode.NOT_FOUND
    clock.now += timedelta(hours=2)
    await removals.remove_due()
    assert set(store.artifacts.names()) == {artifacts[name] for name in ("restored", "kept")}


async def test_files_are_removed_although_the_first_attempt_failed(
    store: Store,
    plan: BatchPlan,
    wait_until: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    finished(store, "j", plan)
    store.jobs.hide("j", 1_000)
    failures = [ZeroDivisionError()]

    def failing_at_first(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return remove_ended(*arguments)

    monkeypatch.setattr("mistify_server.jobs.removals.remove_ended", failing_at_first)
    monkeypatch.setattr("mistify_server.jobs.removals._INTERVAL_SECONDS", 0.01)
    idle = SimpleNamespace(busy_since=inf)
    removing = asyncio.create_task(JobRemovals(store, idle, idle).keep_removing())  # type: ignore[arg-type]
    await wait_until(lambda: removing.done() or store.jobs.hidden(1_001) == [])
    assert removing.cancel(), "it goes on"
    assert "could not be removed because of an internal error" in caplog.text


async def test_the_bucket_is_listed_once_for_all_jobs(
    tmp_path: Path, bucket_server: BucketServer, plan: BatchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def listing(bucket: Bucket, start: str = "", _all: Any = Bucket.all) -> Any:
        listed.append(start)
        return _all(bucket, start)

    monkeypatch.setattr(Bucket, "all", listing)
    with_bucket(bucket_server.new_bucket(), tmp_path)
    with open_store(tmp_path) as store:
        clock, idle = Clock(), SimpleNamespace(busy_since=inf)
        removals = JobRemovals(store, idle, idle, clock)  # type: ignore[arg-type]
        for name in ("first", "second", "third"):
            finished(store, name, plan)
            store.jobs.hide(name, int(clock.now.timestamp() * 1000))
        clock.now += timedelta(days=2)
        await removals.remove_due()
        assert store.jobs.hidden(int(clock.now.timestamp() * 1000)) == []
    assert len(listed) == len(set(listed)) > 0


def test_a_job_that_was_restored_in_the_meantime_is_kept(store: Store, plan: BatchPlan) -> None:
    finished(store, "j", plan)
    for hidden_at in (None, 1_000):
        if hidden_at is not None:
            store.jobs.hide("j", hidden_at)
        with pytest.raises(MistifyError, match="was restored") as caught:
            store.jobs.remove("j", hidden_before_ms=1_000)
        assert caught.value.code is ErrorCode.CONFLICT
    store.jobs.remove("j", hidden_before_ms=1_001)
    assert unfinished(store) == []
