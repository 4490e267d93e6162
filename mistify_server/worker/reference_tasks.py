"""Reference tasks: a Keras source measured as its packages are."""

from executors.sources.keras.scaling import scaled
from executors.structure.signature import signature_of
from executors.timing import activity
from executors.training.output_objectives import objectives_of
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import ReferenceResult
from mistify_server.tasks.tasks import ReferenceTask
from mistify_server.worker.cache import SourceCache, parts_of
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement.reference import measure_reference

#: The stage of these tasks.
MEASURING_SOURCE = "measuring the source"


class ReferenceMeter:
    """Measures sources as they came, and as they were tuned.

    Args:
        cache: Has source models and data.
        checkpoints: Has the tuned sources.
        on_progress: Takes the progress.
    """

    def __init__(self, cache: SourceCache, checkpoints: Checkpoints, on_progress: OnProgress) -> None:
        self._cache = cache
        self._checkpoints = checkpoints
        self._on_progress = on_progress

    @activity("measuring")
    def measure(self, task: ReferenceTask) -> ReferenceResult:
        """Return the accuracies and the latencies of a source in LiteRT."""
        source = scaled(self._cache.source(task.model), task.data.settings.scale)
        teacher = self._checkpoints.shared(task.teacher)
        self._on_progress(
            ProgressUpdate(stage=MEASURING_SOURCE, step=0, total_steps=1, metric=task.data.metric)
        )
        learning, test = parts_of(task.data, signature_of(teacher))
        train, _ = self._cache.learning(learning)
        return measure_reference(
            convert(source),
            convert(teacher),
            self._cache.data(test),
            objectives_of(teacher, train),
            data=task.data,
            threads=task.threads,
        )
