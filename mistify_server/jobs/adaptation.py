"""Collective adaptation of one batch (paper 4.3): the source, then goal after goal, then packages."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from mistify.config.quantization import QuantizationConfig
from mistify.costs.budget import Costs, exceeded, excess
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, GoalState, PackageFile
from mistify_server.engines.base import Engine
from mistify_server.jobs.log import JobLog
from mistify_server.jobs.step_queue import Step, StepQueue
from mistify_server.planning.forecast.records import record_of
from mistify_server.planning.precision import Attempt, safer
from mistify_server.store.artifacts import Artifacts, digest_of
from mistify_server.store.changes import BranchesSaved, CheckpointSaved, GoalChanged, RootSaved
from mistify_server.store.plans import BatchPlan, BatchState, NodePlan
from mistify_server.tasks.results import (
    AdaptResult,
    BranchResult,
    PackageResult,
    Result,
    SourceResult,
    TaskFailure,
)
from mistify_server.tasks.tasks import (
    AdaptTask,
    BranchTask,
    PackageSettings,
    PackageTask,
    SourceTask,
    Task,
)

# Packages go first, as they end goals; then the trees are descended depth first.
_PACKAGE_RANK, _TREE_RANK = 0, 1


class CollectiveAdaptation:
    """Puts the steps of a batch on the queue, each as soon as what it starts from is there.

    What the store has is not made again, and whatever is made is in the store before anything is told
    of it: the work can be broken off at any point. A node that did not meet its goals is still the best
    there is for its children to start from; one that failed fails its subtree. The tree may grow at any
    time.
    """

    def __init__(
        self, state: BatchState, log: JobLog, engine: Engine, artifacts: Artifacts, queue: StepQueue
    ) -> None:
        self._plan = state.plan
        self._root = state.root
        self._checkpoints = dict(state.checkpoints)
        self._branches = dict(state.branches)
        self._log = log
        self._engine = engine
        self._artifacts = artifacts
        self._queue = queue
        self._begun: set[int | str | None] = set()
        self._arrange()

    def queue_steps(self) -> None:
        """Put the steps that can be done on the queue, each once."""
        if not any(self._log.open_goals(node.goals) for node in self._plan.nodes):
            return
        if self._root is None:
            self._put(None, (_TREE_RANK, self._plan.number, -1), self._make_root)
            return
        for index in (None, *self._checkpoints):
            self._go_on(self._root, index)

    def grow(self, plan: BatchPlan) -> None:
        """Take up the nodes and goals by which the batch's plan has grown."""
        self._plan = plan
        self._arrange()
        self.queue_steps()

    def _arrange(self) -> None:
        self._nodes = {node.index: node for node in self._plan.nodes}
        self._rank = {index: place for place, index in enumerate(self._nodes)}
        self._children: dict[int | None, list[NodePlan]] = {}
        for node in self._plan.nodes:
            self._children.setdefault(node.parent, []).append(node)

    def _put(self, what: int | str | None, rank: tuple[int, ...], step: Step) -> None:
        """Put the step of the root (None), a node (its index) or a package (its goal) on the queue, once."""
        if what not in self._begun:
            self._begun.add(what)
            self._queue.add(rank, step)

    async def _make_root(self) -> None:
        result = await self._run(self._source_task(), ())
        if not isinstance(result, SourceResult):
            self._begun.discard(None)  # goals that are added later try it again
            self._fail(self._plan.nodes, f"the source could not be prepared: {_reason(result)}")
            return
        self._log.record(RootSaved(self._plan.number, result))
        self._root = result
        self._go_on(result, None)

    def _go_on(self, root: SourceResult, index: int | None) -> None:
        """Put on the queue what starts from the checkpoint of a node, or from the root where it is None."""
        made = None if index is None else self._checkpoints[index]
        checkpoint = root.root if made is None else made.checkpoint
        for child in self._children.get(index, ()):
            if child.index not in self._checkpoints and self._log.open_goals(child.goals):
                rank = (_TREE_RANK, self._plan.number, self._rank[child.index])
                self._put(child.index, rank, partial(self._adapt, child.index, root, checkpoint))
        if index is None or made is None:
            return
        for goal in self._log.open_goals(self._nodes[index].goals):
            rank = (_PACKAGE_RANK, self._plan.number, self._rank[index])
            self._put(goal.id, rank, partial(self._finish, index, goal.id, made, root))

    async def _adapt(self, index: int, root: SourceResult, parent: str) -> None:
        node = self._nodes[index]
        result = await self._run(self._adapt_task(node, root, parent), node.goals)
        if not isinstance(result, AdaptResult):
            self._fail_subtree(index, _reason(result))
            return
        above = self._checkpoints.get(node.parent) if node.parent is not None else None
        costs = root.root_costs if above is None else above.costs
        record = record_of(self._plan, node, root, costs, result)
        self._log.record(CheckpointSaved(self._plan.number, index, result, record))
        self._checkpoints[index] = result
        self._go_on(root, index)

    async def _finish(self, index: int, goal_id: str, adapted: AdaptResult, root: SourceResult) -> None:
        """Make a goal's package, and before that, where it is asked for, the branches that it has."""
        goal = self._log.goal(goal_id)
        if goal.branches is not None and goal_id not in self._branches:
            made = await self._run(self._branch_task(goal, index, adapted, root), [goal_id])
            if not isinstance(made, BranchResult):
                reason = f"the branches could not be made: {_reason(made)}"
                self._log.record(GoalChanged(_failed(goal, reason)))
                return
            self._log.record(BranchesSaved(goal_id, made))
            self._branches[goal_id] = made
        await self._package(index, goal_id, adapted, root)

    async def _package(self, index: int, goal_id: str, adapted: AdaptResult, root: SourceResult) -> None:
        made = await self._packaged(index, self._log.goal(goal_id), adapted, root)
        goal, result = made.goal, made.result
        if not isinstance(result, PackageResult):
            self._log.record(GoalChanged(_failed(goal, f"the package could not be made: {_reason(result)}")))
            return
        branches = self._branches.get(goal_id)
        files = tuple(
            PackageFile(name, self._artifacts.size(artifact), digest_of(artifact))
            for name, artifact in sorted(result.files.items())
        )
        achieved = {**adapted.costs, **result.achieved}
        reason = _shortfall(goal, {**achieved, **result.measured}, adapted, result)
        self._log.record(
            GoalChanged(
                replace(
                    goal,
                    state=GoalState.UNMET if reason else GoalState.MET,
                    achieved=achieved,
                    measured=result.measured,
                    accuracy=result.accuracy,
                    reason=reason,
                    note=result.note,
                    seconds=adapted.seconds + (branches.seconds if branches else 0.0),
                    steps=adapted.steps + (branches.steps if branches else 0),
                    files=files,
                    branch_figures=result.branches,
                )
            )
        )

    async def _packaged(self, index: int, goal: Goal, adapted: AdaptResult, root: SourceResult) -> Attempt:
        """A goal's package; where the server chose its precision and it falls short, at a safer one."""
        made = Attempt(goal, await self._run(self._package_task(goal, index, adapted, root), [goal.id]))
        for other in safer(goal, adapted):
            if not made.falls_short(adapted):
                break
            result = await self._run(self._package_task(other, index, adapted, root), [goal.id])
            made = made.improved(Attempt(other, result), adapted)
        return made

    async def _run(self, task: Task, goal_ids: Sequence[str]) -> Result:
        """The result of a task that serves some goals, or the source where there are none.

        Raises:
            MistifyError: UNAVAILABLE, nothing can be run, or what was made cannot be kept, such as on a full
                disk. That is no fault of the goals: they go on once the server is started again.
        """
        result = await self._log.account(self._engine.run(task, self._log.progress_of(goal_ids)))
        if isinstance(result, TaskFailure) and result.code == ErrorCode.UNAVAILABLE.name:
            raise MistifyError(ErrorCode.UNAVAILABLE, result.message)
        return result

    def _fail_subtree(self, index: int, reason: str) -> None:
        node = self._nodes[index]
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
            prepare=tuple(sorted({node.algorithm for node in plan.nodes if node.algorithm})),
        )

    def _adapt_task(self, node: NodePlan, root: SourceResult, parent: str) -> AdaptTask:
        plan = self._plan
        return AdaptTask(
            parent=parent,
            teacher=root.teacher,
            data=root.data or plan.data,
            algorithm=node.algorithm,
            algorithm_config=plan.algorithm_config,
            hardware=plan.hardware,
            budget=node.budget,
            accuracy_target=node.accuracy_target,
            seed=node.seed,
            quantizations=self._quantizations(node),
            prepared=root.prepared.get(node.algorithm),
        )

    def _quantizations(self, node: NodePlan) -> tuple[QuantizationConfig, ...]:
        """What the goals of a node are packaged as, each once."""
        asked = (self._log.goal(goal_id).quantization for goal_id in node.goals)
        return tuple({config.model_dump_json(): config for config in asked}.values())

    def _branch_task(self, goal: Goal, index: int, adapted: AdaptResult, root: SourceResult) -> BranchTask:
        plan, node = self._plan, self._nodes[index]
        return BranchTask(
            parent=adapted.checkpoint,
            teacher=root.teacher,
            data=root.data or plan.data,
            algorithm=node.algorithm,
            algorithm_config=plan.algorithm_config,
            hardware=plan.hardware,
            budget=dict(goal.budget),
            seed=node.seed,
            quantizations=(goal.quantization,),
            prepared=root.prepared.get(node.algorithm),
            shares=goal.branches.shares if goal.branches else (),
            costs=adapted.costs,
        )

    def _package_task(self, goal: Goal, index: int, adapted: AdaptResult, root: SourceResult) -> PackageTask:
        plan = self._plan
        return PackageTask(
            settings=_package_settings(self._log.job_id, goal),
            checkpoint=adapted.checkpoint,
            costs=adapted.costs,
            accuracy=adapted.accuracy,
            branches=self._branches.get(goal.id),
            teacher=root.teacher,
            data=root.data or plan.data,
            algorithm=plan.algorithm,
            algorithm_config=plan.algorithm_config,
            hardware=plan.hardware,
            seed=self._nodes[index].seed,
        )


