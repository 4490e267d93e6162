"""Construction of a batch's goal tree (paper 4.3)."""

from collections.abc import Iterable, Sequence

from mistify.config.adaptation_goal import AdaptationGoal
from mistify.config.data.targets import OVERALL, Target
from mistify.config.reading import goal_budget
from mistify.costs.budget import Budget, Costs, source_axis
from mistify.jobs.job import Goal
from mistify.jobs.package_spec import PackageSpec
from mistify_server.planning.batch import ResolvedBatch
from mistify_server.planning.insertion import insert_goals
from mistify_server.planning.tasks import canonical_task
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.results import Inspection
from mistify_server.tasks.sources import DataSource

#: Maximum factor by which widening may raise a source's costs: the largest factor in the paper's evaluation
#: (8.1, adaptation quality).
MAX_EXPANSION = 4.0


def plan_batch(resolved: ResolvedBatch, inspection: Inspection) -> tuple[BatchPlan, list[Goal]]:
    """Return the goal tree of a batch, parents first, and its goals in the order of the configs."""
    resolved = resolved.as_inspected(inspection)
    batch = resolved.batch
    hardware = {**resolved.hardware, **inspection.hardware}
    without_nodes = BatchPlan(
        number=resolved.number,
        model_name=batch.model,
        dataset=batch.dataset,
        recipe=resolved.recipe.model_copy(update={"hardware": hardware}),
        source_costs=inspection.costs,
        floor=inspection.floor,
        inputs=inspection.inputs,
        classes=inspection.classes,
        adaptable=inspection.adaptable,
        estimates=inspection.estimates,
        exceed={},
        nodes=(),
    )
    asked = asked_goals(resolved, inspection.costs, inspection.classes)
    plan, goals = insert_goals(without_nodes, {}, asked)
    roots = (node.budget for node in plan.nodes if node.parent is None)
    return plan.model_copy(update={"exceed": expansion(roots, inspection.costs)}), goals


def asked_goals(
    resolved: ResolvedBatch, source_costs: Costs, classes: Sequence[str] | None = None
) -> list[Goal]:
    """Return the goals of a batch in the order of the configs, before they have parents.

    Args:
        classes: Names of the source's classes; None if they are unknown.
    """
    return [
        Goal(
            id=config.id,
            batch=resolved.number,
            spec=PackageSpec(
                budget=goal_budget(config, source_costs),
                targets=_targets(config.adaptation_goal, resolved.data),
                quantization=config.quantization,
                threads=config.threads,
                branches=config.branches,
                exits=config.exits,
                compression=config.compression,
                tuning=config.tuning,
                task=canonical_task(config.task, classes),
            ),
            metric=resolved.data.metric,
            precision_choice=resolved.precision_choices.get(config.id, ""),
        )
        for config in resolved.batch.configs
    ]


def _targets(goal: AdaptationGoal, data: DataSource) -> tuple[Target, ...]:
    """Return the targets of a goal, by the metrics of its data."""
    metrics = {**data.settings.metrics, OVERALL: data.metric}
    return tuple(Target(output, metrics[output], figure) for output, figure in (goal.accuracy or {}).items())


def expansion(root_budgets: Iterable[Budget], source_costs: Costs) -> dict[str, float]:
    """Return the costs that the widened source must exceed so that every root goal can be cut from it.

    On each axis this is the largest limit of a root goal, at most `MAX_EXPANSION` times the source's cost.
    Axes on which the float32 source already reaches this limit are omitted. The size of an int8 goal is
    compared with the size of the float32 source, so int8 alone does not widen the source.
    """
    largest: dict[str, float] = {}
    for budget in root_budgets:
        for axis, limit in budget.items():
            largest[axis] = max(limit, largest.get(axis, 0.0))
    return {
        axis: min(limit, MAX_EXPANSION * source_costs[axis])
        for axis, limit in largest.items()
        if limit > source_costs[source_axis(axis)]
    }
