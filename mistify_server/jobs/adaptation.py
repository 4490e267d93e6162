"""Collective adaptation of one batch (paper 4.3): first the source, then the goals, then their packages."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias

from structlog.contextvars import bound_contextvars

from mistify.costs.budget import conditions_of
from mistify.jobs.job import Goal, PackageFile
from mistify_server.engines.base import TaskEngine
from mistify_server.jobs.log import JobLog
from mistify_server.jobs.outcomes import (
    collapsed,
    failed_goal,
    failure_reason,
    packaged_goal,
    replaces,
)
from mistify_server.jobs.plan_tree import PlanTree
from mistify_server.jobs.step_queue import Step, StepQueue
from mistify_server.jobs.task_factory import TaskFactory, source_task
from mistify_server.jobs.task_runs import TaskRuns
from mistify_server.jobs.time_left import Part
from mistify_server.planning.forecast.records import record_of
from mistify_server.planning.precision import Attempt, others, safer
from mistify_server.store.artifacts import digest_of
from mistify_server.store.changes import (
    BranchesSaved,
    CheckpointSaved,
    GoalChanged,
    GoalsFailed,
    GraphSaved,
    LayersSaved,
    PreparationSaved,
    ReferenceSaved,
    RootSaved,
)
from mistify_server.store.directory import Store
from mistify_server.store.package_signatures import with_signature
from mistify_server.store.plans import BatchPlan, BatchState, NodePlan
from mistify_server.tasks.results import (
    WITHOUT_ONEDNN,
    AdaptResult,
    BranchResult,
    PackageResult,
    PrepareResult,
    ReferenceResult,
    Result,
    SourceResult,
    TaskDone,
)
from mistify_server.tasks.tasks import AdaptTask, Task
from mistify_server.tracing.traces import Attributes, Traces

# Packages come first, because they finish goals. Then come the nodes of the trees, those above long paths
# first, with preparations before the first node that needs them. References come last.
_PACKAGE_RANK, _TREE_RANK, _REFERENCE_RANK = 0, 1, 2

#: None for the root, a node's index, the id of a goal to package, or an algorithm to prepare.
_Key: TypeAlias = int | str | tuple[Literal["prepare"], str] | None

_logger = logging.getLogger(__name__)


class CollectiveAdaptation:
    """Queues the steps of a batch, each as soon as its inputs exist.

    A node starts from a checkpoint and the preparation of its algorithm, if any; other nodes do not wait for
    this preparation. Results in the store are reused, and each result is stored before it is reported, so the
    work can be interrupted at any point. The children of a node that missed its goals still start from it,
    but a failed node fails its subtree. A network that collapsed during adaptation from its parent is adapted
    from the source as well, and the better one is kept. The tree may grow at any time.

    Args:
        state: The batch with its existing results.
        queue: The queue of the job's steps.
        traces: Records the steps.
    """

    def __init__(
        self,
        state: BatchState,
        log: JobLog,
        engine: TaskEngine,
        store: Store,
        queue: StepQueue,
        *,
        traces: Traces,
    ) -> None:
        self._plan = state.plan
        self._root = state.root
        self._checkpoints = dict(state.checkpoints)
        self._preparations = dict(state.preparations)
        self._branches = dict(state.branches)
        measured = state.reference.measured if state.reference else ()
        self._referenced = {conditions_of(axis).threads for axis in measured}
        self._log = log
        self._runs = TaskRuns(log, engine, queue)
        self._artifacts, self._signing_keys = store.artifacts, store.signing_keys
        self._queue, self._traces = queue, traces
        self._queued: set[_Key] = set()
        self._tree = PlanTree(state.plan)

    def queue_steps(self) -> None:
        """Queue the steps that are ready, each once."""
        if not any(self._log.open_goals(node.goals) for node in self._plan.nodes):
            return
        if self._root is None:
            step = self._traced(self._make_root, "source", {})
            self._queue_once(None, (_TREE_RANK, self._plan.number, -1), step)
            return
        self._queue_all(self._root)

    def grow(self, plan: BatchPlan) -> None:
        """Add the new nodes and goals of the batch's plan."""
        self._plan = plan
        self._tree = PlanTree(plan)
        self.queue_steps()

    def queue_reference(self) -> bool:
        """Queue the measurement of the source; return False if it is already complete.

        The source is measured once with the number of threads of each package, for comparison.
        """
        missing = {goal.spec.threads for goal in self._goals() if goal.files} - self._referenced
        if self._root is None or not missing:
            return False
        self._referenced |= missing
        step = partial(self._measure_reference, self._root, frozenset(self._referenced))
        self._queue.add((_REFERENCE_RANK, self._plan.number), self._traced(step, "reference", {}))
        return True

    def _queue_once(self, key: _Key, rank: tuple[int, ...], step: Step) -> None:
        """Queue a step, unless it has been queued before.

        Args:
            key: Identifies the step.
            rank: Steps with lower ranks run first.
        """
        if key not in self._queued:
            self._queued.add(key)
            self._queue.add(rank, step)

    async def _make_root(self) -> None:
        result = await self._run(source_task(self._plan), (), Part(self._plan.number, "source"))
        if not isinstance(result, SourceResult):
            self._queued.discard(None)  # goals added later retry
            reason = f"the source could not be prepared: {failure_reason(result)}"
            await self._log.record(self._failed(self._plan.nodes, reason))
            return
        await self._log.record(RootSaved(self._plan.number, result))
        self._root = result
        self._queue_all(result)

    def _queue_all(self, root: SourceResult) -> None:
        """Queue all steps that are ready."""
        waiting = (
            node for node in self._plan.nodes if self._waits(node) and self._log.open_goals(node.goals)
        )
        for node in sorted(waiting, key=lambda node: self._tree.rank[node.index]):
            rank = (_TREE_RANK, self._plan.number, self._tree.rank[node.index])
            preparation = self._plan.preparation_of(node)
            step = partial(self._prepare, preparation, root)
            traced = self._traced(step, "preparation", {"mistify.algorithm": preparation})
            self._queue_once(("prepare", preparation), rank, traced)
        for index in (None, *self._checkpoints):
            self._queue_next(root, index)

    def _waits(self, node: NodePlan) -> bool:
        """Check whether a node's algorithm is still to be prepared."""
        estimates = self._plan.estimates
        profile = estimates.profiles.get(node.algorithm) if estimates else None
        prepares = profile is not None and profile.prepares
        return prepares and self._plan.preparation_of(node) not in self._preparations

    async def _prepare(self, preparation: str, root: SourceResult) -> None:
        part = Part(self._plan.number, "preparation", preparation)
        result = await self._run(self._tasks(root).prepare(preparation), (), part)
        if not isinstance(result, PrepareResult):
            self._queued.discard(("prepare", preparation))  # goals added later retry
            nodes = self._plan.nodes
            own = [node.index for node in nodes if self._plan.preparation_of(node) == preparation]
            reason = f"the preparation of {preparation} failed: {failure_reason(result)}"
            await self._log.record(self._failed(self._tree.subtree(*own), reason))
            return
        await self._log.record(PreparationSaved(self._plan.number, preparation, result))
        self._preparations[preparation] = result
        self._queue_all(root)

    def _queue_next(self, root: SourceResult, index: int | None) -> None:
        """Queue the steps that start from a node's checkpoint, or from the root if the index is None."""
        adapted = None if index is None else self._checkpoints[index]
        checkpoint = root.root if adapted is None else adapted.checkpoint
        for child in self._tree.children.get(index, ()):
            if self._waits(child) or child.index in self._checkpoints:
                continue
            if self._log.open_goals(child.goals):
                rank = (_TREE_RANK, self._plan.number, self._tree.rank[child.index])
                step = partial(self._adapt, child.index, root, checkpoint)
                self._queue_once(child.index, rank, self._named(step, "edge", child.index, child.goals[0]))
        if index is None or adapted is None:
            return
        for goal in self._log.open_goals(self._tree.nodes[index].goals):
            rank = (_PACKAGE_RANK, self._plan.number, self._tree.rank[index])
            step = partial(self._branch_and_package, index, goal.id, adapted, root)
            self._queue_once(goal.id, rank, self._named(step, "package", index, goal.id))

    def _named(self, step: Step, name: str, index: int, goal_id: str) -> Step:
        """Return a step with its edge and goal in its trace, and in all its log lines."""
        edge = f"{self._plan.number}/{index}"
        traced = self._traced(step, name, {"mistify.edge": edge, "mistify.goal.id": goal_id})

        async def named() -> None:
            with bound_contextvars(edge=edge, goal=goal_id):
                await traced()

        return named

    def _traced(self, step: Step, name: str, attributes: Attributes) -> Step:
        """Return a step that is a span of the job's trace."""

        async def traced() -> None:
            with self._traces.span(name, {"mistify.batch": self._plan.number, **attributes}):
                await step()

        return traced

    async def _adapt(self, index: int, root: SourceResult, parent: str) -> None:
        node, part = self._tree.nodes[index], Part(self._plan.number, "adaptation", index)
        result = await self._run(self._adapt_task(node, root, parent), node.goals, part)
        if not isinstance(result, AdaptResult):
            await self._fail_subtree(index, failure_reason(result))
            return
        above = self._checkpoints.get(node.parent) if node.parent is not None else None
        costs = root.root_costs if above is None else above.costs
        if above is not None and collapsed(result, above, root.metric):
            await self._queue.checkpoint()
            again = await self._run(self._adapt_task(node, root, root.root), node.goals, part)
            if isinstance(again, AdaptResult) and replaces(again, result, node, root.metric):
                costs = root.root_costs
                result = again.model_copy(update={"steps": result.steps + again.steps})
        record = record_of(self._plan, node, root, costs, result)
        await self._log.record(CheckpointSaved(self._plan.number, index, result, record))
        self._checkpoints[index] = result
        self._queue_next(root, index)

    def _adapt_task(self, node: NodePlan, root: SourceResult, parent: str) -> AdaptTask:
        return self._tasks(root).adapt(node, map(self._log.goal, node.goals), parent)

    async def _branch_and_package(
        self, index: int, goal_id: str, adapted: AdaptResult, root: SourceResult
    ) -> None:
        """Make a goal's package, preceded by its branches if it needs any."""
        goal = self._log.goal(goal_id)
        if goal.spec.branches is not None and goal_id not in self._branches:
            task = self._tasks(root).branch(self._tree.nodes[index], goal, adapted)
            branches = await self._run(task, [goal_id], self._packaging(goal_id))
            if not isinstance(branches, BranchResult):
                reason = f"the branches could not be made: {failure_reason(branches)}"
                await self._log.record(GoalChanged(failed_goal(goal, reason)))
                return
            await self._log.record(BranchesSaved(goal_id, branches))
            self._branches[goal_id] = branches
            await self._queue.checkpoint()
        await self._package(index, goal_id, adapted, root)

    async def _package(self, index: int, goal_id: str, adapted: AdaptResult, root: SourceResult) -> None:
        attempt = await self._attempt_precisions(index, self._log.goal(goal_id), adapted, root)
        # The goal may have received a note in the meantime.
        goal = replace(attempt.goal, note=self._log.goal(goal_id).note)
        package = attempt.result
        if not isinstance(package, PackageResult):
            reason = f"the package could not be made: {failure_reason(package)}"
            await self._log.record(GoalChanged(failed_goal(goal, reason)))
            return
        async for try_ in self._runs.until_available():
            with try_:
                files = await asyncio.to_thread(self._signed, package)
        packaged = packaged_goal(
            goal,
            attempt.adapted,
            self._branches.get(goal_id),
            package,
            files,
            teacher_accuracy=root.teacher_accuracy,
            foreseen=self._tree.nodes[index].foreseen,
        )
        layers = [LayersSaved(goal_id, package.layers)] if package.layers else []
        graph = [GraphSaved(goal_id, package.graph)] if package.graph else []
        await self._log.record(GoalChanged(packaged), *layers, *graph)

    def _signed(self, package: PackageResult) -> tuple[PackageFile, ...]:
        """Return the files of a package with its signature: workers do not have the key."""
        files = (
            PackageFile(name, self._artifacts.size(artifact), digest_of(artifact))
            for name, artifact in package.files.items()
        )
        return with_signature(files, self._signing_keys, self._artifacts)

    async def _attempt_precisions(
        self, index: int, goal: Goal, adapted: AdaptResult, root: SourceResult
    ) -> Attempt:
        """Package a goal. If the server chose its precision and the package falls short, try others.

        First, package the same network at safer precisions. If these fall short too, adapt networks for
        others.
        """
        best = await self._attempt(index, goal, adapted, root)
        for at_safer in safer(best):
            if not best.falls_short:
                break
            await self._queue.checkpoint()
            best = best.improved(await self._attempt(index, at_safer, adapted, root))
        tried = []
        plan = self._plan
        for other in others(best, plan.source_costs, plan.floor, plan.estimates):
            if best.meets and not best.falls_short:
                break
            await self._queue.checkpoint()
            node = self._tree.nodes[index].model_copy(
                update={"budget": dict(other.spec.budget), "targets": other.spec.targets}
            )
            task = self._tasks(root).adapt(node, [other], root.root)
            result = await self._run(task, [goal.id], self._packaging(goal.id))
            if isinstance(result, AdaptResult):
                tried.append(other.spec.quantization.precision)
                await self._queue.checkpoint()
                best = best.improved(await self._attempt(index, other, result, root))
        return best.after_trying(tried)

    async def _attempt(self, index: int, goal: Goal, adapted: AdaptResult, root: SourceResult) -> Attempt:
        node, branches = self._tree.nodes[index], self._branches.get(goal.id)
        task = self._tasks(root).package(node, goal, adapted, branches, self._goals())
        return Attempt(goal, adapted, await self._run(task, [goal.id], self._packaging(goal.id)))

    def _packaging(self, goal_id: str) -> Part:
        """Return the part of the job's work that ends with the package of a goal."""
        return Part(self._plan.number, "packaging", goal_id)

    async def _measure_reference(self, root: SourceResult, threads: Collection[int]) -> None:
        part = Part(self._plan.number, "packaging")
        result = await self._run(self._tasks(root).reference(threads), (), part)
        if isinstance(result, ReferenceResult):
            await self._log.record(ReferenceSaved(self._plan.number, result))
            return
        _logger.warning("the source could not be measured: %s", failure_reason(result))

    def _goals(self) -> Iterator[Goal]:
        """Yield the goals of the batch."""
        return (self._log.goal(goal_id) for node in self._plan.nodes for goal_id in node.goals)

    def _tasks(self, root: SourceResult) -> TaskFactory:
        return TaskFactory(self._log.job_id, self._plan, root, self._preparations)

    async def _run(self, task: Task, goal_ids: Sequence[str], part: Part) -> Result:
        """Run a task of the batch; see `TaskRuns.result_of`."""
        result = await self._runs.result_of(task, goal_ids, part)
        if isinstance(result, TaskDone) and not result.onednn:
            own = goal_ids or [goal_id for node in self._plan.nodes for goal_id in node.goals]
            await self._log.note(own, f"was {WITHOUT_ONEDNN}")
        return result

    async def _fail_subtree(self, index: int, reason: str) -> None:
        node, *below = self._tree.subtree(index)
        because = f"the goal {node.goals[0]}, from which it is adapted, failed: {reason}"
        await self._log.record(self._failed([node], reason), self._failed(below, because))

    def _failed(self, nodes: Iterable[NodePlan], reason: str) -> GoalsFailed:
        return GoalsFailed([goal.id for node in nodes for goal in self._log.open_goals(node.goals)], reason)
