"""Jobs that a server takes and keeps, also while it waits for the store or is busy."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, Job, JobPriority, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify_server.engines.local import LocalEngine
from mistify_server.identity.callers import DEFAULT_TENANT
from mistify_server.jobs import running_jobs
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.jobs.shared_jobs import SharedJobs
from mistify_server.store.changes import JobChanged, Submission
from mistify_server.store.directory import Store, open_store
from mistify_server.store.leases import JobLease
from mistify_server.store.plans import BatchPlan
from tests.support.gates import held

GOALS = tuple(Goal(id=name, batch=0, spec=PackageSpec({"flops": 1.0})) for name in "ab")

#: Length of a lease in seconds: longer than any test.
SECONDS = 600.0


def create(store: Store, plan: BatchPlan, job_id: str) -> None:
    """Store a job that no server runs."""
    store.jobs.create(Submission(Job(job_id, JobState.QUEUED, GOALS, created_unix_ms=5), [plan], "[]", None))


@pytest.fixture
async def jobs(site: Any, store: Store, plan: BatchPlan) -> AsyncIterator[RunningJobs]:
    """Return the jobs of a server whose store has the job "j", which no server runs."""
    create(store, plan, "j")
    engine = LocalEngine(site.worker, store.logs)
    running = RunningJobs(store, engine)
    yield running
    await running.stop()
    await engine.close()


@pytest.fixture
async def sharing(site: Any, store: Store, jobs: RunningJobs) -> SharedJobs:
    engine = LocalEngine(site.worker, store.logs)
    return SharedJobs(store.leases, jobs, engine, takes=True, seconds=SECONDS)


@pytest.fixture
def other(tmp_path: Path, store: Store) -> Iterator[Store]:
    """Return the same store, opened by another server."""
    with open_store(tmp_path / "own-store") as opened:
        yield opened


async def test_a_job_that_is_being_taken_is_not_started_again(store: Store, jobs: RunningJobs) -> None:
    with held(store.leases, "take") as gate:
        jobs.start("j")
        await asyncio.to_thread(gate.reached.wait)
        jobs.start("j")
        assert [task.get_name() for task in asyncio.all_tasks()].count("j") == 1
        gate.opened.set()


async def test_no_job_starts_while_the_server_stops_others(store: Store, jobs: RunningJobs) -> None:
    with held(store.leases, "take") as gate:
        jobs.start("j")
        await asyncio.to_thread(gate.reached.wait)
        stopping = asyncio.create_task(jobs.stop())
        await asyncio.sleep(0)
        jobs.start("other")
        assert "other" not in [task.get_name() for task in asyncio.all_tasks()]
        gate.opened.set()
        await stopping


async def test_leases_are_renewed_while_all_threads_are_busy(sharing: SharedJobs, other: Store) -> None:
    idle = Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        busy = asyncio.create_task(asyncio.to_thread(idle.wait))
        try:
            await asyncio.wait_for(sharing.renew(), 60)
        finally:
            idle.set()
            await busy
    assert other.leases.renew(SECONDS)


async def test_leases_are_renewed_after_an_internal_error(
    store: Store,
    sharing: SharedJobs,
    other: Store,
    wait_until: Any,
    *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mistify_server.jobs.shared_jobs._INTERVAL", 0.0)
    renew, errors = store.leases.renew, [ZeroDivisionError()]

    def failing_once(seconds: float, busy_seconds: float = 0.0) -> bool:
        if errors:
            raise errors.pop()
        return renew(seconds, busy_seconds)

    monkeypatch.setattr(store.leases, "renew", failing_once)
    renewing = asyncio.create_task(sharing.keep_renewing())
    await wait_until(lambda: renewing.done() or other.leases.renew(SECONDS))
    assert not renewing.done()
    renewing.cancel()


async def test_a_server_that_has_left_is_not_there_again(sharing: SharedJobs, other: Store) -> None:
    await sharing.renew()
    assert other.leases.renew(SECONDS)
    await sharing.leave()
    await sharing.renew()
    assert not other.leases.renew(SECONDS)


async def test_a_job_that_the_server_has_without_knowing_it_runs(
    store: Store, sharing: SharedJobs, wait_until: Any
) -> None:
    """The connection was lost in the commit of its submission, and the caller got an error."""
    assert store.leases.take("j") == JobLease("j", 1)
    looking = asyncio.create_task(sharing.keep_looking())
    await wait_until(lambda: store.leases.situations(["j"])[0].fence == 2)
    looking.cancel()


async def test_jobs_are_taken_although_another_one_cannot_be_followed(
    site: Any,
    store: Store,
    other: Store,
    plan: BatchPlan,
    jobs: RunningJobs,
    *,
    sharing: SharedJobs,
    wait_until: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def failing(_jobs: RunningJobs, _job_id: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(RunningJobs, "catch_up", failing)
    monkeypatch.setattr("mistify_server.jobs.shared_jobs._INTERVAL", 0.0)
    (site.control / "hold-source").touch()
    jobs.start("j")
    await wait_until(lambda: "j" in jobs.leases)
    assert other.jobs.set_paused("j", paused=True)
    create(store, plan, "free")
    looking = asyncio.create_task(sharing.keep_looking())
    await wait_until(lambda: store.leases.situations(["free"])[-1].fence == 1)
    looking.cancel()


def as_a_newer_version(database: Path, *, goal: str = "") -> None:
    """Change the plan of a job as a server with another field does, and add a goal if it has an id."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE batches SET plan = json_set(plan, '$.faster', 1)")
        if goal:
            columns = [column for _, column, *_ in connection.execute("PRAGMA table_info(goals)")]
            copied = ", ".join({"id": f"'{goal}'", "position": "9"}.get(column, column) for column in columns)
            connection.execute(f"INSERT INTO goals SELECT {copied} FROM goals WHERE id = 'a'")  # noqa: S608


