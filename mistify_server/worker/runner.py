"""Dispatch of a worker's tasks by kind; loaded models stay in memory for later tasks."""

from typing import TypeAlias

from executors.custom_layers import import_layers
from executors.outputs.plugged_in import code_from
from executors.timing import activity, collect_timings
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
from mistify_server.worker.adaptation.unchanged import UnchangedSources
from mistify_server.worker.cache import SourceCache
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.edge_tasks import EdgeRunner
from mistify_server.worker.inspection.inspection import SourceInspector
from mistify_server.worker.package_tasks import Packager
from mistify_server.worker.packaging.conversion.templates import ConversionTemplates
from mistify_server.worker.prepare_tasks import Preparer
from mistify_server.worker.prepared_conversions import PreparedConversions
from mistify_server.worker.pseudo_labels import PseudoLabeller
from mistify_server.worker.reference_tasks import ReferenceMeter
from mistify_server.worker.slice_edges import SliceEdges
from mistify_server.worker.source_tasks import SourceTuner
from mistify_server.worker.training_setups import TrainingSetups

TaskResult: TypeAlias = (
    Inspection | SourceResult | PrepareResult | AdaptResult | BranchResult | PackageResult | ReferenceResult
)


class TaskRunner:
    """Runs tasks, one at a time.

    Args:
        artifacts: Stores checkpoints and packages.
        on_progress: Receives the progress of tasks.
    """

    def __init__(self, artifacts: Artifacts, on_progress: OnProgress) -> None:
        import_layers()  # sources and checkpoints may contain layers from plug-ins
        cache, checkpoints = SourceCache(on_progress), Checkpoints(artifacts)
        setups = TrainingSetups(cache, checkpoints)
        conversions = PreparedConversions(Preparations(artifacts), checkpoints, setups)
        slices = SliceEdges(checkpoints, setups, conversions, on_progress)
        labeller = PseudoLabeller(cache, checkpoints, on_progress)
        unchanged = UnchangedSources(cache, checkpoints, labeller)
        self._artifacts = artifacts
        self._inspector = SourceInspector(cache, on_progress)
        self._source_tuner = SourceTuner(cache, checkpoints, labeller, unchanged, on_progress)
        self._preparer = Preparer(artifacts, setups, on_progress)
        self._edges = EdgeRunner(checkpoints, setups, slices, unchanged, on_progress)
        self._packager = Packager(
            artifacts,
            cache,
            checkpoints,
            setups,
            conversions,
            templates=ConversionTemplates(),
            on_progress=on_progress,
        )
        self._references = ReferenceMeter(cache, checkpoints, on_progress)

    def run(self, task: Task) -> TaskResult:
        """Run a task; the result includes the seconds of each activity.

        Raises:
            MistifyError: The user's model, data or settings cannot be used, a package failed its checks, or
                artifacts cannot be read or stored.
            FloatingPointError: Training diverged.
        """
        recipe = task.recipe
        with (
            collect_timings() as timings,
            activity("other"),
            self._artifacts.at_hand(recipe.paths),
            code_from(recipe.data.settings.code),
        ):
            result = self._run(task)
        return result.model_copy(update={"spent": timings.seconds})

    def _run(self, task: Task) -> TaskResult:
        done: TaskResult
        match task:
            case InspectTask():
                done = self._inspector.inspect(task)
            case SourceTask():
                done = self._source_tuner.tune(task)
            case PrepareTask():
                done = self._preparer.prepare(task)
            case AdaptTask():
                done = self._edges.adapt(task)
            case BranchTask():
                done = self._edges.branch(task)
            case PackageTask():
                done = self._packager.package(task)
            case ReferenceTask():
                done = self._references.measure(task)
        return done
