"""Submissions that arrive together are stored together, and each is acknowledged once it is on the disk."""

import asyncio
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, Job, JobState, ProgressUpdate
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.part import GoalSelection, part_of
from mistify.quotas import Quota
from mistify_server.identity.callers import DEFAULT_TENANT, Scope
from mistify_server.identity.tokens import AccessToken
from mistify_server.jobs.submissions import SubmittedJobs
from mistify_server.store.changes import Submission
from mistify_server.store.directory import Store, open_store
from mistify_server.store.plans import BatchPlan
from tests.support.gates import held
from tests.support.statements import counted_commits
from tests.support.stored import unfinished

Config = Callable[..., dict[str, object]]

TOGETHER = 100


def submission(plan: BatchPlan, job_id: str, key: str | None = None, **about: Any) -> Submission:
    goals = tuple(Goal(id=name, batch=0, spec=PackageSpec({"flops": 1.0})) for name in "ab")
    job = replace(Job(job_id, JobState.QUEUED, goals, created_unix_ms=5), **about)
    return Submission(job, [plan], f"config of {about}", key)


async def stored(submitted: SubmittedJobs, *submissions: Submission) -> list[Any]:
    return await asyncio.gather(
        *(submitted.create(each, offered=False) for each in submissions), return_exceptions=True
    )


async def test_submissions_during_a_transaction_share_the_next_one(store: Store, plan: BatchPlan) -> None:
    submitted = SubmittedJobs(store)
    with counted_commits() as commits, held(store.jobs, "create_all") as gate:
        first = asyncio.create_task(submitted.create(submission(plan, "first"), offered=False))
        await asyncio.to_thread(gate.reached.wait)
        others = [submission(plan, f"j{number}") for number in range(TOGETHER)]
        storing = asyncio.create_task(stored(submitted, *others))
        await asyncio.sleep(0)
        assert not first.done()
        gate.opened.set()
        assert [await first, *await storing] == [store.jobs.job(each) for each in unfinished(store)]
    assert len(commits) == 2
    assert len(unfinished(store)) == 1 + TOGETHER
    assert [each.event for each in store.jobs.events("j7", 0, 9)] == [JobState.QUEUED]
    assert store.jobs.batches("j7")[0].plan == plan


async def test_refused_jobs_do_not_affect_the_others(store: Store, plan: BatchPlan) -> None:
    limited = AccessToken(
        "limited", DEFAULT_TENANT, "digest", frozenset({Scope.SUBMIT}), 0, None, Quota(jobs=2)
    )
    store.tokens.add(limited)
    store.jobs.create(submission(plan, "old", "known"))
    outcomes = await stored(
        SubmittedJobs(store),
        submission(plan, "a", submitted_by="limited"),
        submission(plan, "b", "known"),
        submission(plan, "c", "known", name="another config"),
        submission(plan, "d", "new"),
        submission(plan, "e", "new"),
        submission(plan, "f", "new", name="another config"),
        submission(plan, "g", submitted_by="limited"),
        submission(plan, "h", submitted_by="limited"),
        submission(plan, "i", submitted_by="free"),
        submission(plan, "j", name="not text: \ud800"),
    )
    codes = [each.code if isinstance(each, MistifyError) else None for each in outcomes]
    conflict, exceeded = ErrorCode.CONFLICT, ErrorCode.QUOTA_EXCEEDED
    assert codes == [None, None, conflict, None, None, conflict, None, exceeded, None, None]
    assert [each.id for each in outcomes if isinstance(each, Job)] == ["a", "old", "d", "d", "g", "i"]
    assert isinstance(outcomes[-1], UnicodeEncodeError)
    assert unfinished(store) == ["old", "a", "d", "g", "i"]


async def test_nothing_is_stored_twice_after_an_outage(store: Store, plan: BatchPlan) -> None:
    """A transaction whose outcome is unknown is not repeated job by job."""

    def unavailable(new: object) -> list[Job | MistifyError]:
        calls.append(new)
        raise MistifyError(ErrorCode.UNAVAILABLE, "the database was lost")

    calls: list[object] = []
    store.jobs.create_all = unavailable  # type: ignore[method-assign]
    outcomes = await stored(SubmittedJobs(store), submission(plan, "a"), submission(plan, "b"))
    assert [each.code for each in outcomes] == [ErrorCode.UNAVAILABLE] * 2
    assert len(calls) == 1