async def events(jobs: RunningJobs) -> list[object]:
    reads = [read async for read in jobs.watch(DEFAULT_TENANT, "j", 0)]
    return [event.event for read in reads for event in read.events]


def test_goals_of_a_newer_version_are_not_read(tmp_path: Path, store: Store, plan: BatchPlan) -> None:
    create(store, plan, "j")
    with closing(sqlite3.connect(tmp_path / "own-store" / "mistify.db")) as connection, connection:
        connection.execute("UPDATE goals SET state = 'held'")
    with pytest.raises(MistifyError, match=r"'held' is not a valid GoalState.*; upgrade") as raised:
        store.jobs.with_batches("j")
    assert raised.value.code is ErrorCode.STORE_VERSION


async def test_a_job_of_a_newer_version_is_left_to_its_servers(
    tmp_path: Path, store: Store, other: Store, jobs: RunningJobs, wait_until: Any
) -> None:
    store.leases.renew(SECONDS)
    as_a_newer_version(tmp_path / "own-store" / "mistify.db")
    jobs.start("j")
    with pytest.raises(MistifyError, match=r"BatchPlan\.faster: .*; upgrade this server") as raised:
        await events(jobs)
    assert raised.value.code is ErrorCode.STORE_VERSION
    await wait_until(lambda: other.leases.take("j") == JobLease("j", 2))
    assert not any(map(jobs.could_run, store.leases.situations(["j"])))
    jobs.has_others = True
    other.jobs.end("j", JobChanged(JobState.CANCELLED))
    assert (await events(jobs))[-1] is JobState.CANCELLED


async def test_watchers_of_a_job_that_is_given_up_need_not_wait_for_the_store(
    tmp_path: Path, store: Store, jobs: RunningJobs
) -> None:
    as_a_newer_version(tmp_path / "own-store" / "mistify.db")
    watching = jobs.watch(DEFAULT_TENANT, "j", 0)
    await anext(watching)
    following = asyncio.create_task(anext(watching))
    with held(store.leases, "give_back") as gate:
        jobs.start("j")
        await asyncio.to_thread(gate.reached.wait)
        async with asyncio.timeout(60):
            with pytest.raises(MistifyError, match="upgrade this server"):
                await following
        gate.opened.set()


async def test_a_running_job_to_which_a_newer_version_adds_goals_is_left_to_its_servers(
    site: Any, tmp_path: Path, store: Store, other: Store, jobs: RunningJobs, *, wait_until: Any
) -> None:
    store.leases.renew(SECONDS)
    (site.control / "hold-source").touch()
    jobs.start("j")
    await wait_until(lambda: "j" in jobs.leases)
    as_a_newer_version(tmp_path / "own-store" / "mistify.db", goal="c")
    await jobs.catch_up("j")
    assert "j" not in jobs.leases
    assert other.leases.take("j") == JobLease("j", 2)


