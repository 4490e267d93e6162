"""Inspection of a model, its data and its settings before anything is started."""

from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

import keras
import numpy as np

from executors.data import Dataset
from executors.data.errors import invalid
from executors.params import Params
from executors.sources.scaling import scaled
from executors.structure import analyse, copied, removable_blocks, shallower, unmatched
from executors.structure.signature import input_names, signature_of
from executors.training.augmentation import augmenting
from executors.training.losses import check_output_loss
from executors.training.metrics import (
    check_labels,
    check_metric,
    check_output_metric,
    default_metric,
    output_metrics,
)
from executors.training.objectives import Objective, check_balanced, objectives_of, with_unlabelled
from executors.training.setup import TrainingSetup
from executors.training.synthesis import generated
from executors.training.trainer import Trainer
from mistify.config.dataset import DataSettings, generated_count
from mistify.config.metric import Metric, OutputScore
from mistify.costs.axes import costs_of
from mistify.costs.catalogue import is_host
from mistify.costs.profiles import by_name
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.wording import counted
from mistify_server.tasks.estimates import EdgeEstimates, Outlook
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.results import Inspection
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import InspectTask
from mistify_server.worker.adaptation.calibration import calibrated, calibrated_host
from mistify_server.worker.adaptation.latency import Profiles
from mistify_server.worker.answers import answers
from mistify_server.worker.cache import DataPart, LearningData, SourceCache, parts_of
from mistify_server.worker.description.description import description_of
from mistify_server.worker.inspection.estimates import estimates_of, with_measurements
from mistify_server.worker.inspection.host import host_profiles
from mistify_server.worker.inspection.outlook import outlook_of
from mistify_server.worker.params import params_of

#: Unlabelled inputs that the source answers in an inspection.
_ANSWERED: Final = 64


