"""Sources that cannot be edited and serve all goals unchanged.

Their costs are those of the converted network. Nothing is trained or cut: the source is the checkpoint of
every goal, and measurements in LiteRT decide whether a goal is met.
"""

from functools import lru_cache

from executors.outputs.objectives import objectives_for
from executors.sources.contract import SourceModel
from executors.timing import activity
from mistify.costs.axes import costs_of
from mistify_server.tasks.results import AdaptResult, SourceResult
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import AdaptTask, SourceTask
from mistify_server.worker.cache import SourceCache, parts_of
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.packaging.conversion.converter import convert_unedited
from mistify_server.worker.packaging.measurement.accuracy import MeasuredAccuracy, measure_accuracy
from mistify_server.worker.packaging.tflite.costs import network_cost
from mistify_server.worker.packaging.tflite.runner import Runner
from mistify_server.worker.pseudo_labels import PseudoLabeller


class UnchangedSources:
    """Serves goals with the source itself, in LiteRT and float32.

    Args:
        cache: Loads the data.
        checkpoints: Loads the sources.
        labeller: Labels data without labels.
    """

    def __init__(self, cache: SourceCache, checkpoints: Checkpoints, labeller: PseudoLabeller) -> None:
        self._cache = cache
        self._checkpoints = checkpoints
        self._labeller = labeller
        self._converted = lru_cache(maxsize=2)(self._convert)

    def store_as_root(self, task: SourceTask, source: SourceModel) -> SourceResult:
        """Store a source as the root of a goal tree."""
        recipe = task.recipe
        artifact = self._checkpoints.save_source(source)
        network = self._converted(artifact)
        costs = costs_of(network_cost(network), recipe.profiles)
        data = self._labeller.label_by_outputs(recipe.data, source.signature, Runner(network).run_all)
        self._labeller.check(data, source.signature)
        accuracy = self._measured(artifact, data).accuracy
        return SourceResult(
            source_costs=dict(costs),
            source_accuracy=accuracy,
            metric=recipe.data.metric,
            teacher=artifact,
            teacher_accuracy=accuracy,
            root=artifact,
            root_costs=dict(costs),
            steps=0,
            data=None if data == recipe.data else data,
        )

    def adapt(self, task: AdaptTask) -> AdaptResult:
        """Return the source as a goal's checkpoint, with its costs and scores."""
        costs = costs_of(network_cost(self._converted(task.parent)), task.recipe.profiles)
        measured = self._measured(task.parent, task.recipe.data)
        return AdaptResult(
            checkpoint=task.parent,
            costs=dict(costs),
            accuracy=measured.accuracy,
            output_scores=measured.outputs,
            met=True,
            reason="",
            steps=0,
        )

    @activity("measuring")
    def _measured(self, artifact: str, data: DataSource) -> MeasuredAccuracy:
        """Return the accuracy on the validation data."""
        signature = self._checkpoints.source(artifact).signature
        train, validation = self._cache.learning(parts_of(data, signature)[0])
        runner = Runner(self._converted(artifact))
        return measure_accuracy(runner, validation, objectives_for(signature, train), data)

    def _convert(self, artifact: str) -> bytes:
        return convert_unedited(self._checkpoints.source(artifact).export())