def _package_settings(job_id: str, goal: Goal) -> PackageSettings:
    """Return what a goal asks of its package."""
    return PackageSettings(
        job_id=job_id,
        goal_id=goal.id,
        budget=dict(goal.budget),
        accuracy_target=goal.accuracy_target,
        quantization=goal.quantization,
        compression=goal.compression,
        tuning=goal.tuning,
        saved_model=goal.branches is not None and goal.branches.saved_model,
    )


def _shortfall(goal: Goal, costs: Costs, adapted: AdaptResult, package: PackageResult) -> str:
    """What a goal asks for and its package does not give, in words; empty when the goal is met.

    Args:
        goal: The goal.
        costs: Of the package: the checkpoint's, but for what was measured.
        adapted: The checkpoint, which may have been asked for more accuracy than this goal asks for.
        package: What was made of it.
    """
    over = excess(costs, goal.budget)
    reached = goal.metric.reaches(adapted.accuracy, goal.accuracy_target)
    if adapted.reason and (exceeded(adapted.costs, goal.budget) if over else not reached):
        return adapted.reason
    if over:
        return f"{over}, as measured on the package"
    missed = goal.metric.missed(package.accuracy, goal.accuracy_target)
    if missed:
        made = goal.quantization.precision.value
        if goal.compression is not None:
            made += f" with {goal.compression}"
        return f"{missed} as {made}; the checkpoint has {adapted.accuracy:.4f} in float32"
    return ""


def _failed(goal: Goal, reason: str) -> Goal:
    return replace(goal, state=GoalState.FAILED, reason=reason)


def _reason(result: Result) -> str:
    if not isinstance(result, TaskFailure):
        return f"the worker answered with {result.kind}"
    return "\n".join([result.message, *map(str, result.problems)])
