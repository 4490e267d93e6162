"""Collective adaptation of one batch (paper 4.3): the source, then goal after goal, then packages."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from mistify.budget import LATENCY, SIZE, meets
from mistify.errors import Problem
from mistify.jobs import Goal, GoalState, PackageFile
from mistify_server.adaptor.agenda import Agenda
from mistify_server.adaptor.joblog import JobLog
from mistify_server.engines.base import Engine
from mistify_server.store.artifacts import Artifacts, digest_of
from mistify_server.store.base import BatchState, CheckpointSaved, GoalChanged, NodePlan, RootSaved
from mistify_server.tasks import (
    AdaptResult,
    AdaptTask,
    PackageResult,
    PackageTask,
    Result,
    SourceResult,
    SourceTask,
    TaskFailure,
)

# Packages go first, as they end goals; then the trees are descended depth first.
_PACKAGE_RANK, _TREE_RANK = 0, 1


class CollectiveAdaptation:
    """Puts the steps of a batch on the agenda, each as soon as what it starts from is there.

    What the store has is not made again, and whatever is made is in the store before anything is told
    of it: the work can be broken off at any point. A node that did not meet its goals is still the best
    there is for its children to start from; one that failed fails its subtree.
    """

    def __init__(
        self, state: BatchState, log: JobLog, engine: Engine, artifacts: Artifacts, agenda: Agenda
    ) -> None:
        self._plan = state.plan
        self._root = state.root
        self._checkpoints = dict(state.checkpoints)
        self._log = log
        self._engine = engine
        self._artifacts = artifacts
        self._agenda = agenda
        self._children: dict[int | None, list[NodePlan]] = {}
        self._rank = {node.index: place for place, node in enumerate(self._plan.nodes)}
        for node in self._plan.nodes:
            self._children.setdefault(node.parent, []).append(node)

    def begin(self) -> None:
        """Put the first step on the agenda, if anything is left to do."""
        if any(self._log.open_goals(node.goals) for node in self._plan.nodes):
            self._agenda.add((_TREE_RANK, self._plan.number, -1), self._make_root)

    async def _make_root(self) -> None:
        root = self._root
        if root is None:
            result = await self._engine.run(self._source_task(), self._log.follow(()))
            if not isinstance(result, SourceResult):
                self._fail(self._plan.nodes, f"the source could not be prepared: {_reason(result)}")
                return
            root = result
            self._log.record(RootSaved(self._plan.number, root))
        for node in self._children.get(None, ()):
            self._descend(node, root, root.root)

    def _descend(self, node: NodePlan, root: SourceResult, parent: str) -> None:
        """Go on with a node, whose parent's checkpoint is there."""
        if node.index in self._checkpoints or self._log.open_goals(node.goals):
            rank = (_TREE_RANK, self._plan.number, self._rank[node.index])
            self._agenda.add(rank, partial(self._adapt, node, root, parent))

    async def _adapt(self, node: NodePlan, root: SourceResult, parent: str) -> None:
        adapted = self._checkpoints.get(node.index)
        if adapted is None:
            result = await self._engine.run(
                self._adapt_task(node, root, parent), self._log.follow(node.goals)
            )
            if not isinstance(result, AdaptResult):
                self._fail_subtree(node, _reason(result))
                return
            adapted = result
            self._log.record(CheckpointSaved(self._plan.number, node.index, adapted))
        for child in self._children.get(node.index, ()):
            self._descend(child, root, adapted.checkpoint)
        for goal in self._log.open_goals(node.goals):
            rank = (_PACKAGE_RANK, self._plan.number, self._rank[node.index])
            self._agenda.add(rank, partial(self._package, node, goal.id, adapted))

    async def _package(self, node: NodePlan, goal_id: str, adapted: AdaptResult) -> None:
        goal = self._log.goal(goal_id)
        result = await self._engine.run(self._package_task(goal, adapted), self._log.follow([goal_id]))
        if not isinstance(result, PackageResult):
            self._log.record(GoalChanged(_failed(goal, f"the package could not be made: {_reason(result)}")))
            return
        files = tuple(
            PackageFile(name, self._artifacts.size(artifact), digest_of(artifact))
            for name, artifact in sorted(result.files.items())
        )
        met, reason = _verdict(goal, node, adapted, result)
        self._log.record(
            GoalChanged(
                replace(
                    goal,
                    state=GoalState.MET if met else GoalState.UNMET,
                    achieved={
                        **adapted.costs,
                        SIZE: float(result.size_bytes),
                        LATENCY: result.measured_latency_ms,
                    },
                    accuracy=adapted.accuracy,
                    reason=reason,
                    seconds=adapted.seconds,
                    steps=adapted.steps,
                    files=files,
                )
            )
        )

    def _fail_subtree(self, node: NodePlan, reason: str) -> None:
        below = [node]
        for ancestor in below:  # grows while it is walked
            below += self._children.get(ancestor.index, ())
        failed = [_failed(goal, reason) for goal in self._log.open_goals(node.goals)]
        because = f"the goal {node.goals[0]}, from which it is adapted, failed: {reason}"
        failed += [
            _failed(goal, because) for other in below[1:] for goal in self._log.open_goals(other.goals)
        ]
        self._log.record(*map(GoalChanged, failed))

    def _fail(self, nodes: Iterable[NodePlan], reason: str) -> None:
        failed = [_failed(goal, reason) for node in nodes for goal in self._log.open_goals(node.goals)]
        self._log.record(*map(GoalChanged, failed))

    def _source_task(self) -> SourceTask:
        plan = self._plan
        return SourceTask(
            model=plan.model,
            data=plan.data,
            algorithm=plan.algorithm,
            algorithm_config=plan.algorithm_config,
            hardware=plan.hardware,
            exceed=plan.exceed,
            seed=plan.seed,
        )

    def _adapt_task(self, node: NodePlan, root: SourceResult, parent: str) -> AdaptTask:
        plan = self._plan
        return AdaptTask(
            parent=parent,
            teacher=root.teacher,
            data=plan.data,
            algorithm=plan.algorithm,
            algorithm_config=plan.algorithm_config,
            hardware=plan.hardware,
            budget=node.budget,
            accuracy_target=node.accuracy_target,
            seed=node.seed,
        )

    def _package_task(self, goal: Goal, adapted: AdaptResult) -> PackageTask:
        return PackageTask(
            checkpoint=adapted.checkpoint,
            data=self._plan.data,
            goal_id=goal.id,
            job_id=self._log.job_id,
            budget=dict(goal.budget),
            accuracy_target=goal.accuracy_target,
            costs=adapted.costs,
            accuracy=adapted.accuracy,
            hardware=self._plan.hardware,
        )


def _verdict(goal: Goal, node: NodePlan, adapted: AdaptResult, package: PackageResult) -> tuple[bool, str]:
    """Whether a goal is met, and why not.

    The node may have been asked for more accuracy than this goal of it; the size of a package is known
    only when it is made.
    """
    met = adapted.met
    if goal.accuracy_target != node.accuracy_target:
        met = meets(adapted.costs, goal.budget) and adapted.accuracy >= (goal.accuracy_target or 0.0)
    limit = goal.budget.get(SIZE)
    if met and limit is not None and package.size_bytes > limit:
        return False, f"the package takes {package.size_bytes:,} bytes, the goal allows {limit:,.0f}"
    return met, "" if met else adapted.reason


def _failed(goal: Goal, reason: str) -> Goal:
    return replace(goal, state=GoalState.FAILED, reason=reason)


def _reason(result: Result) -> str:
    if not isinstance(result, TaskFailure):
        return f"the worker answered with {result.kind}"
    return "\n".join([result.message, *(str(Problem(*problem)) for problem in result.problems)])
