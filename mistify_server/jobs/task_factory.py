"""The tasks of a batch's steps, made from the plan, the goals and earlier results."""

from collections.abc import Iterable

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.budget import least
from mistify.jobs.job import Goal
from mistify_server.store.plans import BatchPlan, NodePlan
from mistify_server.tasks.recipe import TaughtRecipe
from mistify_server.tasks.results import AdaptResult, BranchResult, PrepareResult, SourceResult
from mistify_server.tasks.tasks import (
    AdaptTask,
    BranchTask,
    PackageSettings,
    PackageTask,
    PrepareTask,
    ReferenceTask,
    SourceTask,
)


def source_task(plan: BatchPlan) -> SourceTask:
    """Return the task that makes the root of a batch's tree."""
    return SourceTask(recipe=plan.recipe, exceed=plan.exceed)


def prepare_task(plan: BatchPlan, algorithm: str, root: SourceResult) -> PrepareTask:
    """Return the task in which an algorithm prepares for the nodes that it will adapt.

    Args:
        root: The result of the batch's source task.
    """
    return PrepareTask(
        recipe=_taught(plan, root, algorithm=algorithm),
        least=least(node.budget for node in plan.nodes if node.algorithm == algorithm),
    )


def adapt_task(
    plan: BatchPlan,
    node: NodePlan,
    goals: Iterable[Goal],
    root: SourceResult,
    parent: str,
    *,
    prepared: PrepareResult | None,
) -> AdaptTask:
    """Return the task that adapts a node's network.

    Args:
        root: The result of the batch's source task.
        parent: Artifact of the checkpoint from which the network is adapted.
        prepared: The result of the prepare task of the node's algorithm, if it has one.
    """
    return AdaptTask(
        recipe=_of_node(plan, node, root, prepared),
        parent=parent,
        budget=node.budget,
        targets=node.targets,
        quantizations=_distinct_quantizations(goals),
    )


def branch_task(
    plan: BatchPlan,
    node: NodePlan,
    goal: Goal,
    root: SourceResult,
    adapted: AdaptResult,
    *,
    prepared: PrepareResult | None,
) -> BranchTask:
    """Return the task that adapts the branches of a goal's package.

    Args:
        goal: A goal with branches.
        root: The result of the batch's source task.
        adapted: The result of the node's adapt task.
        prepared: The result of the prepare task of the node's algorithm, if it has one.
    """
    return BranchTask(
        recipe=_of_node(plan, node, root, prepared),
        parent=adapted.checkpoint,
        budget=dict(goal.budget),
        targets=goal.targets,
        quantizations=(goal.quantization,),
        shares=goal.branches.shares if goal.branches else (),
        costs=adapted.costs,
    )


def package_task(
    plan: BatchPlan,
    node: NodePlan,
    settings: PackageSettings,
    root: SourceResult,
    adapted: AdaptResult,
    *,
    branches: BranchResult | None,
    prepared: PrepareResult | None,
) -> PackageTask:
    """Return the task that makes a goal's package.

    Args:
        settings: Settings that the goal asks for.
        root: The result of the batch's source task.
        adapted: The result of the node's adapt task.
        branches: The result of the goal's branch task; None for a package without branches.
        prepared: The result of the prepare task of the node's algorithm, if it has one.
    """
    return PackageTask(
        recipe=_of_node(plan, node, root, prepared),
        settings=settings,
        checkpoint=adapted.checkpoint,
        costs=adapted.costs,
        accuracy=adapted.accuracy,
        branches=branches,
    )


def reference_task(plan: BatchPlan, root: SourceResult, threads: Iterable[int]) -> ReferenceTask:
    """Return the task that measures a batch's source as packages are, with each number of threads."""
    return ReferenceTask(recipe=_taught(plan, root), threads=tuple(sorted(threads)))


def package_settings(job_id: str, goal: Goal) -> PackageSettings:
    """Return the settings that a goal asks for in its package."""
    return PackageSettings(
        job_id=job_id,
        goal_id=goal.id,
        budget=dict(goal.budget),
        targets=goal.targets,
        quantization=goal.quantization,
        threads=goal.threads,
        compression=goal.compression,
        tuning=goal.tuning,
        saved_model=goal.branches is not None and goal.branches.saved_model,
    )


def _of_node(
    plan: BatchPlan, node: NodePlan, root: SourceResult, prepared: PrepareResult | None
) -> TaughtRecipe:
    """Return the recipe of a node's networks."""
    artifact = prepared.prepared if prepared else None
    return _taught(plan, root, algorithm=node.algorithm, seed=node.seed, prepared=artifact)


def _taught(plan: BatchPlan, root: SourceResult, **changes: object) -> TaughtRecipe:
    """Return the recipe of a batch with its root's teacher and data, and with other values of some fields."""
    return plan.recipe.taught_by(root.teacher, data=root.data or plan.recipe.data, **changes)


def _distinct_quantizations(goals: Iterable[Goal]) -> tuple[QuantizationConfig, ...]:
    """Return the quantizations of goals, each once."""
    configs = (goal.quantization for goal in goals)
    return tuple({config.model_dump_json(): config for config in configs}.values())
