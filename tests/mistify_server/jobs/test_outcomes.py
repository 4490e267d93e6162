"""Outcomes of goals, and remarks on unexpected losses of accuracy."""

import pytest

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Target
from mistify.config.task import TaskConfig
from mistify.jobs.comparison import accuracy_change
from mistify.jobs.job import Goal, GoalState, Source
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.plan import Estimate
from mistify_server.jobs.outcomes import outage_in, packaged_goal
from mistify_server.tasks.results import AdaptResult, PackageResult, TaskFailure
from tests.support.targets import overall


def packaged(
    accuracy: float,
    teacher: float,
    foreseen: Estimate | None,
    metric: Metric = Metric.ACCURACY,
    note: str = "",
) -> Goal:
    """Return a goal within its budget, with a different accuracy on the test data."""
    adapted = AdaptResult(
        checkpoint="c", costs={"flops": 4.0}, accuracy=accuracy, met=True, reason="", steps=3
    )
    package = PackageResult(
        files={}, achieved={}, measured={}, accuracy=0.5, validation_accuracy=accuracy, note=note
    )
    goal = Goal("a", 0, PackageSpec({"flops": 5.0}), metric=metric)
    return packaged_goal(goal, adapted, None, package, [], teacher_accuracy=teacher, foreseen=foreseen)


@pytest.mark.parametrize(
    ("accuracy", "teacher", "foreseen", "metric"),
    [
        (0.86, 0.9, Estimate(0.01, 0.01), Metric.ACCURACY),  # 4.4% compared with 1% and 2 standard deviations
        (0.80, 0.9, None, Metric.ACCURACY),
        (0.03, 0.02, None, Metric.MSE),
        (0.03, 0.02, Estimate(0.1, 0.1), Metric.MSE),
    ],
)
def test_a_loss_beyond_the_forecast_is_reported(
    accuracy: float, teacher: float, foreseen: Estimate | None, metric: Metric
) -> None:
    goal = packaged(accuracy, teacher, foreseen, metric)
    assert goal.state is GoalState.MET
    assert goal.note.startswith("lost ")


@pytest.mark.parametrize(
    ("accuracy", "teacher", "foreseen", "metric"),
    [
        (0.88, 0.9, Estimate(0.01, 0.01), Metric.ACCURACY),
        (0.50, 0.9, Estimate(0.2, 0.2), Metric.ACCURACY),
        (0.82, 0.9, None, Metric.ACCURACY),
        (0.95, 0.9, Estimate(0.01, 0.01), Metric.ACCURACY),
        (0.021, 0.02, None, Metric.MSE),
    ],
)
def test_a_loss_within_the_forecast_is_not_reported(
    accuracy: float, teacher: float, foreseen: Estimate | None, metric: Metric
) -> None:
    assert packaged(accuracy, teacher, foreseen, metric).note == ""


def judged(price: float, reason: str = "", checkpoint: float = 0.04) -> Goal:
    """Return a goal with two targets and a package with the given score of an output."""
    adapted = AdaptResult(
        checkpoint="c", costs={"flops": 4.0}, accuracy=0.9, met=not reason, reason=reason, steps=3,
        output_scores=(OutputScore("price", Metric.MSE, checkpoint),),
    )  # fmt: skip
    package = PackageResult(
        files={}, achieved={}, measured={}, accuracy=0.9, validation_accuracy=0.9,
        output_scores=(OutputScore("price", Metric.MSE, price),),
        validation_output_scores=(OutputScore("price", Metric.MSE, 0.0),),
    )  # fmt: skip
    goal = Goal(
        "a", 0, PackageSpec({"flops": 5.0}, targets=(*overall(0.8), Target("price", Metric.MSE, 0.05)))
    )
    return packaged_goal(goal, adapted, None, package, [], teacher_accuracy=0.9, foreseen=None)


def test_a_goal_is_met_if_every_target_is_reached_on_the_test_data() -> None:
    assert judged(0.05).state is GoalState.MET
    missed = judged(0.06)
    assert (missed.state, missed.reason) == (
        GoalState.UNMET,
        "price: mse 0.0600 above 0.0500 on the test data as none; the checkpoint has price 0.0400 in float32 "
        "on the validation data",
    )
    assert judged(0.06, "too few steps", 0.07).reason == (
        "price: mse 0.0600 above 0.0500 on the test data; too few steps"
    )


def test_the_remark_states_the_actual_and_the_predicted_loss() -> None:
    note = packaged(0.72, 0.9, Estimate(0.012, 0.005), note="as int8: not faster").note
    assert note == (
        "as int8: not faster; lost 20.0% of the tuned source's accuracy, more than the predicted 1.2% ± "
        "1.0%: 72.0% against 90.0% on the validation data"
    )
    assert "more than 10%: 72.0% against 90.0%" in packaged(0.72, 0.9, None).note


def test_a_package_of_one_task_is_not_compared_with_the_source_of_all() -> None:
    adapted = AdaptResult(checkpoint="c", costs={"flops": 4.0}, accuracy=0.5, met=True, reason="", steps=3)
    package = PackageResult(
        files={},
        achieved={},
        measured={},
        accuracy=0.5,
        metric=Metric.BALANCED_AGREEMENT,
        validation_accuracy=0.5,
    )
    goals = [
        Goal("a", 0, PackageSpec({"flops": 5.0}, task=task))
        for task in (None, TaskConfig(classes=("cat", "dog")))
    ]
    whole, of_task = (
        packaged_goal(goal, adapted, None, package, [], teacher_accuracy=0.9, foreseen=None) for goal in goals
    )
    assert whole.note.startswith("lost 44.4%")
    assert of_task.note == ""
    assert of_task.metric is Metric.BALANCED_AGREEMENT
    source = Source({}, tuned_accuracy=0.9)
    assert accuracy_change(whole, 0.5, source) == pytest.approx(-0.4)
    assert accuracy_change(of_task, 0.5, source) is None


@pytest.mark.parametrize(
    ("code", "waits"),
    [("UNAVAILABLE", True), ("STORE_REFUSED", True), ("INTERNAL", False), ("OF_A_NEWER_WORKER", False)],
)
def test_a_job_waits_for_the_end_of_an_outage_only(code: str, waits: bool) -> None:
    outage = outage_in(TaskFailure(code=code, message="no room"))
    assert (None if outage is None else outage.code.name) == (code if waits else None)
