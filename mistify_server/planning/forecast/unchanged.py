"""The plan of a batch with a model that is packaged unchanged."""

from collections.abc import Mapping

from mistify.jobs.job import Goal
from mistify.jobs.plan import PlannedBatch, PlannedEdge
from mistify_server.planning.forecast.batch_time import PACKAGING_SECONDS, STARTING_SECONDS
from mistify_server.planning.forecast.precisions import reasons_for_precisions
from mistify_server.store.plans import BatchPlan


def plan_unchanged(plan: BatchPlan, goals: Mapping[str, Goal]) -> PlannedBatch:
    """Return the plan of a batch with a model that is packaged unchanged."""
    edges = tuple(
        PlannedEdge(
            goals=node.goals,
            parent=goals[node.goals[0]].parent,
            budget=node.budget,
            algorithm="",
            choice="",
            costs=plan.source_costs,
            accuracy=None,
            targets=node.targets,
            steps=0,
            seconds=PACKAGING_SECONDS * len(node.goals),
            precisions=reasons_for_precisions(goals[goal_id] for goal_id in node.goals),
            task=node.task,
        )
        for node in plan.nodes
    )
    seconds = STARTING_SECONDS + sum(edge.seconds for edge in edges)
    return PlannedBatch(
        plan.model_name,
        plan.recipe.data.metric,
        plan.source_costs,
        None,
        0,
        STARTING_SECONDS,
        edges,
        seconds,
        "nothing to adapt",
    )
