"""Tasks of a worker, each done by the object for its kind; loaded models stay in memory for the next."""

from typing import TypeAlias

import keras

from executors.contract.executor import executor_class
from executors.custom_layers import import_layers
from executors.data import Dataset
from executors.params import Params
from executors.structure import analyse
from executors.timing import activity, collect_timings
from executors.training.evaluation import evaluate
from executors.training.plugged_in import code_from
from mistify.jobs.job import ProgressUpdate
from mistify_server.store.artifacts import Artifacts
from mistify_server.store.preparations import Preparations
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import (
    AdaptResult,
    BranchResult,
    Inspection,
    PackageResult,
    PrepareResult,
    ReferenceResult,
    SourceResult,
)
from mistify_server.tasks.tasks import (
    AdaptTask,
    BranchTask,
    InspectTask,
    PackageTask,
    PrepareTask,
    ReferenceTask,
    SourceTask,
    Task,
)
from mistify_server.worker.adaptation.progress import reporter
from mistify_server.worker.cache import SourceCache
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.edge_tasks import EdgeRunner
from mistify_server.worker.frozen_graphs import GraphRunner
from mistify_server.worker.inspection.inspection import SourceInspector
from mistify_server.worker.packaging.assemble import store_package
from mistify_server.worker.packaging.conversion.branches import Branches, BranchNetwork
from mistify_server.worker.packaging.layers import layer_table, profile_of
from mistify_server.worker.packaging.models import package_model
from mistify_server.worker.params import params_of
from mistify_server.worker.prepare_tasks import Preparer
from mistify_server.worker.reference_tasks import ReferenceMeter
from mistify_server.worker.source_tasks import RootMaker
from mistify_server.worker.training_setups import TrainingSetups

Done: TypeAlias = (
    Inspection | SourceResult | PrepareResult | AdaptResult | BranchResult | PackageResult | ReferenceResult
)


class TaskRunner:
    """Does tasks, one at a time.

    Args:
        artifacts: Where checkpoints and packages go to and come from.
        on_progress: Takes the progress of tasks.
    """

    def __init__(self, artifacts: Artifacts, on_progress: OnProgress) -> None:
        import_layers()  # sources and checkpoints may have layers of plug-ins
        self._artifacts = artifacts
        self._on_progress = on_progress
        cache = SourceCache(on_progress)
        self._checkpoints = Checkpoints(artifacts)
        self._setups = TrainingSetups(cache, self._checkpoints)
        self._inspector = SourceInspector(cache, on_progress)
        self._roots = RootMaker(cache, self._checkpoints, on_progress)
        self._preparer = Preparer(Preparations(artifacts), self._checkpoints, self._setups, on_progress)
        self._edges = EdgeRunner(self._checkpoints, self._setups, on_progress)
        self._references = ReferenceMeter(cache, self._checkpoints, on_progress)
        self._graphs = GraphRunner(artifacts, cache, self._checkpoints, on_progress)

    def run(self, task: Task) -> Done:
        """Do a task; the result has the seconds of each activity.

        Raises:
            MistifyError: The user's model, data or settings cannot be used, or a package failed its checks.
            FloatingPointError: Training diverged.
        """
        with collect_timings() as timings, activity("other"), code_from(task.data.settings.code):
            result = self._graphs.run(task) if self._graphs.takes(task) else self._run(task)
        return result.model_copy(update={"spent": timings.seconds})

    def _run(self, task: Task) -> Done:
        done: Done
        match task:
            case InspectTask():
                done = self._inspector.inspect(task)
            case SourceTask():
                done = self._roots.make(task)
            case PrepareTask():
                done = self._preparer.prepare(task)
            case AdaptTask():
                done = self._edges.adapt(task)
            case BranchTask():
                done = self._edges.branch(task)
            case PackageTask():
                done = self._package(task)
            case ReferenceTask():
                done = self._references.measure(task)
        return done

    @activity("packaging")
    def _package(self, task: PackageTask) -> PackageResult:
        report = reporter(self._on_progress, task.data.validation_metric)
        report(ProgressUpdate("packaging", 0, 1, task.costs, task.accuracy))
        params = params_of(task.algorithm, task.algorithm_config)
        setup = self._setups.prepare(task.teacher, task.data, params, distilled=task.settings.needs_training)
        if task.branches:
            task = self._of_own_branch(task, task.branches, setup.validation)
        model = self._checkpoints.shared(task.checkpoint)
        branches = self._load_branches(task.branches) if task.branches else None
        test = self._setups.test(task.teacher, task.data)
        source = analyse(self._checkpoints.shared(task.teacher), params.layers)
        parts = executor_class(task.algorithm)(params).package_parts(
            source, self._checkpoints.load_prepared(task.prepared), model
        )
        keras.utils.set_random_seed(task.seed)  # whatever was loaded, for this task or before
        package = package_model(
            model,
            task,
            setup,
            test,
            training_steps=_training_steps(params),
            branches=branches,
            parts=parts,
        )
        made = store_package(package, task, self._artifacts)
        reason = task.branches.reason if task.branches else ""
        layers = layer_table(source, analyse(model), profile_of(task))
        return made.model_copy(
            update={"note": "; ".join(filter(None, (made.note, reason, parts.note))), "layers": layers}
        )

    def _of_own_branch(self, task: PackageTask, branches: BranchResult, validation: Dataset) -> PackageTask:
        """Return the task for the goal's network among the branches, which has their base."""
        own = next(branch for branch in branches.branches if branch.share == 1)
        accuracy = evaluate(self._checkpoints.shared(own.checkpoint), validation, task.data.metric)
        return task.model_copy(
            update={"checkpoint": own.checkpoint, "costs": own.costs, "accuracy": accuracy}
        )

    def _load_branches(self, branches: BranchResult) -> Branches:
        """Return the networks of a multi-branch package."""
        networks = (
            BranchNetwork(branch.share, self._checkpoints.load(branch.checkpoint), branch.costs)
            for branch in branches.branches
        )
        return Branches(branches.base, tuple(networks))


def _training_steps(params: Params) -> int:
    """Return the steps in which a network is trained for the precision or compression of its package."""
    if params.tune_steps or "tune_steps" in params.model_fields_set:
        return params.tune_steps
    # An algorithm may tune no goal by default, as its networks are trained already, but not for this.
    return Params().tune_steps
