"""The expected work on a batch, which its plan keeps for the progress of the job."""

from collections.abc import Sequence
from dataclasses import replace

from mistify.jobs.job import Goal
from mistify_server.planning.forecast.batch_time import PACKAGING_SECONDS
from mistify_server.planning.forecast.forecast import Forecast
from mistify_server.store.plans import BatchPlan


def with_expected_work(
    plan: BatchPlan, goals: Sequence[Goal], forecast: Forecast | None
) -> tuple[BatchPlan, list[Goal]]:
    """Return a plan with the expected work on goals, and the goals with their algorithms and warnings.

    Args:
        forecast: The forecast of the plan; None if the model is packaged unchanged.
    """
    if forecast is None:
        return _with_packages_alone(plan), list(goals)
    node_of = {goal_id: node for node in forecast.plan.nodes for goal_id in node.goals}
    return forecast.with_work({goal.id: goal for goal in goals}), [
        replace(
            goal,
            algorithm=node_of[goal.id].algorithm,
            choice=node_of[goal.id].choice,
            warning=forecast.warning(node_of[goal.id], goal.spec.quantization.precision),
        )
        for goal in goals
    ]


def _with_packages_alone(plan: BatchPlan) -> BatchPlan:
    """Return a plan whose source and nodes take as long as packages."""
    nodes = (
        node.model_copy(update={"packaging_seconds": PACKAGING_SECONDS * len(node.goals)})
        for node in plan.nodes
    )
    return plan.model_copy(update={"nodes": tuple(nodes), "source_seconds": PACKAGING_SECONDS})
