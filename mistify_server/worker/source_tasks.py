"""Source tasks, which make the root of a goal tree once for all goals of a batch (paper 4.3)."""

from dataclasses import replace

import keras

from executors.contract.params import Params
from executors.sources.contract import SourceModel
from executors.sources.keras.scaling import scaled
from executors.sources.keras.source import KerasSource
from executors.structure import analyse
from executors.structure.signature import signature_of
from executors.training.evaluation import Evaluation, evaluate
from executors.training.setup import TrainingSetup
from mistify.costs.axes import costs_of
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import SourceResult
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import SourceTask
from mistify_server.worker.adaptation.progress import reporter
from mistify_server.worker.adaptation.source import FLIPS, expanded, flips_suit, tuned_source
from mistify_server.worker.adaptation.unchanged import UnchangedSources
from mistify_server.worker.cache import SourceCache, parts_of
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.params import params_of
from mistify_server.worker.pseudo_labels import PseudoLabeller


class SourceTuner:
    """Tunes sources and widens them.

    Args:
        cache: Loads source models and data.
        checkpoints: Stores the networks.
        labeller: Labels data without labels.
        unchanged: Stores sources that cannot be edited.
        on_progress: Receives the progress.
    """

    def __init__(
        self,
        cache: SourceCache,
        checkpoints: Checkpoints,
        labeller: PseudoLabeller,
        unchanged: UnchangedSources,
        on_progress: OnProgress,
    ) -> None:
        self._cache = cache
        self._checkpoints = checkpoints
        self._labeller = labeller
        self._unchanged = unchanged
        self._on_progress = on_progress

    def tune(self, task: SourceTask) -> SourceResult:
        """Return the tuned source, which is the teacher of all goals, and the root for their adaptation."""
        source = self._cache.source(task.recipe.model)
        if source.network is None:
            return self._unchanged.store_as_root(task, source)
        return self._tune(task, source, source.network)

    def _tune(self, task: SourceTask, loaded: SourceModel, network: keras.Model) -> SourceResult:
        recipe = task.recipe
        params, profiles = params_of(recipe), recipe.profiles
        source = scaled(network, recipe.data.settings.scale)
        keras.utils.set_random_seed(recipe.seed)  # loading a source may have drawn random numbers
        data, metric = self._labeller.label(recipe.data, source, recipe.seed), recipe.data.metric
        setup = self._setup(source, data, params)
        if flips_suit(source, data, setup):
            settings = data.settings.model_copy(update={"augment": FLIPS})
            data = data.model_copy(update={"settings": settings})
            setup = replace(setup, settings=settings)
        steps = params.source_steps if data.teaches_source else 0
        report = reporter(self._on_progress, data.validation_metric)
        source_costs = costs_of(analyse(source).network(), profiles)
        source_accuracy = evaluate(source, setup.validation, metric)
        tuning = ProgressUpdate("tuning the source", 0, steps, source_costs)
        report(replace(tuning, accuracy=source_accuracy))
        teacher = tuned_source(
            source, setup, steps, recipe.seed, lambda step: report(replace(tuning, step=step))
        )
        if task.exceed:
            report(ProgressUpdate("widening the source", steps, steps, source_costs))
        scores, _ = Evaluation(teacher).judge(setup.validation, metric, data.settings.metrics)
        root = expanded(analyse(teacher, params.layers), task.exceed, profiles, recipe.seed)
        return SourceResult(
            source_costs=dict(source_costs),
            source_accuracy=source_accuracy,
            metric=metric,
            teacher=self._checkpoints.save_source(
                KerasSource(teacher, loaded.interface, loaded.ranges if teacher is network else None)
            ),
            teacher_accuracy=scores.overall,
            teacher_scores=scores.outputs,
            root=self._checkpoints.save(root),
            root_costs=dict(costs_of(analyse(root).network(), profiles)),
            steps=steps,
            data=None if data == recipe.data else data,
        )

    def _setup(self, source: keras.Model, data: DataSource, params: Params) -> TrainingSetup:
        signature = signature_of(source)
        self._labeller.check(data, signature)
        train, validation = self._cache.learning(parts_of(data, signature)[0])
        return TrainingSetup(train, validation, None, params, data.settings)
