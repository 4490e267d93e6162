from collections.abc import Callable
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs import GoalState, JobState
from mistify_server.store.base import CheckpointSaved
from mistify_server.store.sql import SqlJobStore

Config = Callable[..., dict[str, object]]


def break_store(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the store fail when a checkpoint is to be kept."""
    record = SqlJobStore.record

    def broken(self: SqlJobStore, job_id: str, changes: Any, seconds: float) -> None:
        changes = list(changes)
        if any(isinstance(change, CheckpointSaved) for change in changes):
            raise error
        record(self, job_id, changes, seconds)

    monkeypatch.setattr(SqlJobStore, "record", broken)


async def test_a_full_disk_stops_a_job_that_the_next_server_resumes(
    site: Any, make_config: Config, serving_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        break_store(patched, MistifyError(ErrorCode.UNAVAILABLE, "the disk is full"))
        async with serving_at(site.settings()) as caller:
            job = await caller.submit([make_config("a", FLOP="0.5x")])
            with pytest.raises(MistifyError, match="the disk is full") as raised:
                await caller.events(job.id)
            assert raised.value.code is ErrorCode.UNAVAILABLE
            assert (await caller.job(job.id)).state is JobState.RUNNING
    async with serving_at(site.settings()) as caller:
        assert (await caller.finished(job.id)).state is JobState.DONE


async def test_a_stopped_job_can_still_be_cancelled(
    site: Any, make_config: Config, serving_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_store(monkeypatch, MistifyError(ErrorCode.UNAVAILABLE, "the disk is full"))
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x")])
        with pytest.raises(MistifyError):
            await caller.events(job.id)
        assert (await caller.cancel(job.id)).state is JobState.CANCELLED


async def test_an_error_of_the_program_fails_the_job(
    caller: Any, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_store(monkeypatch, ZeroDivisionError("secret"))
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    job = await caller.finished(job.id)
    assert job.state is JobState.FAILED
    assert [goal.state for goal in job.goals] == [GoalState.FAILED]
    assert job.reason == "an error inside the server; its log has the details"
