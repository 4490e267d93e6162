from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mistify.jobs.job import Goal, GoalState, Job, JobState, ProgressUpdate
from mistify.jobs.package_spec import PackageSpec
from mistify_server.jobs.log import UPDATE_SECONDS, JobLog
from mistify_server.jobs.store_writer import StoreWriter
from mistify_server.jobs.time_left import Part, TimeLeftEstimator
from mistify_server.store.changes import GoalChanged, Submission
from mistify_server.store.directory import Store
from mistify_server.store.plans import BatchPlan, BatchState
from mistify_server.tasks.results import PackageResult, Result, TaskFailure

NODE = Part(0, "adaptation", 0)
GOALS = tuple(Goal(id=name, batch=0, spec=PackageSpec({"flops": 1.0})) for name in "ab")


@dataclass
class Clock:
    now: float = 100.0
    changes: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(store: Store, clock: Clock, plan: BatchPlan) -> JobLog:
    job = Job("j", JobState.QUEUED, GOALS, created_unix_ms=0, seconds=7.0, spent={"training": 5.0})
    store.jobs.create(Submission(job, [plan], "[]", None))
    return log_of(store, job, clock, plan)


def log_of(store: Store, job: Job, clock: Clock, plan: BatchPlan) -> JobLog:
    time_left = TimeLeftEstimator([BatchState(plan, None, {})], job.goals, 1)
    return JobLog(
        store.jobs, job, lambda: clock.changes.append(clock.now), StoreWriter(), time_left, clock=clock
    )


def progress(stage: str, step: int = 0, accuracy: float | None = None) -> ProgressUpdate:
    return ProgressUpdate(stage=stage, step=step, total_steps=9, accuracy=accuracy)


async def test_goals_are_running_from_the_first_progress_report(
    log: JobLog, store: Store, clock: Clock
) -> None:
    async with log.progress_of(["a", "b"], NODE) as record:
        record(progress("starting"))
    assert [goal.state for goal in store.jobs.job("j").goals] == [GoalState.RUNNING] * 2
    assert [(event.goal_id, event.event) for event in store.jobs.events("j", 1, 9)] == [
        ("a", GoalState.RUNNING),
        ("b", GoalState.RUNNING),
        ("a", ProgressUpdate(stage="starting", step=0, total_steps=9)),
        ("b", ProgressUpdate(stage="starting", step=0, total_steps=9)),
    ]
    assert clock.changes == [100.0]


async def test_running_goals_are_not_written_again(log: JobLog, store: Store) -> None:
    async with log.progress_of(["a", "b"], NODE) as record:
        record(progress("starting"))
    noted = replace(log.goal("a"), note="written by somebody else")
    store.jobs.record("j", [GoalChanged(noted)], 0.0, {})
    async with log.progress_of(["a", "b"], NODE) as record:
        record(progress("adapting"))
    assert store.jobs.job("j").goals[0] == noted


async def test_updates_in_quick_succession_are_dropped(log: JobLog, store: Store, clock: Clock) -> None:
    reports = [
        ("tuning", None, 0.0),
        ("tuning", None, 0.1),
        ("tuning", 0.5, 0.1),
        ("adapting", None, 0.1),
        ("adapting", None, UPDATE_SECONDS),
    ]
    async with log.progress_of((), Part(0, "source")) as record:
        for step, (stage, accuracy, pause) in enumerate(reports):
            clock.now += pause
            record(progress(stage, step, accuracy))
    updates = [event.event for event in store.jobs.events("j", 1, 9)]
    assert [update.step for update in updates if isinstance(update, ProgressUpdate)] == [0, 2, 3, 4]


async def test_time_spent_under_earlier_servers_counts(log: JobLog, store: Store, clock: Clock) -> None:
    clock.now += 3.0
    await log.record()
    assert store.jobs.job("j").seconds == 10.0


async def test_a_pause_does_not_count(log: JobLog, store: Store, clock: Clock) -> None:
    clock.now += 3.0
    for paused, seconds in ((True, 5.0), (True, 7.0), (False, 2.0)):
        log.paused = paused
        clock.now += seconds
    assert not log.paused
    await log.record()
    assert store.jobs.job("j").seconds == 7.0 + 3.0 + 2.0


async def after(clock: Clock, seconds: float, result: Result) -> Result:
    """Return a task that takes this long."""
    clock.now += seconds
    return result


def package(**spent: float) -> PackageResult:
    return PackageResult(
        files={}, achieved={}, measured={}, accuracy=1.0, validation_accuracy=1.0, spent=spent
    )


async def test_time_not_spent_by_the_worker_counts_as_waiting(
    log: JobLog, store: Store, clock: Clock
) -> None:
    first, second = package(training=2.5, packaging=0.5), package(packaging=1.0)
    assert await log.account(after(clock, 4.0, first)) is first
    assert await log.account(after(clock, 1.25, second)) is second
    await log.record()
    assert store.jobs.job("j").spent == {"training": 7.5, "packaging": 1.5, "waiting": 1.25}


async def test_waiting_starts_when_the_task_is_given_to_the_engine(
    log: JobLog, store: Store, clock: Clock
) -> None:
    waiting = log.account(after(clock, 2.0, package(packaging=1.5)))
    clock.now += 9.0
    await waiting
    await log.record()
    assert store.jobs.job("j").spent == {"training": 5.0, "packaging": 1.5, "waiting": 0.5}


async def test_the_time_of_a_failed_task_is_recorded(log: JobLog, store: Store, clock: Clock) -> None:
    failure = TaskFailure(code="INTERNAL", message="why")
    assert await log.account(after(clock, 3.0, failure)) is failure
    await log.record()
    assert store.jobs.job("j").spent == {"training": 5.0, "failed": 3.0}


async def test_a_fast_clock_of_a_worker_gives_no_negative_waiting_time(
    log: JobLog, store: Store, clock: Clock
) -> None:
    await log.account(after(clock, 1.0, package(packaging=1.5)))
    await log.record()
    assert store.jobs.job("j").spent == {"training": 5.0, "packaging": 1.5, "waiting": 0.0}


async def test_progress_has_the_share_of_the_work_and_the_time_left(
    store: Store, clock: Clock, plan: BatchPlan, wait_until: Any
) -> None:
    """Half of the work on goals that were expected to take 40 seconds took 20; 150 steps are overhead."""
    node = plan.nodes[0].model_copy(update={"seconds": 40.0})
    job = Job("j", JobState.QUEUED, GOALS, created_unix_ms=0)
    store.jobs.create(Submission(job, [plan], "[]", None))
    log = log_of(store, job, clock, plan.model_copy(update={"nodes": (node,)}))
    async with log.progress_of(["a", "b"], NODE) as record:
        record(ProgressUpdate("starting", 0, 0))
        await wait_until(lambda: len(store.jobs.events("j", 3, 9)) == 2)
        clock.now += 20.0
        record(ProgressUpdate("adapting", 150, 450))
    update = ProgressUpdate("adapting", 150, 450, job_share=0.5, seconds_left=20.0)
    assert [event.event for event in store.jobs.events("j", 5, 9)] == [update, update]
