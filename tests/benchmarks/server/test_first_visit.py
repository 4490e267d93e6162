"""The benchmark of pages visits only jobs whose goals all have packages."""

import pytest

from benchmarks.server.first_visit import GOALS, check_packaged
from mistify.jobs.job import Goal, GoalState, Job, JobState
from mistify.jobs.package_spec import PackageSpec


def job(state: str = "done", count: int = GOALS, last: str = "met") -> Job:
    states = ["unmet", *["met"] * (count - 2), last]
    goals = tuple(
        Goal(f"g{number}", 0, PackageSpec({}), state=GoalState(each), reason="why")
        for number, each in enumerate(states)
    )
    return Job("job", JobState(state), goals, 0)


def test_missed_goals_have_packages_too() -> None:
    check_packaged(job())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (job("failed", last="failed"), "the job is failed, 20 goals of 20: g19 is failed: why"),
        (job(last="failed"), "the job is done, 20 goals of 20: g19 is failed: why"),
        (job("cancelled"), "the job is cancelled"),
        (job("running"), "the job is running"),
        (job(count=GOALS - 1), "the job is done, 19 goals of 20"),
    ],
)
def test_a_job_without_all_packages_ends_the_benchmark(wrong: Job, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        check_packaged(wrong)
