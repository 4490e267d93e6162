"""The goals that are not met stand at the top of a job's page, the worst first."""

from dataclasses import replace

import pytest

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import OVERALL, Target
from mistify.jobs.job import Goal, GoalState, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.part import JobPage, JobPart
from mistify_server.web.pages.missed_goals import MissedGoal, MissedGoals, missed_goals
from mistify_server.web.pages.report_page import report_page
from mistify_server.web.rendering import render
from tests.support.many_goals import job_of
from tests.support.rendered import job_page

LIMIT = PackageSpec({"flops": 100.0})


def unmet(name: str, flops: float) -> Goal:
    return Goal(name, 0, LIMIT, state=GoalState.UNMET, achieved={"flops": flops})


def missed(*goals: Goal) -> MissedGoals:
    return missed_goals(replace(job_of(1), goals=goals))


def test_the_worst_goals_come_first() -> None:
    failed = Goal("failed", 0, LIMIT, state=GoalState.FAILED)
    met = Goal("met", 0, LIMIT, state=GoalState.MET, achieved={"flops": 99.0})
    assert missed(met, unmet("a", 100.04), unmet("b", 150.0), failed).worst == [
        MissedGoal("failed", "failed"),
        MissedGoal("b", "50% over its limit on multiply-adds"),
        MissedGoal("a", "less than 0.1% over its limit on multiply-adds"),
    ]
    assert [goal.by.split()[0] for goal in missed(unmet("a", 101.9), unmet("b", 102.04)).worst] == [
        "2.0%",
        "1.9%",
    ]
    many = missed(*(unmet(str(number), 100.0 + number) for number in range(1, 9)))
    assert [goal.id for goal in many.worst] == ["8", "7", "6"]
    assert many.others == 5
    assert missed(met) == MissedGoals([], 0)


def test_missed_targets_are_named() -> None:
    targets = (
        Target(OVERALL, Metric.ACCURACY, 0.9),
        Target("price", Metric.MAE, 2.0),
        Target("kind", Metric.F1, 0.5),
    )
    scores = (OutputScore("price", Metric.MAE, 3.0), OutputScore("kind", Metric.F1, 0.6))
    goal = replace(
        unmet("a", 90.0), spec=replace(LIMIT, targets=targets), accuracy=0.85, output_scores=scores
    )
    assert missed(goal).worst == [
        MissedGoal("a", "accuracy 85.0% instead of 90.0%, price: mae 3 instead of 2")
    ]


def test_a_page_names_and_links_them() -> None:
    job: Job = job_of(20)
    page = " ".join(job_page(job).split())
    assert "<b>18 of 20 goals met</b> in 8 min. Not met, the worst first: <a href=" in page
    last = job.goals[13].id
    assert (
        f'<a href="/jobs/demo-20/goals/{last}">{last}</a> <span class="missed">(2.0% over its limit' in page
    )
    assert "Not met" not in job_page(job_of(3))


@pytest.mark.parametrize(
    ("state", "goals", "shown"),
    [
        (JobState.DONE, 3, '<span class="state done">done</span>'),
        (JobState.DONE, 20, '<span class="state partly">done, 2 goals not met</span>'),
        (JobState.RUNNING, 20, '<span class="state running">running</span>'),
        (JobState.FAILED, 20, '<span class="state failed">failed</span>'),
    ],
)
def test_a_job_that_is_done_says_how_many_goals_are_missed(state: JobState, goals: int, shown: str) -> None:
    job = replace(job_of(goals), state=state)
    assert shown in job_page(job)
    assert shown in report_page(job)
    part = JobPart(job, goals, sum(goal.state is GoalState.MET for goal in job.goals))
    assert shown in jobs_page(part)


def test_a_job_without_a_met_goal_is_not_shown_as_partly_done() -> None:
    job = job_of(1)
    assert '<span class="state unmet">done, 1 goal not met</span>' in job_page(
        replace(job, goals=(replace(job.goals[0], state=GoalState.UNMET),))
    )


def jobs_page(part: JobPart) -> str:
    """Return the list of jobs with a single one."""
    common = {"path": "/", "needs_token": False, "in_session": False, "caller": None, "base_url": ""}
    return render("jobs.html", page=JobPage([part], ""), search="", removed=False, **common)
