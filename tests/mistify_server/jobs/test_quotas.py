"""Callers with limits: what exceeds them is refused or waits, and nobody else notices."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import JobState
from mistify.quotas import CallerStatus, Quota, Usage
from mistify.v1 import files_pb2, files_pb2_grpc
from mistify.v1 import porting_pb2 as pb
from mistify.wire import porting
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.identity.quotas import change_limits
from mistify_server.store.directory import open_store
from mistify_server.store.sql.tokens import SqlTokenStore
from tests.mistify_server.outcomes import failure
from tests.support.gates import held

Config = Callable[..., dict[str, object]]

TOKEN = "0123456789abcdef" * 4


@pytest.fixture
def serving_two(site: Any, serving_at: Any, call_at: Any) -> Any:
    """Return a function that serves two callers: one with limits, and another without."""

    @asynccontextmanager
    async def serving(limits: Quota, **settings: Any) -> AsyncIterator[tuple[Any, Any]]:
        with open_store(site.store) as store:
            tokens, scopes = store.tokens, [Scope.READ, Scope.SUBMIT]
            limited, free = (
                create_token(tokens, name, scopes, limits=asdict(of))[1]
                for name, of in (("limited", limits), ("free", Quota()))
            )
        async with serving_at(site.settings(token=TOKEN, **settings), limited) as caller:
            other = call_at(caller.address, free)
            yield caller, other
            await other.channel.close()

    return serving


async def status(caller: Any) -> CallerStatus:
    return porting.status_from_proto(await caller.call(caller.stub.GetCaller, pb.GetCallerRequest()))


async def upload(file: files_pb2.FileDigest, content: bytes) -> AsyncIterator[files_pb2.UploadFileRequest]:
    """Yield the requests that upload a file."""
    yield files_pb2.UploadFileRequest(header=files_pb2.UploadHeader(file=file, offset=0))
    yield files_pb2.UploadFileRequest(data=content)


async def test_a_job_beyond_the_limit_is_refused_and_leaves_nothing(
    site: Any, serving_two: Any, make_config: Config, wait_until: Any
) -> None:
    goals, more = [make_config("a", FLOP="0.5x")], [make_config("b", FLOP="0.4x")]
    (site.control / "hold-source").touch()
    async with serving_two(Quota(jobs=2)) as (limited, free):
        jobs = [await limited.submit(goals, key=key) for key in ("one", "two")]
        request = pb.PauseJobRequest(job_id=jobs[1].id)
        await limited.call(limited.stub.PauseJob, request)  # counts as well
        (site.root / "other.json").write_bytes((site.root / "model.json").read_bytes())
        inspected = len(site.tasks("inspect"))
        new = [make_config("a", model="other.json", FLOP="0.5x")]
        for config in (goals, new):
            error = await failure(limited.submit(config, key="three"))
            assert error.code is ErrorCode.QUOTA_EXCEEDED
            assert '"limited" has 2 unfinished jobs, and may have 2; wait' in error.message
        assert len(site.tasks("inspect")) == inspected
        assert len((await limited.page(9)).jobs) == 2
        assert (await limited.submit(goals, key="one")).id == jobs[0].id
        assert (await limited.add(jobs[0].id, more)).state is not JobState.DONE
        other = await free.submit(goals)
        assert (await status(limited)).usage == Usage(jobs=2, workers=1)
        assert (await status(free)).usage == Usage(jobs=1)
        (site.control / "hold-source").unlink()
        await limited.finished(jobs[0].id)
        third = await limited.submit(goals, key="three")
        error = await failure(limited.add(jobs[0].id, [make_config("c", FLOP="0.3x")]))
        assert error.code is ErrorCode.QUOTA_EXCEEDED
        assert len((await limited.job(jobs[0].id)).goals) == 2
        await limited.finished(third.id)
        await free.finished(other.id)
        await limited.add(jobs[0].id, [make_config("c", FLOP="0.3x")])
        assert (await limited.finished(jobs[0].id)).state is JobState.DONE


async def test_files_for_a_job_that_would_be_refused_are_not_sent(
    site: Any, serving_two: Any, make_config: Config
) -> None:
    (site.control / "hold-source").touch()
    content = b"x" * 600
    digest = files_pb2.FileDigest(sha256=hashlib.sha256(content).hexdigest(), size=600)
    find = files_pb2.FindFilesRequest(files=[digest], for_job=True)
    async with serving_two(Quota(jobs=1)) as (limited, _):
        stub = files_pb2_grpc.FilesStub(limited.channel)
        assert not (await limited.call(stub.FindFiles, find)).states[0].complete
        await limited.submit([make_config("a", FLOP="0.5x")])
        assert (await failure(limited.call(stub.FindFiles, find))).code is ErrorCode.QUOTA_EXCEEDED
        await limited.call(stub.FindFiles, files_pb2.FindFilesRequest(files=[digest]))
        await limited.call(stub.UploadFile, upload(digest, content))
        # A repeated submission needs nothing that is missing.
        assert (await limited.call(stub.FindFiles, find)).states[0].complete
        (site.control / "hold-source").unlink()


async def test_of_simultaneous_submissions_only_as_many_as_allowed_are_accepted(
    site: Any, serving_two: Any, make_config: Config
) -> None:
    (site.control / "hold-source").touch()
    async with serving_two(Quota(jobs=3)) as (limited, _):
        calls = (limited.submit([make_config("a", FLOP="0.5x")]) for _ in range(8))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, Exception)]
        assert len(refused) == 5
        assert len((await limited.page(9)).jobs) == 3
        (site.control / "hold-source").unlink()


async def test_steps_beyond_the_limit_wait_and_others_get_the_workers(
    site: Any, serving_two: Any, make_config: Config, wait_until: Any, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistify_server.jobs.running_jobs._LIMITS_SECONDS", 0.01)
    goals = [make_config("a", FLOP="0.5x")]
    (site.control / "hold-source").touch()
    async with serving_two(Quota(workers=1), slots=3) as (limited, free):
        jobs = [await limited.submit(goals) for _ in range(3)]
        await wait_until(lambda: len(site.tasks("source")) == 1)
        other = await free.submit(goals)
        await wait_until(lambda: len(site.tasks("source")) == 2)
        assert [(await status(caller)).usage.workers for caller in (limited, free)] == [1, 1]
        with open_store(site.store) as store:  # as another process does
            change_limits(store.tokens, "limited", {"workers": 2})
        await wait_until(lambda: len(site.tasks("source")) == 3)
        assert (await status(limited)).usage.workers == 2
        (site.control / "hold-source").unlink()
        for job in (*jobs, other):
            assert (await limited.finished(job.id)).state is JobState.DONE


async def test_limits_are_remembered_while_the_store_cannot_be_read(
    site: Any, serving_two: Any, make_config: Config, wait_until: Any, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    errors = [MistifyError(ErrorCode.UNAVAILABLE, "the database is locked"), ZeroDivisionError()]

    def failing(_store: SqlTokenStore, name: str) -> Quota:
        reads.append(name)
        raise errors[len(reads) % 2]

    monkeypatch.setattr("mistify_server.jobs.running_jobs._LIMITS_SECONDS", 0.01)
    (site.control / "hold-source").touch()
    async with serving_two(Quota(workers=1), slots=2) as (limited, _):
        jobs = [await limited.submit([make_config("a", FLOP="0.5x")]) for _ in range(2)]
        await wait_until(lambda: len(site.tasks("source")) == 1)
        monkeypatch.setattr(SqlTokenStore, "limits", failing)
        await wait_until(lambda: len(reads) >= 3)
        assert len(site.tasks("source")) == 1
        (site.control / "hold-source").unlink()
        for job in jobs:
            assert (await limited.finished(job.id)).state is JobState.DONE
    assert len(site.tasks("package")) == 2


async def test_calls_are_answered_while_limits_are_read(
    site: Any, serving_two: Any, make_config: Config, wait_until: Any, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistify_server.jobs.running_jobs._LIMITS_SECONDS", 0.01)
    (site.control / "hold-source").touch()
    async with serving_two(Quota(workers=1)) as (limited, _):
        job = await limited.submit([make_config("a", FLOP="0.5x")])
        await wait_until(lambda: bool(site.tasks("source")))
        with held(SqlTokenStore, "limits") as gate:
            await wait_until(gate.reached.is_set)
            assert (await limited.job(job.id)).state is JobState.RUNNING
            assert not gate.opened.is_set()
        (site.control / "hold-source").unlink()
        assert (await limited.finished(job.id)).state is JobState.DONE


async def test_files_beyond_the_limit_are_refused_before_they_are_sent(site: Any, serving_two: Any) -> None:
    content = b"x" * 600
    digest = files_pb2.FileDigest(sha256=hashlib.sha256(content).hexdigest(), size=600)
    larger = files_pb2.FileDigest(sha256=64 * "a", size=500)
    async with serving_two(Quota(uploads=1_000)) as (limited, free):
        stubs = [files_pb2_grpc.FilesStub(caller.channel) for caller in (limited, free)]

        await limited.call(stubs[0].UploadFile, upload(digest, content))
        assert await status(limited) == CallerStatus(
            "limited", ("read", "submit"), Quota(uploads=1_000), Usage(uploads=600), "default"
        )
        kept = {path for path in (site.store / "uploads").rglob("*") if path.is_file()}
        find = files_pb2.FindFilesRequest(files=[digest, larger])
        for call in (
            limited.call(stubs[0].FindFiles, find),
            limited.call(stubs[0].UploadFile, upload(larger, b"a" * 500)),
        ):
            error = await failure(call)
            assert (error.code, "these need 500B more" in error.message) == (ErrorCode.QUOTA_EXCEEDED, True)
        assert {path for path in (site.store / "uploads").rglob("*") if path.is_file()} == kept
        states = (await free.call(stubs[1].FindFiles, find)).states
        assert [state.complete for state in states] == [True, False]