async def test_submissions_go_on_after_a_transaction_was_abandoned(store: Store, plan: BatchPlan) -> None:
    submitted, before = SubmittedJobs(store), asyncio.all_tasks()
    with held(store.jobs, "create_all") as gate:
        first = asyncio.create_task(submitted.create(submission(plan, "first"), offered=False))
        await asyncio.to_thread(gate.reached.wait)
        for task in asyncio.all_tasks() - before - {first}:
            task.cancel()
        gate.opened.set()
        await asyncio.wait_for(submitted.create(submission(plan, "second"), offered=False), 30)
    assert "second" in unfinished(store)
    first.cancel()


async def test_a_job_that_waits_takes_one_transaction(caller: Any, site: Any, make_config: Config) -> None:
    (site.control / "hold-source").touch()
    busy = await caller.submit([make_config("busy", FLOP="0.5x")])
    async for each in caller.watch(busy.id):  # after this event, it stores nothing
        if isinstance(each.event, ProgressUpdate) and each.event.stage == "in source":
            break
    with counted_commits() as commits:
        goals = [make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.3x")]
        job = await caller.submit(goals, key="once", name="waits")
        assert job == await caller.job(job.id) == await caller.submit(goals, key="once", name="waits")
    assert job.state is JobState.QUEUED
    assert len(commits) == 1
    (site.control / "hold-source").unlink()
    states = [each.event for each in await caller.events(job.id) if isinstance(each.event, JobState)]
    assert states == [JobState.QUEUED, JobState.RUNNING, JobState.DONE]


@pytest.mark.parametrize(
    "selection",
    [
        None,
        GoalSelection(),
        GoalSelection(goal_id="b"),
        GoalSelection(page_size=1),
        GoalSelection(page_size=5),
        GoalSelection("", 1, "1"),
    ],
)
def test_goals_of_a_new_job_are_selected_as_from_the_store(
    store: Store, plan: BatchPlan, selection: GoalSelection | None
) -> None:
    job = store.jobs.create(submission(plan, "j"))
    expected = part_of(store.jobs.job("j"), None) if selection is None else store.jobs.part("j", selection)
    assert part_of(job, selection) == expected


@pytest.mark.parametrize("selection", [GoalSelection(goal_id="c"), GoalSelection("", 1, "x")])
def test_goals_that_a_new_job_does_not_have_are_refused_as_by_the_store(
    store: Store, plan: BatchPlan, selection: GoalSelection
) -> None:
    job = store.jobs.create(submission(plan, "j"))
    with pytest.raises(MistifyError) as expected:
        store.jobs.part("j", selection)
    with pytest.raises(MistifyError) as error:
        part_of(job, selection)
    assert (error.value.code, error.value.message) == (expected.value.code, expected.value.message)


SUBMIT = """
import asyncio, sys
from pathlib import Path
from mistify.jobs.job import Job, JobState
from mistify_server.jobs.submissions import SubmittedJobs
from mistify_server.store.changes import Submission
from mistify_server.store.directory import open_store

async def submit(store):
    submitted = SubmittedJobs(store)
    async def caller(number):
        for each in range(1000):
            job = Job(f"job-{number}-{each}", JobState.QUEUED, (), created_unix_ms=5)
            print((await submitted.create(Submission(job, [], "[]", None), offered=False)).id, flush=True)
    await asyncio.gather(*map(caller, range(20)))

with open_store(Path(sys.argv[1])) as store:
    asyncio.run(submit(store))
"""


def test_acknowledged_jobs_are_there_after_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SUBMIT, str(tmp_path / "store")]
    with Popen(command, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(200)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.read().splitlines(keepends=True)
    complete = {line.strip() for line in acknowledged if line.endswith("\n")}
    assert len(complete) >= 200
    with open_store(tmp_path / "store") as store:
        assert complete <= set(unfinished(store))
        assert store.jobs.faults() == []
