"""Jobs with many goals: limits, pagination, and removal while the server runs."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState
from mistify.v1 import porting_pb2 as pb
from mistify_server.planning.snapshot import JobSnapshot
from mistify_server.store.artifacts import artifacts_of
from mistify_server.store.directory import open_store, serving

Config = Callable[..., dict[str, object]]


def many(make_config: Config, count: int, name: str = "g") -> list[dict[str, object]]:
    return [make_config(f"{name}{number}", FLOP=f"{0.9 - number / 1000}x") for number in range(count)]


async def refused(call: Any) -> str:
    with pytest.raises(MistifyError) as caught:
        await call
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return str(caught.value)


async def test_too_many_goals_are_refused_before_they_are_read(
    site: Any, make_config: Config, serving_at: Any
) -> None:
    async with serving_at(site.settings(max_goals=3)) as caller:
        too_many = [{"id": number} for number in range(4)]  # none of them is a valid config
        for call in (caller.submit(too_many), caller.plan(too_many)):
            message = await refused(call)
            assert "got 4 goals; expected at most 3 goals in a job" in message
            assert "--max-goals" in message
        assert site.tasks("inspect") == []
        job = await caller.submit(many(make_config, 2))
        message = await refused(caller.add(job.id, many(make_config, 2, "h")))
        assert "got 2 goals, added to a job with 2; expected at most 3" in message
        assert len((await caller.add(job.id, many(make_config, 1, "h"), key="k")).goals) == 3
        assert len((await caller.add(job.id, many(make_config, 1, "h"), key="k")).goals) == 3


async def test_responses_contain_the_requested_goals(caller: Any, make_config: Config) -> None:
    request = pb.SubmitBatchRequest(
        config_json=json.dumps(many(make_config, 3)), goals=pb.GoalSelection(page_size=2)
    )
    first = await caller.call(caller.stub.SubmitBatch, request)
    assert ([goal.id for goal in first.goals], first.goal_count) == (["g0", "g1"], 3)
    rest = pb.GoalSelection(page_size=2, page_token=first.next_page_token)
    second = await caller.call(caller.stub.GetJob, pb.GetJobRequest(job_id=first.id, goals=rest))
    assert ([goal.id for goal in second.goals], second.next_page_token) == (["g2"], "")
    await caller.finished(first.id)
    listed = await caller.call(caller.stub.ListJobs, pb.ListJobsRequest(goals=pb.GoalSelection()))
    assert [(job.id, len(job.goals), job.goals_met) for job in listed.jobs] == [(first.id, 0, 3)]
    (whole,) = (await caller.page(9)).jobs
    assert [goal.id for goal in whole.goals] == ["g0", "g1", "g2"]


async def test_removing_a_job_keeps_files_of_other_jobs(caller: Any, site: Any, make_config: Config) -> None:
    kept = await caller.submit([make_config("a", FLOP="0.5x")])
    await caller.finished(kept.id)
    gone = await caller.submit([make_config("b", FLOP="0.5x"), make_config("c", FLOP="0.3x")])
    await caller.finished(gone.id)
    before = set(artifacts_of(site.store).names())
    answer = await caller.call(caller.stub.RemoveJob, pb.RemoveJobRequest(job_id=gone.id, now=True))
    left = set(artifacts_of(site.store).names())
    assert left < before
    assert answer.freed_bytes > 0
    assert len(await caller.fetch(kept.id, "a", "serve.tflite")) > 0
    for call in (
        caller.job(gone.id),
        caller.call(caller.stub.RemoveJob, pb.RemoveJobRequest(job_id="no", now=True)),
    ):
        with pytest.raises(MistifyError) as caught:
            await call
        assert caught.value.code is ErrorCode.NOT_FOUND


async def test_a_running_job_is_not_removed(
    caller: Any, site: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await wait_until(lambda: bool(site.tasks("adapt")))
    request = pb.RemoveJobRequest(job_id=job.id, now=True)
    with pytest.raises(MistifyError, match="or cancel it") as caught:
        await caller.call(caller.stub.RemoveJob, request)
    assert caught.value.code is ErrorCode.CONFLICT
    for _ in range(2):
        assert (await caller.cancel(job.id)).state is JobState.CANCELLED
    await caller.call(caller.stub.RemoveJob, request)


async def test_files_that_a_running_task_may_have_made_are_kept(
    caller: Any, site: Any, make_config: Config, wait_until: Any
) -> None:
    ended = await caller.submit([make_config("a", FLOP="0.5x")])
    await caller.finished(ended.id)
    (site.control / "hold-adapt").touch()
    running = await caller.submit([make_config("b", FLOP="0.5x")])
    await wait_until(lambda: len(site.tasks("adapt")) == 2)
    fresh = artifacts_of(site.store).put(b"not mentioned yet", ".json")
    await caller.call(caller.stub.RemoveJob, pb.RemoveJobRequest(job_id=ended.id, now=True))
    assert fresh in artifacts_of(site.store).names()
    (site.control / "hold-adapt").unlink()
    job = await caller.finished(running.id)
    assert [goal.state for goal in job.goals] == [GoalState.MET]
    await caller.call(caller.stub.RemoveJob, pb.RemoveJobRequest(job_id=running.id, now=True))
    assert artifacts_of(site.store).names() == []


async def test_the_database_shrinks_even_if_it_was_made_by_an_older_version(
    site: Any, make_config: Config, serving_at: Any
) -> None:
    path = site.store / "mistify.db"
    with open_store(site.store):
        pass
    with closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA auto_vacuum = NONE")
        old.execute("VACUUM")
    async with serving_at(site.settings()) as caller:
        job = await caller.submit(many(make_config, 500))
        await caller.cancel(job.id)
        await caller.call(caller.stub.RemoveJob, pb.RemoveJobRequest(job_id=job.id, now=True))
        left = path.stat().st_size
        assert left < 600_000
    with serving(site.store), closing(sqlite3.connect(path)) as now:
        assert now.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert now.execute("PRAGMA freelist_count").fetchone() == (0,)


async def test_goals_are_planned_again_if_a_checkpoint_is_removed_meanwhile(
    caller: Any, site: Any, make_config: Config, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.control / "hold-adapt").touch()
    job = await caller.submit([make_config("a", num_of_params=13)])  # a budget that makes the worker fail
    await wait_until(lambda: bool(site.tasks("adapt")))
    insert, snapshots = JobSnapshot.insert, []

    def insert_late(self: JobSnapshot, *arguments: Any) -> Any:
        inserted = insert(self, *arguments)
        if not snapshots:
            (site.control / "hold-adapt").unlink()
            with open_store(site.store) as store:
                while not store.jobs.goal_states(job.id)[GoalState.FAILED]:
                    pass
        snapshots.append(self)
        return inserted

    monkeypatch.setattr(JobSnapshot, "insert", insert_late)
    await caller.add(job.id, [make_config("b", num_of_params=12)])
    job = await caller.finished(job.id)
    assert len(snapshots) == 2
    assert [(goal.id, goal.state, goal.parent) for goal in job.goals] == [
        ("a", GoalState.FAILED, None),
        ("b", GoalState.MET, None),
    ]
