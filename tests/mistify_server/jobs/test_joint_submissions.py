"""Submissions that arrive together are prepared and stored together, and each new job is started once."""

import asyncio
import json
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Job, JobState
from mistify_server.jobs import preparing
from mistify_server.jobs.preparing import PreparedJob, Request
from mistify_server.jobs.submissions import JointSubmissions, SubmittedJobs
from mistify_server.planning.lookup.reading import read_and_resolve
from mistify_server.store.changes import Submission
from mistify_server.store.directory import Store
from tests.mistify_server.jobs.preparation import Preparing, text
from tests.support.gates import held
from tests.support.statements import counted_commits
from tests.support.stored import unfinished

CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


class Submitting:
    """The submissions to a store, with the jobs that were started and the callers in whose context."""

    def __init__(self, store: Store, directory: Path) -> None:
        self.sources = Preparing(store, directory)
        self.started: list[tuple[str, str]] = []
        self._joint = JointSubmissions(self.sources.jobs, SubmittedJobs(store), _new, self._start)

    async def submit(self, request: Request, caller: str = "someone", *, offered: bool = False) -> Any:
        CALLER.set(caller)
        return await self._joint.submit(request, offered=offered)

    async def all(self, *requests: Request) -> list[Any]:
        return await asyncio.gather(*map(self.submit, requests), return_exceptions=True)

    def _start(self, submission: Submission) -> None:
        if submission.job.name == "cannot start":
            raise ZeroDivisionError
        self.started.append((submission.job.id, CALLER.get()))


def _new(request: Request, prepared: PreparedJob) -> Submission:
    job_id = f"{CALLER.get()}: {json.loads(request.config_text)[0]['adaptation_goal']['FLOP']}"
    goals = tuple(prepared.goals)
    job = Job(job_id, JobState.QUEUED, goals, 1, submitted_by=request.submitter, name=request.name)
    return Submission(job, prepared.plans, request.config_text, request.idempotency_key or None)


@pytest.fixture
async def submissions(store: Store, tmp_path: Path) -> Submitting:
    submitting = Submitting(store, tmp_path)
    await submitting.sources.inspect(text("0.5x"))
    return submitting


async def test_a_group_takes_one_transaction_and_each_job_starts_for_its_caller(
    submissions: Submitting, store: Store
) -> None:
    with held(store.jobs, "create_all") as gate, counted_commits() as commits:
        first = asyncio.create_task(submissions.submit(Request(text("0.1x"), "", "someone"), "first"))
        await asyncio.to_thread(gate.reached.wait)
        others = [
            asyncio.create_task(
                submissions.submit(Request(text(f"0.{n}x"), "", "someone"), f"c{n}", offered=n == 3)
            )
            for n in (2, 3, 4)
        ]
        await asyncio.sleep(0)
        assert not unfinished(store)
        gate.opened.set()
        jobs = await asyncio.gather(first, *others)
    assert [job.id for job in jobs] == ["first: 0.1x", "c2: 0.2x", "c3: 0.3x", "c4: 0.4x"]
    assert jobs == [store.jobs.job(job_id) for job_id in unfinished(store)]
    assert len(commits) == 2
    assert submissions.started == [
        ("first: 0.1x", "first"),
        ("c2: 0.2x", "c2"),
        ("c3: 0.3x", "c3"),
        ("c4: 0.4x", "c4"),
    ]


async def test_only_new_jobs_are_stored_and_started(submissions: Submitting, store: Store) -> None:
    known = Request(text("0.5x"), "key", "someone")
    first = await submissions.submit(known)
    with counted_commits() as commits:
        assert await submissions.submit(known) == first
    assert not commits
    outcomes = await submissions.all(
        known,
        Request("no JSON", "", "someone"),
        Request(text("0.4x"), "twice", "someone"),
        Request(text("0.4x"), "twice", "someone"),
        Request(text("0.3x"), "twice", "someone"),
        Request(text("0.2x"), "", "someone"),
    )
    again, invalid, new, same, conflict, last = outcomes
    assert (again, new) == (first, same)
    assert (invalid.code, conflict.code) == (ErrorCode.INVALID_CONFIG, ErrorCode.CONFLICT)
    assert unfinished(store) == [first.id, new.id, last.id]
    assert [job_id for job_id, _ in submissions.started] == [first.id, new.id, last.id]


async def test_a_stored_job_starts_although_its_caller_has_gone(
    submissions: Submitting, store: Store
) -> None:
    with held(store.jobs, "create_all") as gate:
        gone = asyncio.create_task(submissions.submit(Request(text("0.1x"), "", "someone"), "gone"))
        await asyncio.to_thread(gate.reached.wait)
        too_early = asyncio.create_task(submissions.submit(Request(text("0.2x"), "", "someone"), "early"))
        await asyncio.sleep(0)
        for each in (gone, too_early):
            each.cancel()
        gate.opened.set()
        await asyncio.wait([gone, too_early])
    last = await submissions.submit(Request(text("0.3x"), "", "someone"), "last")
    assert unfinished(store) == ["gone: 0.1x", last.id]  # nobody waited for the other one in its turn
    assert [job_id for job_id, _ in submissions.started] == ["gone: 0.1x", last.id]


async def test_an_error_at_the_start_of_a_job_is_its_own(submissions: Submitting) -> None:
    broken, last = await submissions.all(
        Request(text("0.1x"), "", "someone", "cannot start"), Request(text("0.2x"), "", "someone")
    )
    assert isinstance(broken, ZeroDivisionError)
    assert [job_id for job_id, _ in submissions.started] == [last.id]


async def test_an_outage_is_that_of_all_and_nothing_is_started(submissions: Submitting, store: Store) -> None:
    def unavailable(_new: object) -> Any:
        raise MistifyError(ErrorCode.UNAVAILABLE, "the database was lost")

    store.jobs.create_all = unavailable  # type: ignore[method-assign]
    outcomes = await submissions.all(*(Request(text(f"0.{n}x"), "", "someone") for n in (2, 3)))
    assert [each.code for each in outcomes] == [ErrorCode.UNAVAILABLE] * 2
    assert not submissions.started


async def test_what_holds_up_others_is_only_prepared(
    submissions: Submitting, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = json.dumps([json.loads(text(f"{0.2 + n / 1000}x", id=f"g{n}"))[0] for n in range(200)])

    class Reading:
        """Reads configs like the server; large ones wait for the gate."""

        def large(self, *arguments: Any) -> Any:
            return read_and_resolve(*arguments)

        def read(self, config_text: str, *others: Any) -> Any:
            return (self.large if config_text == large else read_and_resolve)(config_text, *others)

    reading = Reading()
    monkeypatch.setattr(preparing, "read_and_resolve", reading.read)
    with held(reading, "large") as gate:
        waits = asyncio.create_task(submissions.submit(Request(large, "", "someone")))
        await asyncio.to_thread(gate.reached.wait)
        small = await asyncio.wait_for(submissions.submit(Request(text("0.5x"), "", "someone")), 60)
        assert not waits.done()
        gate.opened.set()
        prepared = await waits
    assert isinstance(prepared, PreparedJob)
    assert (len(small.goals), len(prepared.goals)) == (1, 200)
    assert unfinished(store) == [small.id]
