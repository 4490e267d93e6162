"""Inspection of a model, its data and its settings before a job starts."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import keras

from executors.contract.params import Params
from executors.data import Dataset
from executors.outputs.empty_classes import check_balanced
from executors.outputs.metrics import output_metrics
from executors.outputs.objectives import Categorical, OutputObjective, objectives_of
from executors.sources.contract import SourceModel
from executors.sources.keras.scaling import scaled
from executors.structure import (
    analyse,
    copied,
    removable_blocks,
    remove_blocks,
    unmatched,
)
from executors.structure.edits.outputs import is_narrowable
from executors.structure.signature import input_names, signature_of
from executors.synthesis.inputs import generated
from executors.training.augmentation import augmenting
from executors.training.evaluation import Evaluation
from executors.training.loss_check import check_output_loss
from executors.training.setup import TrainingSetup
from executors.training.trainer import Trainer
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric, OutputScore
from mistify.costs.axes import costs_of
from mistify.costs.catalogue import is_host
from mistify.costs.profiles import by_name
from mistify.parsing.validation import InvalidValue
from mistify_server.tasks.estimates import EdgeEstimates, SourceTrial
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.results import Inspection
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import InspectTask
from mistify_server.worker.adaptation.calibration import calibrated, calibrated_host
from mistify_server.worker.adaptation.latency import Profiles
from mistify_server.worker.adaptation.source import FLIPS, flips_suit
from mistify_server.worker.cache import SourceCache
from mistify_server.worker.description.description import description_of
from mistify_server.worker.inspection.estimates import EXAMPLES, estimates_of, with_measurements
from mistify_server.worker.inspection.host import host_profiles
from mistify_server.worker.inspection.loading import InspectedData
from mistify_server.worker.inspection.trial import trial_of
from mistify_server.worker.inspection.unchanged import inspect_unchanged
from mistify_server.worker.packaging.tflite.isolation import start_litert
from mistify_server.worker.params import params_of
from mistify_server.worker.task_scope import class_names


class _Data(NamedTuple):
    """The data for a model, with suitable metrics.

    Attributes:
        validation: Validation data.
        metric: The metric that compares networks.
        tested: Number of test examples; None if they do not exist yet.
        metrics: Output -> its metric.
        class_counts: Number of examples per class, by part of the data.
        left_out: Ignored files, by part of the data.
        classes: Names of the classes from which a task can choose.
    """

    train: Dataset
    validation: Dataset
    metric: Metric
    tested: int | None
    metrics: Mapping[str, Metric]
    class_counts: tuple[str, ...]
    left_out: tuple[str, ...]
    classes: tuple[str, ...]


class SourceInspector:
    """Inspects source models and their data.

    Args:
        cache: Loads source models and data.
        on_progress: Receives the progress of profiling this machine.
    """

    def __init__(self, cache: SourceCache, on_progress: OnProgress) -> None:
        self._cache = cache
        self._on_progress = on_progress

    def inspect(self, task: InspectTask) -> Inspection:
        """Return the costs and estimates of a source model, with all problems."""
        start_litert()  # which takes a while, and is needed only after the conversion
        problems = ProblemCollector()
        source = problems.load("model", lambda: self._cache.source(task.recipe.model))
        params = problems.load("algorithm.config", lambda: params_of(task.recipe))
        if source is not None and task.recipe.model.channels_first:
            task = problems.check("model", partial(_with_layout, task, source)) or task
        if source is not None and source.network is None:
            return inspect_unchanged(source, task, self._cache, problems)
        return self._inspect(task, params, source and source.network, problems)

    def _inspect(
        self, task: InspectTask, params: Params | None, model: keras.Model | None, problems: ProblemCollector
    ) -> Inspection:
        """Return the costs and estimates of an adaptable network, with all problems."""
        recipe = task.recipe
        if model is not None:
            model = problems.check("dataset.scale", partial(scaled, model, recipe.data.settings.scale))
        profiles = data = None
        if model is not None:
            data = self._inspect_data(problems, recipe.data, model)
            profiles = problems.load("model", partial(self._profiles, task, model, data))
        if model is None or profiles is None:
            return Inspection(costs={}, floor={}, hardware=recipe.hardware, problems=tuple(problems.problems))
        structure = analyse(model, params.layers if params else {})
        wrong = unmatched(structure.rules, structure.graph.layers)
        problems.add(pattern.problem("algorithm.config.layers") for pattern in wrong)
        estimates = trial = None
        if params is not None and not problems:
            estimates = estimates_of(structure, task, profiles)
            if data is not None and task.measures:
                estimates, trial = _with_measurements(estimates, task, model, data, params)
        costs = costs_of(structure.network(), profiles)
        least = remove_blocks(structure, removable_blocks(structure))
        floor = costs_of(least.network(least.least_widths), profiles)
        return Inspection(
            costs=dict(costs),
            floor=dict(floor),
            inputs=tuple(input_names(model)),
            channels_first=recipe.data.channels_first,
            classes=None if data is None else data.classes,
            hardware=by_name(profiles),
            metric=None if data is None else data.metric,
            metrics={} if data is None else dict(data.metrics),
            estimates=estimates,
            trial=trial,
            class_counts=() if data is None else data.class_counts,
            left_out=() if data is None else data.left_out,
            problems=tuple(problems.problems),
        )

    def _profiles(self, task: InspectTask, model: keras.Model, data: _Data | None) -> Profiles:
        """Return the task's hardware, with this machine's profile calibrated by measuring the source."""
        profiles = task.recipe.profiles
        if data is None or "host" not in task.measures:
            return calibrated(profiles, model)
        profiled = host_profiles(self._on_progress)
        here = (
            calibrated_host(profiled, model, data.train, profile.threads)
            for profile in profiles
            if is_host(profile.name)
        )
        others = (profile for profile in profiles if not is_host(profile.name))
        return (*chain.from_iterable(here), *others)

    def _inspect_data(self, problems: ProblemCollector, data: DataSource, model: keras.Model) -> _Data | None:
        """Return the data and metrics, and collect their problems."""
        inspected = InspectedData(
            self._cache,
            problems,
            data,
            signature_of(model),
            Evaluation(model).outputs,
            generator=partial(_one_generated, model),
        )
        loaded = inspected.load()
        if loaded is None:
            return None
        train, validation, test = loaded
        objectives = objectives_of(model, train)
        metric = inspected.checked_metric(loaded, objectives)
        weights = DataSettings(class_weights=data.settings.class_weights)
        for name, loss in data.settings.losses.items():
            checked = partial(check_output_loss, name, loss, objectives, model, train)
            problems.check(f"dataset.losses.{name}", checked)
        problems.check("dataset.class_weights", partial(objectives_of, model, train, weights))
        if not data.trains_on_pseudo_labels:
            balanced = partial(check_balanced, signature_of(model), train, data.settings.class_weights)
            problems.check("dataset.class_weights", balanced)
        problems.load(
            "dataset", partial(description_of, data.settings, signature_of(model), objectives, train)
        )
        problems.check("dataset.augment", partial(augmenting, model, data.settings.augment))
        chosen = data.settings.metrics
        if train.answers is not None:
            chosen = {**dict.fromkeys(objectives, Metric.BALANCED_ACCURACY), **chosen}
        metrics = output_metrics(objectives, train.targets, chosen, labelled=data.labelled)
        tested = None if test is None else len(test)
        classes = _classes(model, objectives, data.settings, train)
        counts, left_out = inspected.class_counts, inspected.left_out
        return _Data(train, validation, metric, tested, metrics, counts, left_out, classes)


def _with_layout(task: InspectTask, source: SourceModel) -> InspectTask:
    """Return a task with the inputs whose data may have channels first, as in the source's file.

    Raises:
        InvalidValue: There are none.
    """
    if not source.channels_first:
        names = ", ".join(each.name for each in source.signature.inputs)
        raise InvalidValue(
            f"layout=channels_first for inputs without channels ({names})",
            "an input that convolutions or pooling read",
            "leave the layout out",
        )
    data = task.recipe.data.model_copy(update={"channels_first": source.channels_first})
    return task.model_copy(update={"recipe": task.recipe.model_copy(update={"data": data})})


def _classes(
    model: keras.Model, objectives: Mapping[str, OutputObjective], settings: DataSettings, train: Dataset
) -> tuple[str, ...]:
    """Return the classes of the only output; none of other models, and where the output cannot be cut."""
    output = signature_of(model).outputs[0]
    if len(objectives) > 1 or not isinstance(objectives[output.name], Categorical):
        return ()
    return class_names(output, settings, train) if is_narrowable(model, output.name) else ()


def _one_generated(model: keras.Model, objectives: Mapping[str, OutputObjective]) -> Dataset:
    return generated(model, 1, 0, objectives=objectives)


def _with_measurements(
    estimates: EdgeEstimates, task: InspectTask, model: keras.Model, data: _Data, params: Params
) -> tuple[EdgeEstimates, SourceTrial | None]:
    """Return the estimates with the requested measurements of the source, and the trial."""
    setup, measures = _setup(task, data, params), set(task.measures) - {"host", "trial"}
    tested = data.tested if "trial" in task.measures else None
    flips = tested is not None and flips_suit(model, task.recipe.data, setup)
    if flips:
        setup = replace(setup, settings=setup.settings.model_copy(update={"augment": FLIPS}))
    # Use one copy for all measurements, because tracing takes longer than measuring.
    trainer = Trainer(copied(model), setup, 0)
    if task.recipe.data.settings.tasks is not None:  # of which the source answers no single one
        measures.discard("accuracy")
    if "accuracy" in measures and not task.recipe.data.has_validation_labels:
        # The source always agrees with its own predictions.
        perfect = (OutputScore(name, metric, metric.perfect) for name, metric in data.metrics.items())
        estimates = estimates.model_copy(
            update={"accuracy": data.metric.perfect, "output_scores": tuple(perfect)}
        )
        measures.remove("accuracy")
    estimates = with_measurements(estimates, trainer, setup, measures)
    if tested is None:
        return estimates, None
    trial = trial_of(trainer, setup, estimates, tested)
    if estimates.nats is not None:
        nats = trainer.evaluation.nats(setup.validation.sample(EXAMPLES))
        estimates = estimates.model_copy(update={"nats": nats})
    return estimates, trial.model_copy(update={"flips": flips})


def _setup(task: InspectTask, data: _Data, params: Params) -> TrainingSetup:
    settings = task.recipe.data.settings.model_copy(update={"metric": data.metric, "metrics": data.metrics})
    return TrainingSetup(data.train, data.validation, None, params, settings)
