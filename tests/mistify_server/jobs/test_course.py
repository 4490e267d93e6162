"""The estimated end of a job."""

from dataclasses import replace

import pytest

from mistify.jobs.job import Goal, GoalState, ProgressUpdate
from mistify.jobs.package_spec import PackageSpec
from mistify_server.jobs.course import Course, Part
from mistify_server.store.changes import CheckpointSaved, GoalChanged, GoalsFailed
from mistify_server.store.plans import BatchPlan, BatchState, NodePlan
from mistify_server.tasks.results import AdaptResult

GOALS = [Goal(name, 0, PackageSpec({"flops": 1.0})) for name in ("a", "b")]
ADAPTED = AdaptResult(checkpoint="c", costs={}, accuracy=0.5, met=True, reason="", steps=9)


def chain_of(plan: BatchPlan, seconds: float = 90.0) -> BatchPlan:
    """Return a plan with two goals, the second adapted from the first, and 20 seconds for the source."""

    def node(index: int, parent: int | None, goal: str) -> NodePlan:
        return plan.nodes[0].model_copy(
            update={
                "index": index,
                "parent": parent,
                "goals": (goal,),
                "seconds": seconds,
                "packaging_seconds": 10.0,
            }
        )

    return plan.model_copy(update={"nodes": (node(0, None, "a"), node(1, 0, "b")), "source_seconds": 20.0})


def course_of(plan: BatchPlan, slots: int = 1) -> Course:
    return Course([BatchState(plan, None, {})], GOALS, slots)


def test_before_any_work_the_whole_plan_is_left(plan: BatchPlan) -> None:
    assert course_of(chain_of(plan)).estimate(0.0) == (0.0, 220.0)


def test_work_at_the_planned_pace_leaves_the_rest_of_the_plan(plan: BatchPlan) -> None:
    course = course_of(chain_of(plan))
    course.advance(Part(0), ProgressUpdate("tuning the source", 50, 100))
    assert course.estimate(10.0) == (pytest.approx(10 / 220), pytest.approx(210.0))
    course.advance(Part(0), ProgressUpdate("tuning the source", 100, 100))
    course.advance(Part(0, 0), ProgressUpdate("adapting", 40, 120))
    assert course.estimate(50.0) == (pytest.approx(50 / 220), pytest.approx(170.0))


def test_the_pace_so_far_corrects_the_plan_more_and_more(plan: BatchPlan) -> None:
    """All work takes twice the planned time."""
    course = course_of(chain_of(plan))
    errors = []
    for step in (0, 30, 60, 90):
        course.advance(Part(0, 0), ProgressUpdate("adapting", step, 90))
        estimated = course.estimate(2.0 * step)
        assert estimated is not None
        errors.append(2.0 * (220 - step) / estimated.seconds_left)
    assert errors[0] == 2.0
    assert errors == sorted(errors, reverse=True)
    assert 1 < errors[-1] < 1.3


def test_stages_without_steps_change_nothing(plan: BatchPlan) -> None:
    course = course_of(chain_of(plan))
    course.advance(Part(0, 0), ProgressUpdate("adapting", 45, 90))
    before = course.estimate(45.0)
    course.advance(Part(0, 0), ProgressUpdate("waiting: the disk is full", 0, 0))
    assert course.estimate(45.0) == before


def test_finished_steps_are_done_whatever_they_reported(plan: BatchPlan) -> None:
    course = course_of(chain_of(plan))
    course.apply(CheckpointSaved(0, 0, ADAPTED))
    assert course.estimate(0.0) == (pytest.approx(90 / 220), pytest.approx(130 * 55 / (90 + 55)))
    course.apply(GoalChanged(replace(GOALS[0], state=GoalState.MET)))
    assert course.estimate(100.0) == (pytest.approx(100 / 220), pytest.approx(120.0))


def test_nothing_is_left_of_goals_that_have_failed(plan: BatchPlan) -> None:
    course = course_of(chain_of(plan))
    course.apply(GoalsFailed(["b"], "because"))
    left = course.estimate(0.0)
    assert left is not None
    assert left.share == pytest.approx(100 / 220)
    course.apply(GoalsFailed(["a"], "because"))
    assert course.estimate(9.0) == (1.0, 0.0)


def test_a_restarted_job_continues_its_estimate(plan: BatchPlan) -> None:
    met = [replace(GOALS[0], state=GoalState.MET), GOALS[1]]
    restarted = Course([BatchState(chain_of(plan), None, {0: ADAPTED})], met, 1)
    running = course_of(chain_of(plan))
    running.apply(CheckpointSaved(0, 0, ADAPTED))
    running.apply(GoalChanged(met[0]))
    assert restarted.estimate(77.0) == running.estimate(77.0)


def test_goals_on_two_paths_are_adapted_at_the_same_time(plan: BatchPlan) -> None:
    chain = chain_of(plan)
    split = chain.model_copy(
        update={"nodes": tuple(node.model_copy(update={"parent": None}) for node in chain.nodes)}
    )
    assert course_of(split, slots=2).estimate(0.0) == (0.0, 120.0)


def test_added_goals_lengthen_a_job(plan: BatchPlan) -> None:
    chain = chain_of(plan)
    course = course_of(chain.model_copy(update={"nodes": chain.nodes[:1]}))
    assert course.estimate(0.0) == (0.0, 120.0)
    course.grow([chain])
    assert course.estimate(0.0) == (0.0, 220.0)


def test_without_expected_times_there_is_no_estimate(plan: BatchPlan) -> None:
    assert course_of(plan).estimate(5.0) is None
