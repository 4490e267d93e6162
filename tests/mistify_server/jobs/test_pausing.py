"""A paused job starts no steps, stays paused, and has the same results as any other once it is resumed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mistify.jobs.job import GoalState, Job, JobState
from mistify.v1 import porting_pb2 as pb
from mistify.wire import porting
from tests.mistify_server.outcomes import goals

Config = Callable[..., dict[str, object]]

SHARES = (0.8, 0.5, 0.3)


async def pause(caller: Any, job: Job) -> Job:
    request = pb.PauseJobRequest(job_id=job.id)
    return porting.job_from_proto(await caller.call(caller.stub.PauseJob, request))


async def resume(caller: Any, job: Job) -> Job:
    request = pb.ResumeJobRequest(job_id=job.id)
    return porting.job_from_proto(await caller.call(caller.stub.ResumeJob, request))


def configs(make_config: Config, prefix: str = "at") -> list[dict[str, object]]:
    return [make_config(f"{prefix}-{share}", FLOP=f"{share}x") for share in SHARES]


def asked(site: Any, kind: str) -> list[dict[str, Any]]:
    """Return the tasks of workers, without what differs between jobs and workers."""
    tasks = site.tasks(kind)
    return [{name: value for name, value in task.items() if name not in ("pid", "job_id")} for task in tasks]


async def job_states(caller: Any, job: Job) -> list[JobState]:
    """Return the states that the job has been in."""
    events = [event.event async for event in caller.watch(job.id, so_far=True)]
    return [event for event in events if isinstance(event, JobState)]


async def test_a_paused_job_ends_its_step_and_then_has_the_results_of_an_undisturbed_one(
    caller: Any, site: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-adapt-8000").touch()
    job = await caller.submit(configs(make_config))
    await wait_until(lambda: bool(site.tasks("adapt")))
    watching = asyncio.create_task(caller.events(job.id))
    assert (await pause(caller, job)).state is JobState.PAUSED
    assert (await pause(caller, job)).state is JobState.PAUSED
    (site.control / "hold-adapt-8000").unlink()
    other = await caller.submit(configs(make_config))
    other = await caller.finished(other.id)  # on the only worker
    assert len(asked(site, "adapt")) == 1 + len(SHARES)
    assert len(asked(site, "package")) == len(SHARES)
    assert (await caller.job(job.id)).state is JobState.PAUSED
    assert not watching.done()
    assert (await resume(caller, job)).state is JobState.RUNNING
    assert [event.sequence for event in await watching] == list(range(1, len(await watching) + 1))
    job = await caller.job(job.id)
    assert await job_states(caller, job) == [
        JobState.QUEUED,
        JobState.RUNNING,
        JobState.PAUSED,
        JobState.RUNNING,
        JobState.DONE,
    ]
    first, *rest = asked(site, "adapt")
    assert [first, *rest[len(SHARES) :]] == rest[: len(SHARES)]
    packaged = asked(site, "package")
    assert packaged[: len(SHARES)] == packaged[len(SHARES) :]
    for goal, undisturbed in zip(job.goals, other.goals, strict=True):
        digests = [{file.name: file.sha256 for file in each.files} for each in (goal, undisturbed)]
        assert digests[0]["serve.tflite"] == digests[1]["serve.tflite"]


async def test_a_job_stays_paused_under_the_next_server(
    site: Any, serving_at: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    async with serving_at(site.settings()) as first:
        job = await first.submit(configs(make_config))
        await wait_until(lambda: bool(site.tasks("adapt")))
        await pause(first, job)
    (site.control / "hold-adapt").unlink()
    async with serving_at(site.settings()) as second:
        other = await second.submit([make_config("other", FLOP="0.4x")])
        assert (await second.finished(other.id)).state is JobState.DONE
        assert (await second.job(job.id)).state is JobState.PAUSED
        assert len(asked(site, "adapt")) == 1 + 1
        await resume(second, job)
        job = await second.finished(job.id)
        assert (await job_states(second, job))[-3:] == [JobState.PAUSED, JobState.RUNNING, JobState.DONE]
    assert set(goals(job).values()) == {GoalState.MET}


async def test_a_step_ends_between_its_tasks(
    caller: Any, site: Any, make_config: Config, wait_until: Any
) -> None:
    """The branches of a package are stored, and the package itself is not begun."""
    (site.control / "hold-branch").touch()
    job = await caller.submit([{**make_config("half", FLOP="0.5x"), "branches": {"count": 3}}])
    await wait_until(lambda: bool(site.tasks("branch")))
    await pause(caller, job)
    (site.control / "hold-branch").unlink()
    other = await caller.submit([make_config("other", FLOP="0.4x")])
    await caller.finished(other.id)
    assert [task["goal_id"] for task in asked(site, "package")] == ["other"]
    await resume(caller, job)
    assert (await caller.finished(job.id)).state is JobState.DONE
    assert len(site.tasks("branch")) == 1


async def test_a_paused_job_takes_goals_and_can_be_cancelled(
    caller: Any, site: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-source").touch()
    job = await caller.submit(configs(make_config))
    await wait_until(lambda: bool(site.tasks("source")))
    await pause(caller, job)
    added = await caller.add(job.id, [make_config("late", FLOP="0.2x")])
    assert (added.state, len(added.goals)) == (JobState.PAUSED, 4)
    (site.control / "hold-source").unlink()
    cancelled = await caller.cancel(job.id)
    assert cancelled.state is JobState.CANCELLED
    assert set(goals(cancelled).values()) == {GoalState.CANCELLED}
    assert await resume(caller, job) == await pause(caller, job) == cancelled


async def test_a_finished_job_is_not_paused(caller: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    await caller.finished(job.id)
    assert (await pause(caller, job)).state is JobState.DONE
    assert (await job_states(caller, job))[-1] is JobState.DONE


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_job_paused_as_it_is_submitted_begins_only_when_it_is_resumed(
    site: Any, serving_at: Any, make_config: Config, slots: int
) -> None:
    (site.control / "hold-source").touch()
    async with serving_at(site.settings(slots=slots)) as caller:
        busy = [await caller.submit([make_config("a", FLOP="0.5x")]) for _ in range(slots)]
        job = await caller.submit(configs(make_config))
        await pause(caller, job)
        (site.control / "hold-source").unlink()
        for other in busy:
            await caller.finished(other.id)
        assert len(asked(site, "source")) == slots
        await resume(caller, job)
        assert (await caller.finished(job.id)).state is JobState.DONE


async def test_a_step_that_waits_for_room_lets_other_jobs_go_on_and_can_be_paused(
    caller: Any, site: Any, make_config: Config, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data of a single job may be too large for the disk of the only worker."""
    monkeypatch.setattr("mistify_server.jobs.store_writer._FIRST", 0.01)
    (site.control / "fill-adapt-8000").write_text("1000000")
    job = await caller.submit([make_config("large", FLOP="0.8x")])
    await wait_until(lambda: len(site.tasks("adapt")) > 1)
    other = await caller.submit([make_config("small", FLOP="0.5x")])
    async with asyncio.timeout(60):
        assert (await caller.finished(other.id)).state is JobState.DONE
        await pause(caller, job)
        await caller.finished((await caller.submit([make_config("small", FLOP="0.3x")])).id)
    adapted = [task["budget"]["flops"] for task in site.tasks("adapt")]
    assert adapted.count(8_000.0) > 1
    assert adapted[adapted.index(3_000.0) :] == [3_000.0], "none of the paused job"
