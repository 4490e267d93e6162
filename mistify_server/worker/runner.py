"""What a worker does with each kind of task. What one task loads or computes stays warm for the next."""

import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np

from executors.base import AdaptationExecutor, Assignment, Params, executor_class
from executors.custom_layers import import_layers
from executors.data import Dataset
from executors.sources.scaling import scaled
from executors.structure import analyse
from executors.structure.signature import signature_of
from executors.timing import activity, timesheet
from executors.training.evaluation import evaluate
from executors.training.setup import TrainingSetup
from executors.training.synthesis import generated
from mistify.config.dataset import generated_count
from mistify.config.metric import Metric
from mistify.costs.axes import costs_of
from mistify.costs.budget import Budget, Costs
from mistify.jobs.job import ProgressUpdate
from mistify_server.store.artifacts import Artifacts
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import (
    AdaptResult,
    BranchCheckpoint,
    BranchResult,
    Inspection,
    PackageResult,
    SourceResult,
)
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import AdaptTask, BranchTask, InspectTask, PackageTask, SourceTask, Task
from mistify_server.worker.adaptation.branches import adapt_branches
from mistify_server.worker.adaptation.edge import EdgeOutcome, Report, run_edge, source_if_better
from mistify_server.worker.adaptation.latency import stopwatch
from mistify_server.worker.adaptation.source import expanded, tuned_source
from mistify_server.worker.cache import SourceCache, parts_of
from mistify_server.worker.graphs import GraphRunner
from mistify_server.worker.inspection.inspection import Examination, check_generated
from mistify_server.worker.packaging.assemble import store_package
from mistify_server.worker.packaging.conversion.branches import Branches, BranchNetwork
from mistify_server.worker.packaging.models import package_model
from mistify_server.worker.params import params_of
from mistify_server.worker.setup import TrainingSetups

Done: TypeAlias = Inspection | SourceResult | AdaptResult | BranchResult | PackageResult


@dataclass(frozen=True)
class _Journey:
    """A path of a goal tree on its way down: the executor, where it has come to, and what it was told.

    Attributes:
        checkpoint: The artifact of `network`, the executor's latest.
        told: What an edge has in common with the next one, for the executor to go on.
    """

    executor: AdaptationExecutor
    checkpoint: str
    network: keras.Model
    told: tuple[object, ...]


