"""Inspection of a model, its data and its settings before anything is started."""

from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import NamedTuple

import keras

from executors.base import Params
from executors.data import Dataset
from executors.sources.scaling import scaled
from executors.structure import analyse, removable_blocks, shallower
from executors.structure.signature import input_names, signature_of
from executors.training.augmentation import augmenting
from executors.training.metrics import (
    check_labels,
    check_metric,
    check_output_metric,
    default_metric,
    output_metrics,
)
from executors.training.objectives import check_balanced, objectives_of
from executors.training.setup import TrainingSetup
from executors.training.synthesis import generated
from mistify.config.dataset import generated_count
from mistify.config.metric import Metric, OutputScore
from mistify.costs.axes import costs_of
from mistify.costs.catalogue import is_host
from mistify.costs.profiles import by_name
from mistify.errors import ErrorCode, MistifyError
from mistify_server.tasks.estimates import EdgeEstimates
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.results import Inspection
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import InspectTask
from mistify_server.worker.adaptation.calibration import calibrated, calibrated_host
from mistify_server.worker.adaptation.latency import Profiles
from mistify_server.worker.cache import DataPart, LearningData, SourceCache, parts_of
from mistify_server.worker.inspection.estimates import estimates_of, with_measurements
from mistify_server.worker.inspection.host import host_profiles
from mistify_server.worker.params import params_of


class _Data(NamedTuple):
    """Data of a model, the metric that suits them, and those of the outputs."""

    train: Dataset
    validation: Dataset
    metric: Metric
    metrics: Mapping[str, Metric]


class SourceInspector:
    """Inspects source models and their data.

    Args:
        cache: Has source models and data.
        on_progress: Takes the progress of profiling this machine.
    """

    def __init__(self, cache: SourceCache, on_progress: OnProgress) -> None:
        self._cache = cache
        self._on_progress = on_progress

    def inspect(self, task: InspectTask) -> Inspection:
        """Return the costs and estimates of a source model, and all problems."""
        problems = ProblemCollector()
        model = problems.load("model", lambda: self._cache.source(task.model))
        if model is not None:
            model = problems.check("dataset.scale", partial(scaled, model, task.data.settings.scale))
        params = problems.load("algorithm.config", lambda: params_of(task.algorithm, task.algorithm_config))
        if model is None:
            return Inspection(costs={}, floor={}, hardware=task.hardware, problems=tuple(problems.problems))
        data = self._inspect_data(problems, task.data, model)
        profiles = self._profiles(task, model, data)
        structure = analyse(model)
        estimates = None
        if params is not None and not problems:
            estimates = estimates_of(structure, task, profiles)
            if data is not None and task.measures:
                estimates = _with_measurements(estimates, task, model, data, params)
        costs = costs_of(structure.network(), profiles)
        least = shallower(structure, removable_blocks(structure))
        floor = costs_of(least.network(dict.fromkeys(least.groups, 1)), profiles)
        return Inspection(
            costs=dict(costs),
            floor=dict(floor),
            inputs=tuple(input_names(model)),
            hardware=by_name(profiles),
            metric=None if data is None else data.metric,
            metrics={} if data is None else dict(data.metrics),
            estimates=estimates,
            problems=tuple(problems.problems),
        )

    def _profiles(self, task: InspectTask, model: keras.Model, data: _Data | None) -> Profiles:
        """Return the task's hardware, with this machine as it is: the source is measured on it."""
        profiles = tuple(task.hardware.values())
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
        """Return the data and the metric; add problems with either."""
        learning, test_part = parts_of(data, signature_of(model))
        loaded = self._load_learning(problems, learning, model)
        test = problems.load("dataset.test", partial(self._load_part, test_part, model))
        if loaded is None or test is None:
            return None
        train, validation = loaded
        objectives = objectives_of(model, train)
        default = default_metric(objectives, train.targets)
        metric = data.settings.metric or (default if data.labelled else default.without_labels)
        if not data.labelled:
            problems.check("dataset.metric", partial(check_labels, data.settings.metric))
        weights = data.settings.class_weights
        # An example of generated data says nothing of the classes that there will be.
        given = {} if data.generates_validation else {"validation": validation}
        given |= {} if generated_count(data.test) else {"test": test}
        problems.check("dataset.metric", partial(check_metric, metric, objectives, given))
        for name, own in data.settings.metrics.items():
            problems.check(
                f"dataset.metrics.{name}", partial(check_output_metric, name, own, objectives, given)
            )
        problems.check("dataset.class_weights", partial(objectives_of, model, train, weights))
        if not generated_count(data.train):
            problems.check(
                "dataset.class_weights", partial(check_balanced, signature_of(model), train, weights)
            )
        problems.check("dataset.augment", partial(augmenting, model, data.settings.augment))
        metrics = output_metrics(objectives, train.targets, data.settings.metrics, labelled=data.labelled)
        return _Data(train, validation, metric, metrics)

    def _load_learning(
        self, problems: ProblemCollector, learning: LearningData, model: keras.Model
    ) -> tuple[Dataset, Dataset] | None:
        """Return training and validation data; one example for both where they are to be generated."""
        if isinstance(learning.validation, DataPart):
            place, part = "dataset.validation", learning.validation
            validation = problems.load(place, partial(self._load_part, part, model))
            train = problems.load("dataset.train", partial(self._load_part, learning.train, model))
            return None if train is None or validation is None else (train, validation)
        if generated_count(learning.train.source):
            example = generated(model, 1, 0)
            return example, example
        return problems.load("dataset.train", partial(self._cache.learning, learning))

    def _load_part(self, part: DataPart, model: keras.Model) -> Dataset:
        """Return a part of the data; one example of a part that is to be generated."""
        return generated(model, 1, 0) if generated_count(part.source) else self._cache.data(part)


def _with_measurements(
    estimates: EdgeEstimates, task: InspectTask, model: keras.Model, data: _Data, params: Params
) -> EdgeEstimates:
    """Return the estimates with the measurements of the source that a task asks for."""
    settings = task.data.settings.model_copy(update={"metric": data.metric, "metrics": data.metrics})
    setup = TrainingSetup(data.train, data.validation, None, params, settings)
    measures = set(task.measures) - {"host"}
    if "accuracy" in measures and task.data.generates_validation:
        # Generated data have the source's own predictions as targets.
        perfect = (OutputScore(name, metric, metric.perfect) for name, metric in data.metrics.items())
        estimates = estimates.model_copy(
            update={"accuracy": data.metric.perfect, "output_scores": tuple(perfect)}
        )
        measures.remove("accuracy")
    return with_measurements(estimates, model, setup, measures)


def check_generated(
    model: keras.Model, source: DataSource, train: Dataset, parts: Mapping[str, Dataset]
) -> None:
    """Check that generated data have the classes that their settings need.

    Args:
        model: The source.
        source: As in the config, where parts are to be generated.
        train: The training data.
        parts: Of the validation and the test data those that were generated.

    Raises:
        MistifyError: INVALID_DATASET, with all problems.
    """
    problems = ProblemCollector()
    objectives = objectives_of(model, train)
    problems.check("dataset.metric", partial(check_metric, source.metric, objectives, parts))
    if generated_count(source.train):
        weights = source.settings.class_weights
        problems.check("dataset.class_weights", partial(check_balanced, signature_of(model), train, weights))
    if problems:
        raise MistifyError(
            ErrorCode.INVALID_DATASET, "the data that were generated cannot be used", problems.problems
        )
