"""Creation of the tasks for a batch's steps from the plan, the goals and earlier results."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.budget import least
from mistify.jobs.job import Goal
from mistify_server.store.plans import BatchPlan, NodePlan
from mistify_server.tasks.recipe import TaughtRecipe
from mistify_server.tasks.results import AdaptResult, BranchResult, PrepareResult, SourceResult
from mistify_server.tasks.tasks import (
    AdaptTask,
    BranchTask,
    PackageTask,
    PrepareTask,
    ReferenceTask,
    SourceTask,
)

#: The number of goals of a batch at one precision from which they share a converted file: making it takes two
#: conversions.
_SHARING: Final = 3


def source_task(plan: BatchPlan) -> SourceTask:
    """Return the task that makes the root of a batch's tree."""
    return SourceTask(recipe=plan.recipe, exceed=plan.exceed)


@dataclass(frozen=True)
class TaskFactory:
    """Makes the tasks of a batch with a root.

    Attributes:
        root: Result of the batch's source task.
        preparations: Name (`BatchPlan.preparation_of`) -> result of the prepare task.
    """

    job_id: str
    plan: BatchPlan
    root: SourceResult
    preparations: Mapping[str, PrepareResult]

    def prepare(self, preparation: str) -> PrepareTask:
        """Return the task that makes a preparation for the nodes that need it."""
        nodes = [node for node in self.plan.nodes if self.plan.preparation_of(node) == preparation]
        return PrepareTask(
            recipe=self._recipe(algorithm=nodes[0].algorithm),
            least=least(node.budget for node in nodes),
            task=self.plan.prepared_task(nodes[0]),
        )

    def adapt(self, node: NodePlan, goals: Iterable[Goal], parent: str) -> AdaptTask:
        """Return the task that adapts a node's network from a parent's checkpoint, for the node's goals."""
        return AdaptTask(
            recipe=self._recipe_of(node),
            parent=parent,
            budget=node.budget,
            targets=node.targets,
            quantizations=_distinct_quantizations(goals),
            task=node.task,
            planned_steps=node.steps,
        )

    def branch(self, node: NodePlan, goal: Goal, adapted: AdaptResult) -> BranchTask:
        """Return the task that adapts the branches of a goal's package from its node's checkpoint."""
        spec = goal.spec
        return BranchTask(
            recipe=self._recipe_of(node),
            parent=adapted.checkpoint,
            budget=dict(spec.budget),
            targets=spec.targets,
            quantizations=(spec.quantization,),
            shares=spec.branches.shares if spec.branches else (),
            costs=adapted.costs,
        )

    def package(
        self,
        node: NodePlan,
        goal: Goal,
        adapted: AdaptResult,
        branches: BranchResult | None,
        goals: Iterable[Goal],
    ) -> PackageTask:
        """Return the task that packages a goal's checkpoint and branches.

        Args:
            goals: All goals of the batch, read only as far as necessary.
        """
        alike = (one for one in goals if one.spec.quantization == goal.spec.quantization)
        return PackageTask(
            recipe=self._recipe_of(node),
            job_id=self.job_id,
            goal_id=goal.id,
            spec=goal.spec,
            checkpoint=adapted.checkpoint,
            costs=adapted.costs,
            accuracy=adapted.accuracy,
            branches=branches,
            shares_conversion=len(list(islice(alike, _SHARING))) == _SHARING,
        )

    def reference(self, threads: Iterable[int]) -> ReferenceTask:
        """Return the task that measures the source like a package, with each number of threads."""
        return ReferenceTask(recipe=self._recipe(), threads=tuple(sorted(threads)))

    def _recipe_of(self, node: NodePlan) -> TaughtRecipe:
        made = self.preparations.get(self.plan.preparation_of(node))
        return self._recipe(
            algorithm=node.algorithm, seed=node.seed, prepared=made.prepared if made else None
        )

    def _recipe(self, **changes: object) -> TaughtRecipe:
        """Return the batch's recipe with its root as the teacher, and with changes to some fields."""
        recipe = self.plan.recipe
        return recipe.taught_by(self.root.teacher, data=self.root.data or recipe.data, **changes)


def _distinct_quantizations(goals: Iterable[Goal]) -> tuple[QuantizationConfig, ...]:
    """Return the quantizations of goals, each once."""
    configs = (goal.spec.quantization for goal in goals)
    return tuple({config.model_dump_json(): config for config in configs}.values())