async def test_a_running_job_whose_priority_only_a_newer_version_knows_is_left_to_its_servers(
    site: Any, tmp_path: Path, store: Store, other: Store, jobs: RunningJobs, *, wait_until: Any
) -> None:
    store.leases.renew(SECONDS)
    (site.control / "hold-source").touch()
    jobs.start("j")
    await wait_until(lambda: "j" in jobs.leases)
    with closing(sqlite3.connect(tmp_path / "own-store" / "mistify.db")) as connection, connection:
        connection.execute("UPDATE jobs SET priority = 'top'")
    (now,) = store.leases.situations(["j"])
    assert jobs.differs(now)
    await jobs.catch_up("j")
    assert "j" not in jobs.leases
    assert other.leases.take("j") == JobLease("j", 2)


async def test_an_internal_error_of_a_job_does_not_keep_others_running_that_were_ended_elsewhere(
    store: Store,
    jobs: RunningJobs,
    sharing: SharedJobs,
    other: Store,
    *,
    plan: BatchPlan,
    wait_until: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create(store, plan, "k")
    for job_id in "jk":
        store.jobs.set_paused(job_id, paused=True)  # so that it writes nothing, which would be refused
        jobs.start(job_id)
    await wait_until(lambda: len(jobs.leases) == 2)
    drop = jobs.drop

    async def failing_for_one(lease: JobLease) -> None:
        if lease.job_id == "j":
            raise ZeroDivisionError
        await drop(lease)

    monkeypatch.setattr(jobs, "drop", failing_for_one)
    for job_id in "jk":
        assert other.jobs.end(job_id, JobChanged(JobState.CANCELLED))
    await sharing._look()
    assert list(jobs.leases) == ["j"]


async def test_an_idle_server_takes_the_most_urgent_job_for_which_another_one_has_no_worker(
    site: Any,
    store: Store,
    jobs: RunningJobs,
    sharing: SharedJobs,
    other: Store,
    *,
    plan: BatchPlan,
    wait_until: Any,
) -> None:
    store.jobs.end("j", JobChanged(JobState.CANCELLED))
    other.leases.renew(SECONDS)
    for job_id, priority in (("usual", "normal"), ("urgent", "high"), ("next", "high")):
        job = Job(job_id, JobState.QUEUED, GOALS, created_unix_ms=5, priority=JobPriority(priority))
        other.jobs.create(Submission(job, [plan], "[]", None), owner=other.leases.server)
    (site.control / "hold-source").touch()
    await sharing._look()
    await wait_until(lambda: bool(site.tasks("source")))
    await sharing._look()  # it is busy
    assert list(jobs.leases) == ["urgent"]
    assert other.jobs.job("urgent").state is JobState.RUNNING
    assert [now.job_id for now in store.leases.situations([]) if not now.begun] == ["usual", "next"]


async def test_steps_start_before_all_waiting_jobs_are_read(
    site: Any,
    store: Store,
    jobs: RunningJobs,
    plan: BatchPlan,
    *,
    wait_until: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_jobs, "_FIRST_WAITING", 1)
    for job_id, priority in (("begun", "low"), ("urgent", "high"), ("late", "normal")):
        job = Job(job_id, JobState.QUEUED, GOALS, created_unix_ms=5, priority=JobPriority(priority))
        store.jobs.create(Submission(job, [plan], "[]", None))
    store.jobs.record("begun", [JobChanged(JobState.RUNNING)], 1.0, {}, store.leases.take("begun"))
    read, opened = store.jobs.with_batches, Event()

    def held_if_late(job_id: str) -> Any:
        if job_id not in ("begun", "urgent"):
            assert opened.wait(60)
        return read(job_id)

    monkeypatch.setattr(store.jobs, "with_batches", held_if_late)
    (site.control / "hold-source").touch()
    jobs.resume()
    await wait_until(lambda: bool(site.tasks("source")))
    assert set(jobs.leases) == {"begun", "urgent"}
    assert store.jobs.job("urgent").state is JobState.RUNNING
    opened.set()
    await wait_until(lambda: set(jobs.leases) == {"j", "begun", "urgent", "late"})
