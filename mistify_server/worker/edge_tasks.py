"""Adapt and branch tasks: edges of a goal tree, from checkpoint to checkpoint."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import keras

from executors.contract.assignment import Assignment
from executors.contract.executor import AdaptationExecutor
from executors.contract.params import Params
from executors.contract.registry import algorithm, executor_class
from executors.structure import analyse, copied
from executors.training.setup import TrainingSetup
from mistify.config.data.targets import Target
from mistify.costs.budget import Budget, threads_of
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import AdaptResult, BranchCheckpoint, BranchResult
from mistify_server.tasks.tasks import AdaptTask, BranchTask
from mistify_server.worker.adaptation.branches import adapt_branches
from mistify_server.worker.adaptation.converted_costs import CostReader, cost_reader
from mistify_server.worker.adaptation.edge import EdgeOutcome, run_edge
from mistify_server.worker.adaptation.latency import LatencyMeter, latency_meter
from mistify_server.worker.adaptation.progress import EdgeProgress, reporter
from mistify_server.worker.adaptation.source import expanded
from mistify_server.worker.adaptation.source_outcome import source_if_better, source_if_enough
from mistify_server.worker.adaptation.unchanged import UnchangedSources
from mistify_server.worker.adaptation.widening import for_widened, is_widened
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.params import params_of
from mistify_server.worker.slice_edges import SliceEdges
from mistify_server.worker.training_setups import TrainingSetups


class EdgeRunner:
    """Adapts networks from their parents' checkpoints.

    An edge depends only on its task and the files that the task names: the network is the same byte for byte,
    whatever the worker has done before.

    Args:
        checkpoints: Loads and stores networks.
        setups: Prepares data and teachers.
        slices: Serves goals with slices of prepared networks.
        unchanged: Serves goals with sources that cannot be edited.
        on_progress: Receives the progress.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        setups: TrainingSetups,
        slices: SliceEdges,
        unchanged: UnchangedSources,
        on_progress: OnProgress,
    ) -> None:
        self._checkpoints = checkpoints
        self._setups = setups
        self._slices = slices
        self._unchanged = unchanged
        self._on_progress = on_progress

    def adapt(self, task: AdaptTask) -> AdaptResult:
        """Adapt the parent's network to a goal."""
        if self._checkpoints.source(task.recipe.teacher).network is None:
            return self._unchanged.adapt(task)
        params = params_of(task.recipe)
        setup = self._setups.prepare(task.recipe, params, task.task)
        if (done := self._slices.adapt(task, params, setup)) is not None:
            return done
        parent = self._setups.parent(task.recipe, task.parent, task.task)
        assignment = self._assignment(task, params, parent, task.budget, setup)
        task = task.model_copy(update={"recipe": task.recipe.with_settings(setup.settings)})
        outcome = self._source_if_enough(task, params, assignment)
        if outcome is None:
            executor = None
            if assignment.setup is setup:  # widened networks have another, which other edges must not share
                executor = self._setups.executor(task.recipe, params).for_edge()
            executor = executor or _new_executor(task, params)
            outcome = self._run_edge_or_take_source(task, executor, params, assignment)
        return AdaptResult(
            checkpoint=self._checkpoints.save(outcome.model),
            costs=dict(outcome.costs),
            accuracy=outcome.scores.overall,
            output_scores=outcome.scores.outputs,
            met=outcome.met,
            reason=outcome.reason,
            steps=outcome.steps,
            spared=outcome.spared,
        )

    def branch(self, task: BranchTask) -> BranchResult:
        """Adapt the branches of a goal's package (paper 6)."""
        params = params_of(task.recipe)
        network = self._checkpoints.load(task.parent)
        branched = adapt_branches(
            network,
            task.budget,
            task.shares,
            profiles=task.recipe.profiles,
            rules=params.layers,
            adapt_largest=partial(self._adapt_largest, task, params),
            descend=partial(self._descend, task, params),
        )
        costs = {1.0: task.costs} | {share: outcome.costs for share, outcome in branched.outcomes.items()}
        networks = {1.0: network} | {share: outcome.model for share, outcome in branched.outcomes.items()}
        unmet = (f"the branch {s:.2g}x: {o.reason}" for s, o in branched.outcomes.items() if o.reason)
        return BranchResult(
            base=branched.base,
            branches=tuple(
                BranchCheckpoint(
                    share=share, checkpoint=self._checkpoints.save(networks[share]), costs=dict(costs[share])
                )
                for share in task.shares
            ),
            steps=sum(outcome.steps for outcome in branched.outcomes.values()),
            reason="; ".join(unmet),
        )

    def _adapt_largest(self, task: BranchTask, params: Params, budget: Budget) -> EdgeOutcome:
        """Adapt the source to a budget, widened if the budget exceeds the source."""
        recipe = task.recipe
        setup = self._setups.prepare(recipe, params)
        source = analyse(self._setups.teacher(recipe), params.layers)
        root = expanded(source, budget, recipe.profiles, recipe.seed)
        assignment = self._assignment(task, params, root, budget, setup)
        outcome = self._run_edge_or_take_source(task, _new_executor(task, params), params, assignment)
        return replace(outcome, model=copied(outcome.model))

    def _descend(
        self, task: BranchTask, params: Params, network: keras.Model, budgets: Mapping[float, Budget]
    ) -> list[EdgeOutcome]:
        """Adapt a network to decreasing budgets, given by share, each from the previous outcome.

        Widened networks have a separate training setup and executor.
        """
        setup = self._setups.prepare(task.recipe, params)
        executor = _new_executor(task, params)
        outcomes: list[EdgeOutcome] = []
        widened = False
        for share, budget in budgets.items():
            parent = outcomes[-1].model if outcomes else network
            assignment = self._assignment(task, params, parent, budget, setup)
            was_widened, widened = widened, is_widened(assignment)
            if was_widened and not widened:
                executor = _new_executor(task, params)
            targets = task.targets if share == 1 else ()
            outcomes.append(self._run_edge(task, executor, params, assignment, targets))
        return outcomes

    def _assignment(
        self,
        task: AdaptTask | BranchTask,
        params: Params,
        parent: keras.Model,
        budget: Budget,
        setup: TrainingSetup,
    ) -> Assignment:
        recipe = task.recipe
        teacher = self._setups.teacher(recipe, task.task)
        assignment = Assignment(
            model=parent,
            budget=budget,
            profiles=recipe.profiles,
            setup=setup,
            seed=recipe.seed,
            source=self._setups.source(recipe, params, task.task),
            prepared=self._checkpoints.load_prepared(recipe.prepared),
            task=task.task,
        )
        return for_widened(assignment, teacher) if is_widened(assignment) else assignment

    def _source_if_enough(
        self, task: AdaptTask, params: Params, assignment: Assignment
    ) -> EdgeOutcome | None:
        """Return the source if nothing has to be cut or learned for the goal; None otherwise."""
        if algorithm(task.recipe.algorithm).serves_tasks:
            return None
        return source_if_enough(
            self._setups.teacher(task.recipe, task.task),
            assignment,
            params,
            task.targets,
            EdgeProgress(self._reporter(task), task.planned_steps, params),
            measure=_latency_meter(task, assignment),
            read=_cost_reader(task, assignment),
        )

    def _run_edge_or_take_source(
        self,
        task: AdaptTask | BranchTask,
        executor: AdaptationExecutor,
        params: Params,
        assignment: Assignment,
    ) -> EdgeOutcome:
        """Adapt a network, and return the source instead if it is better.

        The source of an algorithm that serves tasks cannot answer a single task.
        """
        targets = task.targets if isinstance(task, AdaptTask) else ()
        outcome = self._run_edge(task, executor, params, assignment, targets)
        if algorithm(task.recipe.algorithm).serves_tasks:
            return outcome
        return source_if_better(
            outcome,
            self._setups.teacher(task.recipe, task.task),
            assignment,
            targets,
            measure=_latency_meter(task, assignment),
            read=_cost_reader(task, assignment),
        )

    def _run_edge(
        self,
        task: AdaptTask | BranchTask,
        executor: AdaptationExecutor,
        params: Params,
        assignment: Assignment,
        targets: Collection[Target],
    ) -> EdgeOutcome:
        return run_edge(
            executor,
            assignment,
            params,
            targets,
            self._reporter(task),
            measure=_latency_meter(task, assignment),
            read=_cost_reader(task, assignment),
            planned_steps=task.planned_steps if isinstance(task, AdaptTask) else 0,
        )

    def _reporter(self, task: AdaptTask | BranchTask) -> OnProgress:
        return reporter(self._on_progress, task.recipe.data.validation_metric, task.budget)


def _new_executor(task: AdaptTask | BranchTask, params: Params) -> AdaptationExecutor:
    """Return a new executor, and set the task's random seed."""
    # This also makes TensorFlow discard all compiled functions.
    keras.utils.set_random_seed(task.recipe.seed)
    return executor_class(task.recipe.algorithm)(params)


def _latency_meter(task: AdaptTask | BranchTask, assignment: Assignment) -> LatencyMeter:
    """Return a meter that measures networks as in the goals' packages."""
    return latency_meter(task.quantizations, assignment.setup.train, threads_of(task.budget))


def _cost_reader(task: AdaptTask | BranchTask, assignment: Assignment) -> CostReader:
    """Return a reader of costs from the files of networks, converted as for the goals' packages."""
    return cost_reader(assignment.budget, task.quantizations, assignment.setup, threads_of(task.budget))