class TaskRunner:
    """Does tasks, one at a time."""

    def __init__(self, artifacts: Artifacts, report: OnProgress) -> None:
        import_layers()  # sources may hold them, and so do checkpoints
        self._artifacts = artifacts
        self._report = report
        self._cache = SourceCache(report)
        self._model = lru_cache(maxsize=4)(self._load_model)
        self._setups = TrainingSetups(self._cache, self._model)
        self._examination = Examination(self._cache)
        self._graphs = GraphRunner(artifacts, self._cache, report)
        self._journey: _Journey | None = None

    def do(self, task: Task) -> Done:
        """The result of a task, with where its time went.

        Raises:
            MistifyError: what the user gave cannot be used, or a package is not what it should be.
            FloatingPointError: training diverged.
        """
        with timesheet() as sheet, activity("other"):
            result = self._do(task)
        return result.model_copy(update={"spent": sheet.seconds})

    def _do(self, task: Task) -> Done:
        if self._graphs.takes(task):
            return self._graphs.do(task)
        match task:
            case InspectTask():
                return self._examination.inspect(task)
            case SourceTask():
                return self._prepare(task)
            case AdaptTask():
                return self._adapt(task)
            case BranchTask():
                return self._branch(task)
            case PackageTask():
                return self._package(task)

    def _prepare(self, task: SourceTask) -> SourceResult:
        keras.utils.set_random_seed(task.seed)
        params = params_of(task.algorithm, task.algorithm_config)
        profiles = tuple(task.hardware.values())
        source = scaled(self._cache.source(task.model), task.data.settings.scale)
        metric = task.data.metric
        data = self._with_generated(task.data, source, task.seed)
        train, test = map(self._cache.data, parts_of(data, signature_of(source)))
        check_generated(source, task.data, train, test)
        # There is nothing new in what the source itself says.
        steps = params.source_steps if data.train == task.data.train else 0
        setup = TrainingSetup(train, test, None, params, task.data.settings)
        progress = self._reporting(metric)
        source_costs = costs_of(analyse(source).network(), profiles)
        source_accuracy = evaluate(source, test, metric)
        progress("tuning the source", 0, steps, source_costs, source_accuracy)
        teacher = tuned_source(
            source,
            setup,
            steps,
            task.seed,
            lambda done: progress("tuning the source", done, steps, source_costs, None),
        )
        root = expanded(analyse(teacher), task.exceed, profiles, task.seed)
        progress("preparing", steps, steps, source_costs, None)
        return SourceResult(
            source_costs=dict(source_costs),
            source_accuracy=source_accuracy,
            metric=metric,
            teacher=self._keep(teacher),
            teacher_accuracy=evaluate(teacher, test, metric),
            root=self._keep(root),
            root_costs=dict(costs_of(analyse(root).network(), profiles)),
            steps=steps,
            data=None if data == task.data else data,
            prepared=self._prepared(task, teacher, setup),
        )

    def _prepared(self, task: SourceTask, teacher: keras.Model, setup: TrainingSetup) -> dict[str, str]:
        """The artifacts of what algorithms compute for all goals."""
        source = Assignment(teacher, {}, tuple(task.hardware.values()), setup, task.seed, analyse(teacher))
        found = {
            name: executor_class(name)(params_of(name, task.algorithm_config)).prepare(source)
            for name in task.prepare
        }
        return {name: self._artifacts.put(made, ".prepared") for name, made in found.items() if made}

    def _with_generated(self, data: DataSource, source: keras.Model, seed: int) -> DataSource:
        """The data with what is to be generated as files among the artifacts."""
        made = {}
        for number, part in enumerate(("train", "test")):
            count = generated_count(getattr(data, part))
            if count:
                self._report(ProgressUpdate(stage=f"generating {part} data", step=0, total_steps=1))
                made[part] = str(
                    self._artifacts.path(self._keep_data(generated(source, count, seed + number)))
                )
        return data.model_copy(update=made)

    def _keep_data(self, data: Dataset) -> str:
        """Put data into the artifacts."""
        content = io.BytesIO()
        arrays: dict[str, Any] = {**data.inputs, **data.targets}
        np.savez(content, **arrays)
        return self._artifacts.put(content.getvalue(), ".npz")

    def _adapt(self, task: AdaptTask) -> AdaptResult:
        params = params_of(task.algorithm, task.algorithm_config)
        setup = self._setups.of(task.teacher, task.data, params)
        executor, parent, told = self._set_out(task, params, setup)
        assignment = self._assignment(task, parent, task.budget, setup)
        measure = stopwatch(task.quantizations, assignment.setup.train)
        outcome = self._run_edge(task, executor, params, assignment, task.accuracy_target)
        outcome = source_if_better(
            outcome, self._model(task.teacher), assignment, task.accuracy_target, measure=measure
        )
        checkpoint = self._keep(outcome.model)
        self._journey = _Journey(executor, checkpoint, outcome.model, told)
        return AdaptResult(
            checkpoint=checkpoint,
            costs=dict(outcome.costs),
            accuracy=outcome.accuracy,
            met=outcome.met,
            reason=outcome.reason,
            steps=outcome.steps,
        )

    def _set_out(
        self, task: AdaptTask, params: Params, setup: TrainingSetup
    ) -> tuple[AdaptationExecutor, keras.Model, tuple[object, ...]]:
        """The executor of an edge, its parent's network, and what the executor is told.

        The executor is the parent edge's, if that was the last one here: it goes on with all that it has
        compiled and learned. It is given away, so that an edge that fails leaves nothing behind.
        """
        # The executor holds the setup, so that no other can get its identity.
        settings = (task.algorithm, params, task.hardware, task.data.settings)
        told = (*settings, *map(id, (setup.train, setup.test, setup.teacher)))
        journey, self._journey = self._journey, None
        if journey is not None and (journey.checkpoint, journey.told) == (task.parent, told):
            return journey.executor, journey.network, told
        # Not on the way: TensorFlow then forgets how all that it has compiled is run.
        keras.utils.set_random_seed(task.seed)
        return executor_class(task.algorithm)(params), self._model(task.parent), told

    def _branch(self, task: BranchTask) -> BranchResult:
        params = params_of(task.algorithm, task.algorithm_config)
        network = self._load_model(task.parent)
        branched = adapt_branches(
            network,
            task.budget,
            task.shares,
            profiles=tuple(task.hardware.values()),
            seed=task.seed,
            descend=partial(self._descend, task, params),
        )
        costs = {share: outcome.costs for share, outcome in branched.outcomes.items()} | {1.0: task.costs}
        kept = {share: self._keep(outcome.model) for share, outcome in branched.outcomes.items()}
        kept[1.0] = self._keep(network)
        unmet = (f"the branch {s:.2g}x: {o.reason}" for s, o in branched.outcomes.items() if o.reason)
        return BranchResult(
            base=branched.base,
            branches=tuple(
                BranchCheckpoint(share=share, checkpoint=kept[share], costs=dict(costs[share]))
                for share in task.shares
            ),
            steps=sum(outcome.steps for outcome in branched.outcomes.values()),
            reason="; ".join(unmet),
        )

    def _descend(
        self, task: BranchTask, params: Params, network: keras.Model, budgets: Sequence[Budget]
    ) -> list[EdgeOutcome]:
        """Adapt networks one from the other, with one executor that goes on."""
        keras.utils.set_random_seed(task.seed)
        setup = self._setups.of(task.teacher, task.data, params)
        executor = executor_class(task.algorithm)(params)
        outcomes: list[EdgeOutcome] = []
        for budget in budgets:
            parent = outcomes[-1].model if outcomes else network
            assignment = replace(self._assignment(task, parent, budget, setup), narrowest=task.costs)
            outcomes.append(self._run_edge(task, executor, params, assignment, None))
        return outcomes

    def _assignment(
        self, task: AdaptTask | BranchTask, parent: keras.Model, budget: Budget, setup: TrainingSetup
    ) -> Assignment:
        return Assignment(
            model=parent,
            budget=budget,
            profiles=tuple(task.hardware.values()),
            setup=setup,
            seed=task.seed,
            source=analyse(self._model(task.teacher)),
            prepared=self._artifacts.path(task.prepared).read_bytes() if task.prepared else b"",
        )

    def _run_edge(
        self,
        task: AdaptTask | BranchTask,
        executor: AdaptationExecutor,
        params: Params,
        assignment: Assignment,
        accuracy_target: float | None,
    ) -> EdgeOutcome:
        return run_edge(
            executor,
            assignment,
            params,
            accuracy_target,
            self._reporting(task.data.metric),
            measure=stopwatch(task.quantizations, assignment.setup.train),
        )

    @activity("packaging")
    def _package(self, task: PackageTask) -> PackageResult:
        self._reporting(task.data.metric)("packaging", 0, 1, task.costs, task.accuracy)
        params = params_of(task.algorithm, task.algorithm_config)
        model = self._model(task.checkpoint)
        branches = self._branches(task.branches) if task.branches else None
        setup = self._setups.of(task.teacher, task.data, params, distilled=task.settings.needs_training)
        made = store_package(package_model(model, task, setup, params.tune_steps, branches), self._artifacts)
        reason = task.branches.reason if task.branches else ""
        return made.model_copy(update={"note": "; ".join(filter(None, (made.note, reason)))})

    def _branches(self, made: BranchResult) -> Branches:
        """The networks of a multi-branch package."""
        networks = (
            BranchNetwork(branch.share, self._load_model(branch.checkpoint), branch.costs)
            for branch in made.branches
        )
        return Branches(made.base, tuple(networks))

    def _reporting(self, metric: Metric) -> Report:
        """What tells of progress, with accuracies by this metric."""

        def report(stage: str, step: int, total: int, costs: Costs, accuracy: float | None) -> None:
            update = ProgressUpdate(
                stage=stage, step=step, total_steps=total, costs=dict(costs), accuracy=accuracy, metric=metric
            )
            self._report(update)

        return report

    @activity("saving")
    def _keep(self, model: keras.Model) -> str:
        """Put a checkpoint into the artifacts."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "checkpoint.keras"
            model.save(path)
            return self._artifacts.put(path)

    @activity("loading")
    def _load_model(self, artifact: str) -> keras.Model:
        return keras.models.load_model(self._artifacts.path(artifact), compile=False, safe_mode=True)
