"""Reference tasks, which measure a source in the same way as packages."""

from executors.outputs.objectives import objectives_for
from executors.sources.keras.scaling import scaled
from executors.timing import activity
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import ReferenceResult
from mistify_server.tasks.tasks import ReferenceTask
from mistify_server.worker.cache import SourceCache, parts_of
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.packaging.conversion.converter import convert, convert_unedited
from mistify_server.worker.packaging.measurement.reference import measure_reference

#: The stage of these tasks.
MEASURING_SOURCE = "measuring the source"


class ReferenceMeter:
    """Measures sources before and after tuning.

    Args:
        cache: Loads source models and data.
        checkpoints: Loads the tuned sources.
        on_progress: Receives the progress.
    """

    def __init__(self, cache: SourceCache, checkpoints: Checkpoints, on_progress: OnProgress) -> None:
        self._cache = cache
        self._checkpoints = checkpoints
        self._on_progress = on_progress

    @activity("measuring")
    def measure(self, task: ReferenceTask) -> ReferenceResult:
        """Return the accuracies and latencies of a source in LiteRT."""
        recipe = task.recipe
        self._on_progress(
            ProgressUpdate(stage=MEASURING_SOURCE, step=0, total_steps=1, metric=recipe.data.metric)
        )
        teacher = self._checkpoints.source(recipe.teacher)
        tuned = convert_unedited(teacher.export())
        learning, test = parts_of(recipe.data, teacher.signature)
        train, _ = self._cache.learning(learning)
        return measure_reference(
            self._before_tuning(task) or tuned,
            tuned,
            self._cache.data(test),
            objectives_for(teacher.signature, train),
            data=recipe.data,
            threads=task.threads,
        )

    def _before_tuning(self, task: ReferenceTask) -> bytes | None:
        """Return the converted source before tuning; None if it cannot be tuned."""
        source = self._cache.source(task.recipe.model).network
        return None if source is None else convert(scaled(source, task.recipe.data.settings.scale))