class _Data(NamedTuple):
    """Data of a model and the metrics that suit them.

    Attributes:
        train: Training data.
        validation: Validation data.
        metric: The metric by which networks are compared.
        tested: Examples of the test data; None where these are still to be made.
        metrics: The metric of each output.
    """

    train: Dataset
    validation: Dataset
    metric: Metric
    tested: int | None
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
        structure = analyse(model, params.layers if params else {})
        wrong = unmatched(structure.rules, structure.graph.layers)
        problems.add(pattern.problem("algorithm.config.layers") for pattern in wrong)
        estimates = outlook = None
        if params is not None and not problems:
            estimates = estimates_of(structure, task, profiles)
            if data is not None and task.measures:
                estimates, outlook = _with_measurements(estimates, task, model, data, params)
        costs = costs_of(structure.network(), profiles)
        least = shallower(structure, removable_blocks(structure))
        floor = costs_of(least.network(least.least_widths), profiles)
        return Inspection(
            costs=dict(costs),
            floor=dict(floor),
            inputs=tuple(input_names(model)),
            hardware=by_name(profiles),
            metric=None if data is None else data.metric,
            metrics={} if data is None else dict(data.metrics),
            estimates=estimates,
            outlook=outlook,
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
        # Labels tell what the source's answers are; unlabelled inputs are no test data as yet.
        test = None
        if data.labelled:
            test = problems.load("dataset.test", partial(self._load_part, test_part, model, {}))
        answering = {} if test is None else objectives_of(model, test)
        loaded = self._load_learning(problems, data, learning, model, answering)
        if loaded is None or (data.labelled and test is None):
            return None
        train, validation = loaded
        objectives = objectives_of(model, train)
        default = default_metric(objectives, train.targets)
        metric = data.settings.metric or (default if data.labelled else default.without_labels)
        if not data.labelled:
            problems.check("dataset.metric", partial(check_labels, data.settings.metric))
        weights = DataSettings(class_weights=data.settings.class_weights)
        # A few answers of the source say nothing of the classes that there will be.
        parts = {"validation": validation} if data.has_validation_labels else {}
        parts |= {} if test is None else {"test": test}
        problems.check("dataset.metric", partial(check_metric, metric, objectives, parts))
        for name, own in data.settings.metrics.items():
            problems.check(
                f"dataset.metrics.{name}", partial(check_output_metric, name, own, objectives, parts)
            )
        for name, loss in data.settings.losses.items():
            checked = partial(check_output_loss, name, loss, objectives, model, train)
            problems.check(f"dataset.losses.{name}", checked)
        problems.check("dataset.class_weights", partial(objectives_of, model, train, weights))
        if not data.trains_on_answers:
            balanced = partial(check_balanced, signature_of(model), train, data.settings.class_weights)
            problems.check("dataset.class_weights", balanced)
        problems.load(
            "dataset", partial(description_of, data.settings, signature_of(model), objectives, train)
        )
        problems.check("dataset.augment", partial(augmenting, model, data.settings.augment))
        metrics = output_metrics(objectives, train.targets, data.settings.metrics, labelled=data.labelled)
        return _Data(train, validation, metric, None if test is None else len(test), metrics)

    def _load_learning(
        self,
        problems: ProblemCollector,
        data: DataSource,
        learning: LearningData,
        model: keras.Model,
        objectives: Mapping[str, Objective],
    ) -> tuple[Dataset, Dataset] | None:
        """Return training and validation data; some examples for both where the source is to answer."""
        place = "dataset.train" if learning.train.labelled else "dataset.unlabelled"
        if not data.trains_on_answers and not isinstance(learning.validation, DataPart):
            learned = problems.load(place, partial(self._cache.learning, learning))
        else:
            train = problems.load(place, partial(self._load_part, learning.train, model, objectives))
            validation = train
            if isinstance(learning.validation, DataPart):
                own = partial(self._load_part, learning.validation, model, {})
                validation = problems.load("dataset.validation", own)
            learned = None if train is None or validation is None else (train, validation)
        beside = learning.unlabelled
        if beside is not None:
            inputs = problems.load("dataset.unlabelled", partial(self._cache.data, beside))
            if inputs is not None and learned is not None:
                joining = partial(with_unlabelled, learned[0], inputs.inputs)
                problems.load("dataset.unlabelled", joining)
        elif learned is not None and not learning.train.labelled:
            problems.load(place, partial(self._check_number, data, learning.train))
        return learned

    def _load_part(self, part: DataPart, model: keras.Model, objectives: Mapping[str, Objective]) -> Dataset:
        """Return a part of the data; where the source is to answer, some examples that it has answered."""
        if generated_count(part.source):
            return generated(model, 1, 0, objectives=objectives)
        data = self._cache.data(part)
        if part.labelled:
            return data
        some = data.subset(np.arange(min(len(data), _ANSWERED)))
        return answers(model, some, part, objectives)

    def _check_number(self, data: DataSource, part: DataPart) -> None:
        """Make sure that unlabelled inputs are as many as the parts that they stand for.

        Raises:
            MistifyError: INVALID_DATASET, they are not.
        """
        parts = ["to train on"]
        parts += [] if isinstance(data.settings.validation, str) else ["to choose by"]
        parts += [] if data.test else ["to test on"]
        count = len(self._cache.data(part))
        if count < len(parts):
            expected = f"{len(parts)} at least, one {', one '.join(parts)}"
            raise invalid(Problem(part.source, counted(count, "input"), expected, "add some"))


def _with_measurements(
    estimates: EdgeEstimates, task: InspectTask, model: keras.Model, data: _Data, params: Params
) -> tuple[EdgeEstimates, Outlook | None]:
    """Return the estimates with the measurements of the source that a task asks for, and the outlook."""
    setup, measures = _setup(task, data, params), set(task.measures) - {"host", "trial"}
    # One copy for all measurements, as tracing it takes longer than they do.
    trainer = Trainer(copied(model), setup, 0)
    if "accuracy" in measures and not task.data.has_validation_labels:
        # The source agrees with its own answers.
        perfect = (OutputScore(name, metric, metric.perfect) for name, metric in data.metrics.items())
        estimates = estimates.model_copy(
            update={"accuracy": data.metric.perfect, "output_scores": tuple(perfect)}
        )
        measures.remove("accuracy")
    estimates = with_measurements(estimates, trainer, setup, measures)
    if data.tested is None or "trial" not in task.measures:
        return estimates, None
    return estimates, outlook_of(trainer, setup, estimates, data.tested)


def _setup(task: InspectTask, data: _Data, params: Params) -> TrainingSetup:
    settings = task.data.settings.model_copy(update={"metric": data.metric, "metrics": data.metrics})
    return TrainingSetup(data.train, data.validation, None, params, settings)


def check_answered(
    model: keras.Model, source: DataSource, train: Dataset, parts: Mapping[str, Dataset]
) -> None:
    """Check that data with the source's answers have the classes that their settings need.

    Args:
        model: The source.
        source: The data.
        train: The training data.
        parts: Of the validation and the test data those that the source has answered.

    Raises:
        MistifyError: INVALID_DATASET, with all problems.
    """
    problems = ProblemCollector()
    objectives = objectives_of(model, train)
    problems.check("dataset.metric", partial(check_metric, source.metric, objectives, parts))
    if source.trains_on_answers:
        weights = source.settings.class_weights
        problems.check("dataset.class_weights", partial(check_balanced, signature_of(model), train, weights))
    if problems:
        raise MistifyError(
            ErrorCode.INVALID_DATASET, "the source's answers cannot be used as labels", problems.problems
        )
