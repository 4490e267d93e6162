"""Killed servers, and their successors."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState

Config = Callable[..., dict[str, object]]
HERE = Path(__file__).parents[1]
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5)


@asynccontextmanager
async def server(site: Any, call_at: Any) -> AsyncIterator[tuple[Any, asyncio.subprocess.Process]]:
    script = [sys.executable, str(HERE / "scripted_server.py"), "--store", str(site.store)]
    process = await asyncio.create_subprocess_exec(
        *script, "--root", str(site.root), "--", *site.worker, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    address = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
    caller = call_at(address)
    try:
        yield caller, process
    finally:
        await caller.channel.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


def configs(make_config: Config) -> list[dict[str, object]]:
    return [make_config(f"at-{share}", FLOP=f"{share}x") for share in SHARES]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["source", "adapt", "package", "reference"])
async def test_killing_a_server_loses_no_results(
    site: Any, call_at: Any, make_config: Config, wait_until: Any, kind: str
) -> None:
    (site.control / f"hold-{kind}").touch()
    async with server(site, call_at) as (caller, process):
        job = await caller.submit(configs(make_config), key="k")
        await wait_until(lambda: bool(site.tasks(kind)))
        process.send_signal(signal.SIGKILL)
        await process.wait()
    (site.control / f"hold-{kind}").unlink()
    async with server(site, call_at) as (caller, process):
        assert (await caller.submit(configs(make_config), key="k")).id == job.id
        job = await caller.finished(job.id)
        events = await caller.events(job.id)
    assert job.state is JobState.DONE
    assert {goal.state for goal in job.goals} == {GoalState.MET}
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    once = {"source": 1, "adapt": 5, "package": 5, "reference": 1}
    again = {name: len(site.tasks(name)) - count for name, count in once.items()}
    assert again == {**dict.fromkeys(once, 0), kind: 1}
    assert job.spent["training"] == 0.5 + 5 * 1.5
    assert job.spent["packaging"] == 5 * 0.125


async def test_a_server_without_resume_does_not_change_jobs(
    site: Any, serving_at: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    async with serving_at(site.settings()) as first:
        job = await first.submit(configs(make_config), key="k")
        await wait_until(lambda: bool(site.tasks("adapt")))
    (site.control / "hold-adapt").unlink()
    async with serving_at(site.settings(resume=False)) as second:
        other = await second.submit([make_config("other", FLOP="0.4x")])
        assert (await second.finished(other.id)).state is JobState.DONE
        left = await second.job(job.id)
    assert left.state is JobState.RUNNING
    assert {goal.state for goal in left.goals}.isdisjoint({GoalState.MET, GoalState.FAILED})
    async with serving_at(site.settings()) as third:
        assert (await third.finished(job.id)).state is JobState.DONE


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["branch", "package"])
async def test_existing_branches_are_not_made_again(
    site: Any, call_at: Any, make_config: Config, wait_until: Any, kind: str
) -> None:
    (site.control / f"hold-{kind}").touch()
    asked = {**make_config("half", FLOP="0.5x"), "branches": {"count": 5, "saved_model": True}}
    async with server(site, call_at) as (caller, process):
        job = await caller.submit([asked], key="k")
        await wait_until(lambda: bool(site.tasks(kind)))
        process.send_signal(signal.SIGKILL)
        await process.wait()
    (site.control / f"hold-{kind}").unlink()
    async with server(site, call_at) as (caller, process):
        job = await caller.finished(job.id)
    (half,) = job.goals
    assert half.state is GoalState.MET
    branched = site.tasks("branch")
    assert len(branched) == (2 if kind == "branch" else 1)
    assert branched[-1]["shares"] == pytest.approx([1 / 3, 3**-0.5, 1, 3**0.5, 3])
    packaged = site.tasks("package")[-1]
    assert packaged["spec"]["branches"]["saved_model"] is True
    assert [branch["share"] for branch in packaged["branches"]["branches"]] == branched[-1]["shares"]
    assert half.spec.branches is not None
    assert half.spec.branches.count == 5
    assert [branch.share for branch in half.branch_figures] == branched[-1]["shares"]
    assert half.steps == 100 + 5


@pytest.mark.slow
async def test_a_job_completes_although_its_server_is_killed_repeatedly(
    site: Any, call_at: Any, make_config: Config, wait_until: Any
) -> None:
    job_id, known = "", 0
    for killed_at in range(1, len(SHARES) + 1):
        async with server(site, call_at) as (caller, process):
            job_id = (await caller.submit(configs(make_config), key="k")).id
            async for event in caller.watch(job_id, known):
                assert event.sequence == known + 1
                known = event.sequence
                met = sum(goal.state is GoalState.MET for goal in (await caller.job(job_id)).goals)
                if met >= killed_at:
                    break
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with server(site, call_at) as (caller, process):
        job = await caller.finished(job_id)
    assert [goal.state for goal in job.goals] == [GoalState.MET] * 5
    assert len(site.tasks("source")) == 1


@pytest.mark.sampled
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.DONE])
async def test_added_goals_survive_the_kill_of_a_server(
    site: Any, call_at: Any, make_config: Config, wait_until: Any, state: JobState
) -> None:
    later = [make_config("late", FLOP="0.55x"), make_config("later", FLOP="0.45x")]
    if state is JobState.RUNNING:
        (site.control / "hold-adapt").touch()
    async with server(site, call_at) as (caller, process):
        job = await caller.submit(configs(make_config))
        if state is JobState.DONE:
            await caller.finished(job.id)
            (site.control / "hold-adapt").touch()
        await wait_until(lambda: bool(site.tasks("adapt")))
        assert len((await caller.add(job.id, later, key="k")).goals) == 7
        process.send_signal(signal.SIGKILL)
        await process.wait()
    (site.control / "hold-adapt").unlink()
    async with server(site, call_at) as (caller, process):
        assert len((await caller.add(job.id, later, key="k")).goals) == 7
        job = await caller.finished(job.id)
    assert job.state is JobState.DONE
    assert {goal.state for goal in job.goals} == {GoalState.MET}
    assert [(goal.id, goal.parent) for goal in job.goals[5:]] == [("late", "at-0.6"), ("later", "at-0.5")]
    assert len(site.tasks("source")) == 1
    assert len({task["budget"]["flops"] for task in site.tasks("adapt")}) == 7
    assert len(site.tasks("package")) == 7


async def test_a_stopped_server_leaves_a_job_to_resume(
    site: Any, call_at: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    async with server(site, call_at) as (caller, process):
        job = await caller.submit(configs(make_config))
        reported = asyncio.Event()

        async def watch() -> None:
            async for _ in caller.watch(job.id):
                reported.set()

        watching = asyncio.create_task(watch())
        await asyncio.wait_for(reported.wait(), 60)
        await wait_until(lambda: bool(site.tasks("adapt")))
        process.send_signal(signal.SIGTERM)
        with pytest.raises(MistifyError, match="can be resumed") as raised:
            await watching
        assert raised.value.code is ErrorCode.UNAVAILABLE
        assert await asyncio.wait_for(process.wait(), 60) == 0
    pids = {task["pid"] for task in site.tasks("adapt")}
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    (site.control / "hold-adapt").unlink()
    async with server(site, call_at) as (caller, process):
        job = await caller.finished(job.id)
    assert {goal.state for goal in job.goals} == {GoalState.MET}


async def test_workers_of_a_killed_server_end(
    site: Any, call_at: Any, make_config: Config, wait_until: Any
) -> None:
    (site.control / "hold-adapt").touch()
    async with server(site, call_at) as (caller, process):
        await caller.submit(configs(make_config))
        await wait_until(lambda: bool(site.tasks("adapt")))
        process.send_signal(signal.SIGKILL)
        await process.wait()
    pid = site.tasks("adapt")[0]["pid"]
    await wait_until(lambda: not Path(f"/proc/{pid}").exists())
